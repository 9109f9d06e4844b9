"""Where a channel lives: URIs taken apart, and the rules about who may listen where.

inproc://name        the same process; no sockets at all
shm:///path          weights in shared memory, files beside a socket file: the folder of an ipc address
ipc:///path          a socket file in a folder that only its owner can enter (mode 0700)
tcp://host:port      port 0 or * picks a free one; beyond this machine only with keys
"""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport.keys import JobKeys

IPC_PATH_BYTES = 107
"""`sun_path` of a Unix socket holds 108 bytes, the closing zero included."""


@dataclass(frozen=True, slots=True)
class Address:
    """A URI that was checked. `endpoint` is what ZeroMQ is given: a host name is resolved in it."""

    scheme: str  # inproc, shm, ipc or tcp
    uri: str
    name: str = ""  # inproc: the name; ipc and shm: the path
    host: str = ""
    port: int = 0  # 0: any free one

    @property
    def is_file(self) -> bool:
        return self.scheme in ("ipc", "shm")

    @property
    def endpoint(self) -> str:
        if self.is_file:
            return f"ipc://{self.name}"
        if self.scheme != "tcp":
            return self.uri
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port or '*'}"


def parse(uri: str) -> Address:
    """Take a URI apart; TransportError says what is wrong with it."""
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme not in ("inproc", "shm", "ipc", "tcp"):
        raise TransportError(
            f"{uri!r} is not an address; use inproc://name, ipc:///path/to/file, shm:///path/to/file or tcp://host:port"
        )
    if scheme == "inproc":
        if not rest:
            raise TransportError(f"{uri!r} has no name; write inproc://name")
        return Address(scheme, uri, name=rest)
    if scheme in ("ipc", "shm"):
        _check_ipc_path(uri, rest)
        return Address(scheme, uri, name=rest)
    host, separator, port = rest.rpartition(":")
    if not separator or not host or not (port == "*" or (port.isascii() and port.isdigit())):
        raise TransportError(f"{uri!r} needs a host and a port: tcp://host:port; port 0 picks a free one")
    number = 0 if port == "*" else int(port)
    if number > 65535:
        raise TransportError(f"port {number} of {uri!r} is out of range; use 1 to 65535, or 0 for a free one")
    return Address(scheme, uri, host=_resolve(uri, host.removeprefix("[").removesuffix("]")), port=number)


def check_bind(address: Address, keys: JobKeys | None) -> None:
    """Raise TransportError unless it is safe to listen here. Makes the folder of an ipc file."""
    if keys is not None and not keys.server_secret:
        raise TransportError(
            f"cannot listen on {address.uri}: these keys are for clients and lack the server's secret; "
            "bind where JobKeys.make() was called"
        )
    if address.is_file:
        _own_folder(address, make=True)
        _check_free(address)
    _check_encrypted(address, keys)


def check_connect(address: Address, keys: JobKeys | None) -> None:
    """Raise TransportError unless it is safe to send to this address."""
    if address.scheme == "tcp" and address.port == 0:
        raise TransportError(f"{address.uri} names no port; connect to the `.uri` of the bound end")
    if address.is_file:
        _own_folder(address, make=False)
    _check_encrypted(address, keys)


def remove_file(address: Address) -> None:
    """Take away the socket file of a closed ipc address."""
    if address.is_file:
        Path(address.name).unlink(missing_ok=True)


def _check_ipc_path(uri: str, path: str) -> None:
    size = len(os.fsencode(path))
    if size > IPC_PATH_BYTES:
        raise TransportError(
            f"the path of {uri!r} has {size} bytes; a socket file may have {IPC_PATH_BYTES}: "
            "use a shorter folder such as one under /tmp"
        )
    if not path.startswith("/") or "\0" in path or path.endswith("/"):
        raise TransportError(f"{uri!r} needs the full path of a file: {uri[:3]}:///folder/file")


def _resolve(uri: str, host: str) -> str:
    """The numeric address of a host; ZeroMQ binds to numbers only."""
    if host == "*":
        return "0.0.0.0"
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass  # a name, then
    try:
        return socket.gethostbyname(host)
    except (OSError, UnicodeError) as error:
        raise TransportError(
            f"the host {host!r} of {uri!r} is unknown: {error}; use its IP address"
        ) from error


def _check_encrypted(address: Address, keys: JobKeys | None) -> None:
    """Nothing crosses the border of this machine in the clear."""
    if address.scheme == "tcp" and keys is None and not ipaddress.ip_address(address.host).is_loopback:
        raise TransportError(
            f"{address.uri} leaves this machine and would not be encrypted; pass keys (JobKeys.make()), "
            "or use ipc:// or tcp://127.0.0.1"
        )


def _own_folder(address: Address, *, make: bool) -> None:
    folder = Path(address.name).parent
    try:
        if make:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.stat()
    except FileNotFoundError:
        return  # nobody listens yet; the handshake's deadline will tell
    except OSError as error:
        raise TransportError(
            f"the folder {folder} of {address.uri} cannot be used: {error.strerror}"
        ) from error
    if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise TransportError(
            f"the folder {folder} of {address.uri} has mode {stat.S_IMODE(facts.st_mode):04o} and owner "
            f"{facts.st_uid}; others could reach the channel: use a folder of your own with mode 0700"
        )


def _check_free(address: Address) -> None:
    """ZeroMQ would quietly take the file of a living channel away, so ask first who answers there."""
    path = Path(address.name)
    if not path.exists():
        return
    if not path.is_socket():
        raise TransportError(f"{path} of {address.uri} exists and is not a socket; choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(address.name)
        except ConnectionRefusedError:
            return  # left behind by a process that was killed
        except BlockingIOError:
            pass  # a full backlog: somebody lives there
        except OSError as error:
            raise TransportError(f"{address.uri} cannot be used: {error.strerror}") from error
    raise TransportError(f"{address.uri} is in use by another channel; close that one or choose another path")
