"""What machines, users, images and commands may be called, wherever `lamarck cluster` takes a name.

All of them end up in somebody's command line or manifest, where a word with a space, or one that
begins with a dash, would be something else than a name.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
import socket
from collections import Counter
from collections.abc import Sequence

import psutil

from lamarckian_cli.errors import ClusterError

_HOST = re.compile(r"[\w\[][\w.:\[\]-]*", re.ASCII)
_HOST_LONGEST = 253  # characters of a name in DNS (RFC 1035)
_USER = re.compile(r"[\w.][\w.@+\\-]*\$?", re.ASCII)
# Of the OCI distribution specification: path of lower case, tag. Before it a registry, which is told
# from a path by a dot or a port, or is called localhost.
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_DOMAIN = r"[A-Za-z0-9][A-Za-z0-9-]*(?:\.[A-Za-z0-9][A-Za-z0-9-]*)"
_REGISTRY = rf"(?:localhost|{_DOMAIN}+)(?::[0-9]{{1,5}})?|{_DOMAIN}*:[0-9]{{1,5}}"
_IMAGE = re.compile(rf"(?:(?:{_REGISTRY})/)?{_PART}(?:/{_PART})*:\w[\w.+-]{{0,127}}", re.ASCII)
_IMAGE_LONGEST = 255
_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")  # RFC 1123, with room for what is put behind it


def check_hosts(hosts: Sequence[str]) -> None:
    """Raise a ClusterError unless each is a name or an address, named once."""
    odd = next((host for host in hosts if not _HOST.fullmatch(host) or len(host) > _HOST_LONGEST), None)
    if odd is not None:
        raise ClusterError(f"--hosts has {odd!r}, which is no name of a machine; give names or addresses")
    twice = sorted(host for host, times in Counter(hosts).items() if times > 1)
    if twice:
        raise ClusterError(f"--hosts names {', '.join(twice)} twice; name each machine once")


def check_elsewhere(hosts: Sequence[str]) -> None:
    """Raise a ClusterError where one of them is this machine itself."""
    own = {socket.gethostname(), *_own_addresses()}
    here = next((host for host in hosts if is_loopback(host) or host in own), None)
    if here is not None:
        raise ClusterError(f"--hosts has {here}; {here} is this machine; use --here")


def check_own_address(address: str) -> None:
    """Raise a ClusterError, with those there are, unless Ray can listen at this address of this machine."""
    short = address.startswith("127.") and address.count(".") < 3  # 127.1, which Ray reads as another
    if is_loopback(address) or short or address in ("0.0.0.0", "::"):
        why = "which other machines, and Ray, do not take for an address"
    elif not _is_here(address):
        why = "which is no address of this machine"
    else:
        return
    known = ", ".join(_own_addresses()) or "no other"
    raise ClusterError(
        f"--address is {address!r}, {why}; this machine has {known}: give one, or leave it out"
    )


def is_loopback(address: str) -> bool:
    """Whether Ray puts another address in the place of this one."""
    return address in ("127.0.0.1", "::1", "localhost")


def check_user(user: str | None) -> None:
    """Raise a ClusterError unless it is left out, or a user's name."""
    if user is not None and not _USER.fullmatch(user):
        raise ClusterError(
            f"--user is {user!r}, which is no name of a user; take letters, digits, dots, dashes, underscores"
        )


def check_kubernetes_name(name: str) -> None:
    """Raise a ClusterError unless Kubernetes takes it for the name of an object (RFC 1123)."""
    if not _LABEL.fullmatch(name):
        raise ClusterError(
            f"--name is {name!r}; take lower case letters, digits and dashes, at most 40, the first a letter "
            "and the last no dash"
        )


def check_image(prefix: str, image: str) -> None:
    """Raise a ClusterError unless an image's whole name, which `prefix` begins, can be one."""
    if not _IMAGE.fullmatch(image) or len(image) > _IMAGE_LONGEST:
        raise ClusterError(
            f"--images is {prefix!r}, and {image!r:.100} is no name of an image; give what stands before it, "
            "such as registry.example:5000/team/"
        )


def words_of(option: str, command: str) -> tuple[str, ...]:
    """The words of a command as a shell would read it; a ClusterError names the option it was given by."""
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise ClusterError(
            f"{option} is {command!r}, which cannot be read as a command ({str(error).lower()}); "
            "close each quote, or write \\' for one that stands for itself"
        ) from error
    if not words or not words[0]:
        raise ClusterError(f"{option} is {command!r}; give a command, such as 'ssh -p 2222'")
    return words


def _is_here(address: str) -> bool:
    """Whether this machine listens at an address, or at one that a name stands for: the kernel knows."""
    try:
        found = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    for family, kind, protocol, _, where in found:
        with socket.socket(family, kind, protocol) as probing:
            try:
                probing.bind(where)
                return True
            except OSError:
                continue
    return False


def _own_addresses() -> list[str]:
    """The addresses of this machine's network interfaces that others may reach it by."""
    found = []
    for rows in psutil.net_if_addrs().values():
        for row in rows:
            if row.family in (socket.AF_INET, socket.AF_INET6):
                parsed = ipaddress.ip_address(row.address.partition("%")[0])
                if not (parsed.is_loopback or parsed.is_link_local):
                    found.append(str(parsed))
    return found
