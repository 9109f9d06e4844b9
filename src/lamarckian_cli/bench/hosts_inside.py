"""The first process on a host of `hosts.py`: makes the host its own, then holds it until the maker ends.

`unshare` runs it as a file, in fresh namespaces; it imports nothing of ours. Standard input
is a pidfd of the maker, which turns readable once that process is gone, whatever ended it;
then this process ends too, and the kernel ends everything else on the host with it. One
argument, the plan as JSON; one line of output, `ready PID` or `failed REASON`.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

MS_BIND, MS_REC = 4096, 16384
O_PATH = os.O_PATH

_libc = ctypes.CDLL(None, use_errno=True)


def main(plan: dict[str, Any]) -> None:
    pid = os.readlink("/proc/self")  # as the maker counts: /proc is still the maker's
    try:
        plug_in(plan)
        Path("/proc/sys/kernel/hostname").write_text(plan["name"])
        own_folders(plan["private"], plan["keep"])
        name_hosts(plan["hosts_file"])
        mount("proc", "/proc", "proc", 0, None)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"failed {' '.join(str(error).split())}", flush=True)
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans come to us, and nobody is to bury them
    os.chdir("/")
    print(f"ready {pid}", flush=True)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    maker = select.poll()
    maker.register(0, select.POLLIN)
    maker.poll()


def plug_in(plan: dict[str, Any]) -> None:
    """A cable between this host and the switch, `eth0` here and `plan["port"]` there."""
    switch = plan["switch"]
    path = f"/proc/self/fd/{switch}"
    port = plan["port"]
    batch(
        ["ip", "-batch", "-"],
        "link set lo up",
        f"link add eth0 address {plan['mac']} type veth peer name {port} netns {path}",
        "link set eth0 addrgenmode none",
        f"address add {plan['address']} dev eth0",
        "link set eth0 up",
        keep=switch,
    )
    batch(
        ["nsenter", f"--net={path}", "ip", "-batch", "-"],
        f"link set {port} addrgenmode none master switch",
        f"link set {port} up",
        keep=switch,
    )
    if plan["limit"]:
        batch(["tc", "-batch", "-"], f"qdisc add dev eth0 root {plan['limit']}", keep=switch)
        batch(
            ["nsenter", f"--net={path}", "tc", "-batch", "-"],
            f"qdisc add dev {port} root {plan['limit']}",
            keep=switch,
        )
    os.close(switch)


def batch(command: list[str], *lines: str, keep: int) -> None:
    """Run `lines` as `command`'s input; `keep` is a file descriptor that it needs."""
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", text=True, capture_output=True, pass_fds=(keep,)
    )
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def own_folders(private: dict[str, str], keep: list[str]) -> None:
    """Empty memory in place of each `private` folder, with mount options; `keep` shows through it."""
    held = {path: os.open(path, O_PATH) for path in keep}  # before they are covered
    for folder, options in private.items():
        mount("tmpfs", folder, "tmpfs", 0, options)
    for path, file in held.items():
        os.makedirs(path, exist_ok=True)
        mount(f"/proc/self/fd/{file}", path, None, MS_BIND | MS_REC, None)
        os.close(file)


def name_hosts(text: str) -> None:
    """`text` in place of /etc/hosts."""
    if not os.path.exists("/etc/hosts"):
        return
    source = Path("/dev/shm/hosts")
    source.write_text(text)
    mount(str(source), "/etc/hosts", None, MS_BIND, None)
    source.unlink()


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None) -> None:
    words = [None if word is None else word.encode() for word in (source, target, kind, options)]
    if _libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]):
        code = ctypes.get_errno()
        raise OSError(code, f"mounting on {target}: {os.strerror(code)}")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
