"""Ends whatever a job started, whatever ends the job, SIGKILL included.

Ray's own processes mostly follow the one that started them, but not all of them, and none
removes our sockets. So a small process of its own session holds the reading end of a pipe,
and looks now and then which processes descend from the job. When the job closes the pipe, or
is gone, it ends those that are left, and removes the job's folder. It is run as a file, and
imports nothing of ours. Its environment says what it is, for whoever ends everything of a
cluster by what processes were born with: a guardian goes last, and by itself.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

LOOK_S = (0.25, 2.0)  # between two looks: while the job starts, and later
STARTING_S = 30.0
GRACE_S = 2.0  # between asking to end and ending
DEADLINE_S = 10.0
LONGEST_S = DEADLINE_S + GRACE_S  # until a guardian whose job is gone has ended
MARK = "LAMARCK_GUARDIAN"  # environment variable that guardians alone have: the folder

Known = dict[int, str]  # process id -> when it started, which tells it from a later one of the same id


class Guardian:
    """Watches over this process and `folder` until `release`."""

    def __init__(self, folder: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__, str(os.getpid()), folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, MARK: folder},
            start_new_session=True,  # Ctrl-C in a terminal is not for it
        )
        # What was started hands over to a process of its own: Ray kills the children of its workers.
        self._process.wait()

    def release(self) -> None:
        """The job is over: wait until everything of it has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        select.select([self._process.stdout], [], [], LONGEST_S)  # it ends, so the pipe does
        self._process.stdout.close()


def watch(job: int, folder: str) -> None:
    """Follow the process `job` until the pipe's end, then clean up."""
    known: Known = {}
    began = time.monotonic()
    while True:
        known.update(descendants(job))
        pause = LOOK_S[0] if time.monotonic() - began < STARTING_S else LOOK_S[1]
        if select.select([sys.stdin], [], [], pause)[0]:
            break
    end({pid: start for pid, start in known.items() if pid != os.getpid()})
    shutil.rmtree(folder, ignore_errors=True)


def end(known: Known) -> None:
    """End the processes of `known` that still run, and what they started."""
    began = time.monotonic()
    while time.monotonic() - began < DEADLINE_S:
        for pid in list(known):
            known.update(descendants(pid))
        running = [pid for pid, start in known.items() if start_of(pid) == start and pid != os.getpid()]
        if not running:
            return
        final = time.monotonic() - began > GRACE_S
        for pid in running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL if final else signal.SIGTERM)
        time.sleep(0.1)


def descendants(root: int) -> Known:
    """Processes that `root` started, and those that these started."""
    parents: dict[int, list[tuple[int, str]]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := stat_of(int(entry.name))):
            parents.setdefault(int(fields[1]), []).append((int(entry.name), fields[19]))
    found: Known = {}
    waiting = [root]
    while waiting:
        for pid, start in parents.get(waiting.pop(), ()):
            found[pid] = start
            waiting.append(pid)
    return found


def start_of(pid: int) -> str:
    """When a process started, in the kernel's ticks; empty if it is gone or only waits to be buried."""
    fields = stat_of(pid)
    return fields[19] if fields and fields[0] != "Z" else ""


def ticks_of(pid: int) -> int:
    """When a process started, in the kernel's ticks since it booted; -1 where there is none.

    No clock that may be set tells it, unlike a time of day.
    """
    return int(start_of(pid) or -1)


def stat_of(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    watch(int(sys.argv[1]), sys.argv[2])
