"""Who writes a run: a lock that ends with its process, however that ends.

The kernel holds the lock (`flock`), so none is ever left over; what the file says is for
people, and for readers who ask whether the writer is alive.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from pathlib import Path
from typing import Any

from lamarckian_cli.errors import RunError
from lamarckian_cli.launch.guardian import ticks_of

LOCK = "lock"


class RunLock:
    """Held from construction on; raises RunError, naming the process, where another one has it."""

    def __init__(self, folder: Path) -> None:
        self._descriptor: int | None = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(self._descriptor, folder)
            record = {"pid": os.getpid(), "host": socket.gethostname(), "started": ticks_of(os.getpid())}
            text = json.dumps(record).encode()
            os.pwrite(self._descriptor, text, 0)
            os.ftruncate(self._descriptor, len(text))
        except BaseException:
            os.close(self._descriptor)
            self._descriptor = None
            raise

    def release(self) -> None:
        """Let go; twice is fine. The file stays, for removing it would race with the next holder."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


def writer_is_alive(folder: Path) -> bool:
    """Whether the process that last took the lock still runs and has not let go.

    On another host that cannot be seen, so it is believed.
    """
    holder = _holder(folder)
    if holder is None:
        return False
    if holder.get("host") != socket.gethostname():
        return True
    return ticks_of(holder["pid"]) == holder.get("started")


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # Some network file systems know no flock: there the record has to do.
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES) or writer_is_alive(folder):
            raise RunError(_taken(folder)) from None


def _taken(folder: Path) -> str:
    holder = _holder(folder)
    if holder is None:
        return f"{folder} is being written by another process; wait until it ends"
    pid, host = holder["pid"], holder.get("host")
    if host == socket.gethostname():
        return f"{folder} is being written by process {pid}; wait until it ends, or stop it: kill -INT {pid}"
    return f"{folder} is being written by process {pid} on {host}; wait until it ends, or stop it there"


def _holder(folder: Path) -> dict[str, Any] | None:
    try:
        record = json.loads((folder / LOCK).read_bytes())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("pid"), int) else None
