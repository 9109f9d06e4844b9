"""The network between hosts of namespaces: a switch, links of a given speed, the namespaces themselves."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator

from lamarckian_cli.errors import ClusterError

MIB = 2**20
DEADLINE_S = 30.0  # for a host to be ready, or gone; each takes well under a second
BURST_S, BURST_BYTES = 0.001, 32 * 1024  # what a link lets through at once: the larger of both
QUEUE_S, QUEUE_BYTES = 0.2, 8 * MIB  # what waits before a link drops: the larger of both

_CLONE_NEWPID, _CLONE_NEWNET = 0x20000000, 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)
_switching = threading.Lock()  # a thread that is between namespaces


class Switch:
    """A bridge in a network of its own, which is there while `fd` is open here or in a host."""

    def __init__(self) -> None:
        self.fd = new_network()
        try:
            self.run("ip", "link add switch type bridge stp_state 0 forward_delay 0")
            self.run("ip", "link set switch addrgenmode none up")
        except BaseException:
            self.close()
            raise

    def run(self, program: str, words: str) -> None:
        """Run `ip` or `tc` in this network; raises ClusterError."""
        done = self._run(program, words)
        if done.returncode:
            raise ClusterError(f"{program} {words}: {one_line(done.stderr)}")

    def forget(self, port: str) -> None:
        """Remove a port whose host is gone, unless the kernel has done so already."""
        self._run("ip", f"link delete {port}")

    def close(self) -> None:
        os.close(self.fd)

    def _run(self, program: str, words: str) -> subprocess.CompletedProcess[str]:
        command = ["nsenter", f"--net=/proc/self/fd/{self.fd}", program, *words.split()]
        return subprocess.run(
            command, pass_fds=(self.fd,), capture_output=True, text=True, timeout=DEADLINE_S
        )


def tbf(mbit_per_s: float | None) -> str:
    """The arguments of `tc` for a link of that speed; empty for one without a limit."""
    if mbit_per_s is None:
        return ""
    if not mbit_per_s > 0:
        raise ClusterError(f"mbit_per_s is {mbit_per_s}; it must be above 0, or None for no limit")
    bytes_per_s = mbit_per_s * 1e6 / 8
    burst = max(int(bytes_per_s * BURST_S), BURST_BYTES)
    queue = max(int(bytes_per_s * QUEUE_S), QUEUE_BYTES)
    return f"tbf rate {int(mbit_per_s * 1e6)}bit burst {burst}b limit {queue}b"


def new_network() -> int:
    """File descriptor of a fresh network namespace; ours stays as it is."""
    path = "/proc/thread-self/ns/net"
    with _switching:
        ours = os.open(path, os.O_RDONLY)
        try:
            _check(_libc.unshare(_CLONE_NEWNET))
            made = os.open(path, os.O_RDONLY)
            _check(_libc.setns(ours, _CLONE_NEWNET))
        finally:
            os.close(ours)
    return made


@contextlib.contextmanager
def children_in(pids: int) -> Iterator[None]:
    """What this thread starts meanwhile counts processes in the namespace of that file descriptor.

    So that the child is the process itself, and no go-between would have to pass on signals.
    """
    with _switching:
        ours = os.open("/proc/self/ns/pid", os.O_RDONLY)
        try:
            _check(_libc.setns(pids, _CLONE_NEWPID))
            try:
                yield
            finally:
                _check(_libc.setns(ours, _CLONE_NEWPID))
        finally:
            os.close(ours)


def _check(result: int) -> None:
    if result:
        code = ctypes.get_errno()
        raise ClusterError(f"the kernel refuses to change namespaces: {os.strerror(code)}")


def one_line(text: str) -> str:
    return " ".join(text.split())
