"""Why a Ray cluster would not let us in, found out before Ray tries for minutes without saying why.

A head's GCS speaks gRPC, which is HTTP/2 (RFC 9113). So the first bytes that come back tell a
head from a web server or from silence, and one call, answered by gRPC itself however busy the
head is, tells it from Ray's other servers. Only what is certain is refused; the rest is Ray's
to say.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
import ssl
import time

from lamarckian_cli.errors import ClusterError, ConfigError

PROBE_S = 5.0  # for all of it
GCS_PORT = 6379  # that `ray start --head` takes unless told otherwise
SET_TLS = "RAY_TLS_SERVER_CERT, RAY_TLS_SERVER_KEY and RAY_TLS_CA_CERT"

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_FRAME_HEAD = 9  # bytes: length (3), type, flags, stream (4)
_DATA, _HEADERS, _SETTINGS = 0, 1, 4  # types of frames
_END_STREAM, _END_HEADERS = 1, 4  # flags
_CALLED = "/ray.rpc.NodeInfoGcsService/GetClusterId"  # what every client of a head calls first
_UNIMPLEMENTED = b"\x0bgrpc-status\x0212"  # as a header of a fresh connection, which has no table yet
_READ_BYTES = 1 << 14
_SHOWN = 40  # characters of what a stranger says


def parse_address(address: str, key: str = "cluster.address") -> tuple[str, int] | None:
    """Host and port of HOST:PORT; None for `auto` and names, which others look up.

    Raises ConfigError naming `key` for what is neither.
    """
    give = "give auto, the name of a cluster of lamarck cluster up, or HOST:PORT of a Ray head's GCS"
    scheme, separator, rest = address.partition("://")
    if separator:
        host = rest.partition("/")[0].rpartition(":")[0] or "HOST"
        what = (
            "Ray Client, which is not supported"
            if scheme == "ray"
            else f"{scheme.upper()}, which Ray's GCS is not"
        )
        raise ConfigError(
            f"{key} is {address!r}; that is {what}: give the address of the head's GCS port, such as "
            f"{host}:{GCS_PORT}"
        )
    if not address or address.split() != [address]:
        raise ConfigError(f"{key} is {address!r}; {give}")
    host, separator, port = address.rpartition(":")
    if not separator:
        return None
    if not (_HOST.fullmatch(host) or _is_ipv6(host)):
        what = f"{host!r} is no host" if host else "the host is missing"
        raise ConfigError(f"{key} is {address!r}; {what}: {give}, such as node1:{GCS_PORT}")
    if not (port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= 65535):
        what = f"port {port} is no number from 1 to 65535" if port else "the port is missing"
        raise ConfigError(f"{key} is {address!r}; {what}: {give}, such as {host}:{GCS_PORT}")
    return host.strip("[]"), int(port)


def probe(address: str, where: str = "") -> None:
    """Knock at HOST:PORT; ClusterError if no Ray head answers there, or its TLS and ours do not fit.

    `where` is what messages begin with, `cluster.address is 'ADDRESS'` if left out. Anything else
    than HOST:PORT, such as `auto`, is Ray's to find.
    """
    parts = parse_address(address)
    if parts is not None:
        _Door(where or f"cluster.address is {address!r}", *parts).try_it()


class _Door:
    """A host and port, and until when it may take to answer."""

    def __init__(self, where: str, host: str, port: int) -> None:
        self.where, self.host, self.port = where, host, port
        self.deadline = time.monotonic() + PROBE_S

    def try_it(self) -> None:
        if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
            context = _context()
            _show_certificates(context, self.where)
            with self._knock() as connection, self._secured(connection, context) as secured:
                try:
                    answer = self._greet(secured)
                except ssl.SSLError as error:  # with TLS 1.3 it looks at our certificate last
                    raise ClusterError(
                        f"{self.where}; it refuses our certificate ({error.reason}): set {SET_TLS} to the "
                        "cluster's own. A clock that differs makes certificates invalid, too"
                    ) from error
        else:
            with self._knock() as connection:
                answer = self._greet(connection)
            if not _is_http2(answer) and not answer.startswith(b"HTTP/") and self._speaks_tls():
                raise ClusterError(
                    f"{self.where}; it speaks TLS, and RAY_USE_TLS is not set here: set it to 1, and "
                    f"{SET_TLS} to the cluster's files"
                )
        stranger = _stranger(answer) if answer else self._silence()
        if stranger:
            raise self._no_head(stranger)

    def _no_head(self, stranger: str) -> ClusterError:
        return ClusterError(
            f"{self.where}; {stranger}: give HOST:PORT of the head's GCS, whose port is {GCS_PORT} unless "
            "ray start --head --port says otherwise, or bring a cluster up with lamarck cluster up"
        )

    def _silence(self) -> str:
        if time.monotonic() < self.deadline:
            return "what listens there hangs up on us, so it is no Ray head"
        return f"something listens there, but says nothing within {PROBE_S:g} s, as a Ray head would"

    def _knock(self) -> socket.socket:
        try:
            return socket.create_connection((self.host, self.port), self._left_s())
        except (OSError, UnicodeError) as error:  # the latter of names that are too long
            raise ClusterError(
                f"{self.where}; nothing answers there ({error}): check host and port, that Ray runs there "
                "and that no firewall is between, or bring a cluster up with lamarck cluster up"
            ) from error

    def _left_s(self) -> float:
        return max(0.01, self.deadline - time.monotonic())

    def _greet(self, connection: socket.socket) -> bytes:
        """Begin HTTP/2 and call a head; what comes back until that is answered, or the time is over."""
        answer = b""
        with contextlib.suppress(TimeoutError, ConnectionError):  # it is silent, or hung up
            connection.settimeout(self._left_s())
            connection.sendall(_greeting(f"{self.host}:{self.port}"))
            while _is_http2(answer, so_far=True) and not _is_answered(answer):
                connection.settimeout(self._left_s())
                more = connection.recv(_READ_BYTES)
                if not more or time.monotonic() > self.deadline:
                    break
                answer += more
        return answer

    def _speaks_tls(self) -> bool:
        context = _context()
        with contextlib.suppress(OSError), self._knock() as connection:
            connection.settimeout(self._left_s())
            with context.wrap_socket(connection, server_hostname=self.host):
                return True
        return False

    def _secured(self, connection: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
        connection.settimeout(self._left_s())
        try:
            return context.wrap_socket(connection, server_hostname=self.host)
        except ssl.SSLCertVerificationError as error:
            raise ClusterError(
                f"{self.where}; its certificate is of another authority than ours ({error.verify_message}): "
                f"set {SET_TLS} to the cluster's own. A clock that differs makes certificates invalid, too"
            ) from error
        except TimeoutError as error:
            raise self._no_head(self._silence()) from error
        except (ssl.SSLError, ConnectionError) as error:
            raise ClusterError(
                f"{self.where}; it does not speak TLS, and RAY_USE_TLS is 1 here: unset it, or join a "
                "cluster of lamarck cluster up"
            ) from error


def _is_ipv6(host: str) -> bool:
    inner = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        return bool(ipaddress.IPv6Address(inner))
    except ValueError:
        return False


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


# ---------------------------------------------------------------- HTTP/2, as much as it takes


def _greeting(authority: str) -> bytes:
    """Preface, settings, and one call without arguments."""
    fields = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", _CALLED),
        (":authority", authority[:100]),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    )
    headers = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)
    return (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, 1, headers)
        + _frame(_DATA, _END_STREAM, 1, bytes(5))  # a message that is empty: not compressed, of 0 bytes
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def _text(value: str) -> bytes:
    """A header's name or value as it is (RFC 7541, 5.2); shorter than 127 bytes."""
    return bytes((len(value),)) + value.encode()


