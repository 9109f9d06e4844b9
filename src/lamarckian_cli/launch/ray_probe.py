"""Why a Ray cluster would not let us in, found out before Ray tries for minutes without saying why."""

from __future__ import annotations

import os
import socket
import ssl

from lamarckian_cli.errors import ClusterError

PROBE_S = 5.0
SET_TLS = "RAY_TLS_SERVER_CERT, RAY_TLS_SERVER_KEY and RAY_TLS_CA_CERT"


def probe(address: str) -> None:
    """Knock at HOST:PORT; ClusterError if nothing answers there, or its TLS and ours do not fit.

    Anything else than HOST:PORT, such as `auto`, is Ray's to find.
    """
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit():
        return
    host = host.strip("[]")
    try:
        with socket.create_connection((host, int(port)), PROBE_S) as connection:
            _probe_tls(address, connection, host)
    except ClusterError:
        raise
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"cluster.address is {address!r}; nothing answers there ({error}): check host and port, that Ray "
            "runs there and that no firewall is between, or bring a cluster up with lamarck cluster up"
        ) from error


def _probe_tls(address: str, connection: socket.socket, host: str) -> None:
    ours = os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        if ours:
            _show_certificates(context, address)
        with context.wrap_socket(connection, server_hostname=host):
            theirs = True
    except ssl.SSLCertVerificationError as error:
        raise ClusterError(
            f"cluster.address is {address!r}; its certificate is of another authority than ours "
            f"({error.verify_message}): set {SET_TLS} to the cluster's own. A clock that differs makes "
            "certificates invalid, too"
        ) from error
    except (ssl.SSLError, ConnectionError, TimeoutError):
        theirs = False
    if theirs and not ours:
        raise ClusterError(
            f"cluster.address is {address!r}; it speaks TLS, and RAY_USE_TLS is not set here: set it to 1, "
            f"and {SET_TLS} to the cluster's files"
        )
    if ours and not theirs:
        raise ClusterError(
            f"cluster.address is {address!r}; it does not speak TLS, and RAY_USE_TLS is 1 here: unset it, or "
            "join a cluster of lamarck cluster up"
        )


def _show_certificates(context: ssl.SSLContext, address: str) -> None:
    """Load the files that Ray would."""
    files = {
        name: os.environ.get(name, "")
        for name in ("RAY_TLS_CA_CERT", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY")
    }
    try:
        context.load_verify_locations(files["RAY_TLS_CA_CERT"])
        context.load_cert_chain(files["RAY_TLS_SERVER_CERT"], files["RAY_TLS_SERVER_KEY"])
    except (OSError, ssl.SSLError) as error:
        missing = next(
            (f"{name} is {path!r}" for name, path in files.items() if not os.path.isfile(path)), ""
        )
        raise ClusterError(
            f"cluster.address is {address!r} and RAY_USE_TLS is 1, but {missing or error}; set {SET_TLS} "
            "to files that can be read"
        ) from error
    context.verify_mode = ssl.CERT_REQUIRED
