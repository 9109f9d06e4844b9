"""Several hosts on one machine, out of Linux namespaces, joined by a switch of a given speed.

Each host has its own network, process ids, host name, /tmp and /dev/shm, and sees the rest of
the machine's files. Nothing has a name outside: a host is held by its first process
(`hosts_inside.py`), which ends when we end, however we end, and with it everything on the host.
The switch is a bridge in a network of its own, held by a file descriptor of ours alone.

    with Hosts(4, mbit_per_s=100) as hosts:
        server = hosts[0].popen([sys.executable, "server.py"])
        hosts[1].run(["ping", "-c1", hosts[0].address], timeout_s=5)
        hosts[1].cut()

We are no host ourselves: hosts reach each other, not us nor the world. It takes root.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import lamarckian_cli
from lamarckian_cli.bench.switch import DEADLINE_S, MIB, Switch, children_in, one_line, tbf
from lamarckian_cli.errors import ClusterError

NETWORK = IPv4Network("10.77.0.0/16")
PRIVATE_FOLDERS = (Path("/tmp"), Path("/dev/shm"))
COMMAND_SHOWN = 100  # characters of it in a message


class Hosts:
    """`count` hosts, `hosts[0]` to `hosts[count - 1]`, for as long as a `with` block lasts."""

    def __init__(
        self,
        count: int,
        *,
        mbit_per_s: float | None,
        keep: Iterable[Path] = (),
        shm_bytes: int = 1024 * MIB,
    ) -> None:
        """Links carry `mbit_per_s` (10**6 bits) each way, or as much as they can where it is None.

        Of our /tmp and /dev/shm, hosts see the folders of `keep`, of this interpreter, of the
        package and the current folder, and nothing else. `shm_bytes` bounds a host's /dev/shm.
        """
        self._names = [f"host{number + 1}" for number in range(count)]
        self._addresses = [str(NETWORK[number + 1]) for number in range(count)]
        self._limit = tbf(mbit_per_s)
        self._keep = kept_folders([*keep, *own_folders()])
        self._shm_bytes = shm_bytes
        self._switch: Switch | None = None
        self._hosts: list[Host] = []

    def __enter__(self) -> Hosts:
        """Raises ClusterError where such hosts cannot be made."""
        reason = available()
        if reason:
            raise ClusterError(f"no hosts can be made on this machine: {reason}")
        self._switch = Switch()
        try:
            self._hosts = [self._host(number) for number in range(len(self._names))]
            for host in self._hosts:
                host._begin()
            for host in self._hosts:
                host._await_ready()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> Host:
        return self._hosts[index]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts)

    def _host(self, number: int) -> Host:
        assert self._switch is not None
        names = zip(self._addresses, self._names, strict=True)
        plan = {
            "name": self._names[number],
            "port": f"port{number + 1}",
            "switch": self._switch.fd,
            "address": f"{self._addresses[number]}/{NETWORK.prefixlen}",
            # The same after a restart: the others would ask for a new one only after a while.
            "mac": "02:00:" + ":".join(f"{byte:02x}" for byte in NETWORK[number + 1].packed),
            "limit": self._limit,
            "private": {"/tmp": "mode=1777", "/dev/shm": f"mode=1777,size={self._shm_bytes}"},
            "keep": self._keep,
            "hosts_file": "127.0.0.1 localhost\n" + "".join(f"{a} {name}\n" for a, name in names),
        }
        return Host(self._names[number], self._addresses[number], self._switch, plan)

    def _close(self) -> None:
        for host in self._hosts:
            host._end()
        for host in self._hosts:
            host._await_end()
        if self._switch is not None:
            self._switch.close()
        self._hosts, self._switch = [], None


class Host:
    """One of `Hosts`; processes on it are ours, children like any other."""

    def __init__(self, name: str, address: str, switch: Switch, plan: dict[str, Any]) -> None:
        self.name = name
        self.address = address
        self._switch = switch
        self._plan = plan
        self._holder: subprocess.Popen[str] | None = None
        self._inside: _Inside | None = None
        self._processes: list[subprocess.Popen[Any]] = []

    def popen(self, argv: Sequence[str | Path], **keywords: Any) -> subprocess.Popen[Any]:
        """Start a process on this host: a `subprocess.Popen`, whose pid is the process's as we see it.

        `keywords` are Popen's but `shell`, `executable`, `preexec_fn`; `cwd` is a folder as the
        host sees it, by default our own, or / where the host lacks ours. Exit status 126 or 127
        says that the folder or the program is not there. Raises ClusterError on a host that is down.
        """
        inside = self._alive()
        folder = keywords.pop("cwd", None)
        enter = [
            "nsenter",
            *(f"--{option}=/proc/{inside.pid}/ns/{kind}" for option, kind in ENTERED.items()),
            # The working folder is looked up inside: as it is, it would lead out of the host.
            *("sh", "-c", 'cd "$0" 2>/dev/null || [ "$1" = default ] || exit 126; shift; exec "$@"'),
            str(folder or Path.cwd()),
            "given" if folder else "default",
        ]
        argv = [*enter, *map(str, argv)]
        with children_in(inside.pids):
            process = subprocess.Popen(argv, **keywords)
        self._processes = [one for one in self._processes if one.poll() is None] + [process]
        return process

    def run(self, argv: Sequence[str | Path], timeout_s: float, **keywords: Any) -> Any:
        """What a process on this host did: a `subprocess.CompletedProcess` with its output as text.

        Raises ClusterError where it takes more than `timeout_s`; its exit status is the caller's to look at.
        """
        keywords = {"stdin": subprocess.DEVNULL, "text": True} | keywords
        process = self.popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **keywords)
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as late:
            command = textwrap.shorten(" ".join(map(str, argv)), COMMAND_SHOWN)
            raise ClusterError(f"{self.name}: {command} took more than {timeout_s:g} s") from late
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()
        return subprocess.CompletedProcess(list(argv), process.returncode, out, err)

    def cut(self) -> None:
        """Take the link down at the switch; what runs, the address and the routes remain. Twice is fine."""
        self._switch.run("ip", f"link set {self._plan['port']} down")

    def mend(self) -> None:
        """Bring a `cut` link up again. Twice is fine."""
        self._switch.run("ip", f"link set {self._plan['port']} up")

    def block(self, port: int) -> None:
        """Drop TCP segments that come in for `port` unanswered, as a firewall does, until `restart`."""
        # Without a dropping action in the kernel, they go to a bridge that leads nowhere.
        tc = "tc filter add dev eth0 parent ffff: protocol ip u32 match ip protocol 6 0xff"
        script = f"""
            [ -e /proc/sys/net/ipv4/conf/nowhere ] || {{
                ip link add nowhere type bridge && ip link set nowhere addrgenmode none up &&
                tc qdisc add dev eth0 ingress || exit 1; }}
            {tc} match ip dport {port} 0xffff action mirred egress redirect dev nowhere"""
        done = self.run(["sh", "-c", script], timeout_s=DEADLINE_S)
        if done.returncode:
            raise ClusterError(f"{self.name} cannot block port {port}: {one_line(done.stderr)}")

    def kill(self) -> None:
        """End everything on this host at once, and the host; returns when it is over. Twice is fine.

        The others see their connections reset, as when processes are killed; `cut` first for
        a host that goes silent.
        """
        self._end()
        self._await_end()

    def restart(self) -> None:
        """The host anew, with its name and address and nothing on it; killed first if it runs.

        Raises ClusterError where it does not come up.
        """
        self.kill()
        self._begin()
        self._await_ready()

    def _alive(self) -> _Inside:
        if self._inside is None or self._holder is None or self._holder.poll() is not None:
            raise ClusterError(f"{self.name} is down; restart it first")
        return self._inside

    def _begin(self) -> None:
        maker = os.pidfd_open(os.getpid())
        python = [sys.executable, "-I", "-S", str(Path(__file__).with_name("hosts_inside.py"))]
        try:
            self._holder = subprocess.Popen(
                [*UNSHARE, *python, json.dumps(self._plan)],
                stdin=maker,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                pass_fds=(self._switch.fd,),
                start_new_session=True,  # Ctrl-C in a terminal is not for it
            )
        finally:
            os.close(maker)

    def _await_ready(self) -> None:
        assert self._holder is not None
        assert self._holder.stdout is not None
        ready, _, _ = select.select([self._holder.stdout], [], [], DEADLINE_S)
        word, _, rest = (self._holder.stdout.readline() if ready else "").strip().partition(" ")
        if word != "ready":
            self._end()
            raise ClusterError(f"{self.name} did not come up: {rest or word or 'no answer'}")
        pid = int(rest)
        self._inside = _Inside(pid, os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY))

    def _end(self) -> None:
        if self._inside is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._inside.pid, signal.SIGKILL)
            os.close(self._inside.pids)
        elif self._holder is not None:
            self._holder.kill()
        self._inside = None

    def _await_end(self) -> None:
        if self._holder is None:
            return
        assert self._holder.stdout is not None
        for process in self._processes:  # the kernel keeps the host until its dead are buried
            process.wait(DEADLINE_S)
        self._holder.wait(DEADLINE_S)
        self._holder.stdout.close()
        self._holder = None
        self._switch.forget(self._plan["port"])


@dataclass(frozen=True, slots=True)
class _Inside:
    """A host's first process."""

    pid: int  # as we count
    pids: int  # file descriptor of its namespace of process ids