def _is_http2(answer: bytes, *, so_far: bool = False) -> bool:
    """Whether it begins with a frame of settings, as HTTP/2 does; or may, where more is to come."""
    known = answer[:_FRAME_HEAD]
    if not so_far and len(known) < _FRAME_HEAD:
        return False
    return known[3:4] in (b"\4", b"") and known[5:] == bytes(len(known[5:]))


def _is_answered(answer: bytes) -> bool:
    """Whether a whole frame of headers, which is where gRPC says how a call went, has come."""
    while len(answer) >= _FRAME_HEAD:
        end = _FRAME_HEAD + int.from_bytes(answer[:3], "big")
        if answer[3] == _HEADERS and len(answer) >= end:
            return True
        answer = answer[end:]
    return False


def _stranger(answer: bytes) -> str:
    """What listens there, if that is certainly no head; else empty."""
    if answer.startswith((b"HTTP/", b"<")):
        return "a web server listens there, no Ray head"
    if not _is_http2(answer):
        said = answer.splitlines()[0].decode(errors="replace")[:_SHOWN]
        return f"something else than a Ray head listens there; it says {said!r}"
    if _UNIMPLEMENTED in answer:
        return "a server of Ray's, or another one of gRPC, listens there, but no Ray head"
    return ""


def _show_certificates(context: ssl.SSLContext, where: str) -> None:
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
            f"{where} and RAY_USE_TLS is 1, but {missing or error}; set {SET_TLS} to files that can be read"
        ) from error
    context.verify_mode = ssl.CERT_REQUIRED