ENTERED = {"net": "net", "mount": "mnt", "uts": "uts", "ipc": "ipc"}  # nsenter's option -> in /proc/PID/ns
UNSHARE = ("unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child")
TRIAL = f"""
    mount -t tmpfs none {PRIVATE_FOLDERS[0]} && ip link add switch type bridge &&
    ip link add eth0 type veth peer name port1 && ip link set port1 master switch &&
    tc qdisc add dev eth0 root {{limit}}"""


@functools.cache
def available() -> str:
    """Empty if hosts can be made here, or else why not, in one line."""
    if not hasattr(os, "pidfd_open"):
        return "it takes Linux 5.3 or later"
    if os.geteuid() != 0:
        return "it takes root"
    for program, package in {"unshare": "util-linux", "nsenter": "util-linux", "ip": "iproute2"}.items():
        if shutil.which(program) is None:
            return f"there is no `{program}`; install {package}"
    trial = [*UNSHARE, "sh", "-ec", TRIAL.format(limit=tbf(1.0))]
    try:
        done = subprocess.run(trial, capture_output=True, text=True, timeout=DEADLINE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return one_line(str(error))
    return one_line(done.stderr) or f"unshare ended with status {done.returncode}" if done.returncode else ""


def own_folders() -> list[Path]:
    """What a program of ours needs: interpreter, package, its repository, the current folder."""
    package = Path(lamarckian_cli.__file__).parent
    repository = package.parent.parent
    folders = [Path(sys.prefix), Path(sys.base_prefix), package, Path.cwd()]
    return folders + ([repository] if (repository / "pyproject.toml").exists() else [])


def kept_folders(folders: Iterable[Path]) -> list[str]:
    """Those of `folders` that lie under a private folder, by every name they have there, outermost first."""
    names = {Path(os.path.abspath(folder)) for folder in folders}
    names |= {folder.resolve() for folder in names}
    return [
        str(name)
        for name in sorted(names)
        if name.is_dir() and any(private in name.parents for private in PRIVATE_FOLDERS)
    ]
