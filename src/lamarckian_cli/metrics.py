"""How a run's numbers are kept: written line by line.

`metrics.jsonl` is for programs, TensorBoard's events are for eyes; both hold the same rows.
A row is a flat dict of numbers, with `env_steps` among them; of an evolution, `evaluations`.
"""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

Row = Mapping[str, Any]
PROGRESS = ("env_steps", "evaluations")
"""What says how far a row is: of a training, and of an evolution."""


def finite(value: Any) -> Any:
    """`value` fit for JSON: NaN and infinities are None, NumPy's numbers are plain ones."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


class MetricsFile:
    """Appends rows to a file of JSON lines.

    Each line is handed to the system at once, so a process that is killed loses at most the
    line it was writing. The file is opened by the first row.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None

    def append(self, row: Row) -> None:
        if self._file is None:
            self._file = self.path.open("ab", buffering=0)
        self._file.write(json.dumps(finite(row)).encode() + b"\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a metrics file; none if there is no file. A damaged or partial line is left out."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for line in file:
            row = _row_of(line)
            if row is not None and line.endswith(b"\n"):
                yield row


def progress_of(row: Row) -> float:
    """Env steps of a row or a summary, or evaluations; what a damaged file may hold in their place is 0."""
    steps = row.get("env_steps", row.get("evaluations"))
    return steps if isinstance(steps, int | float) else 0


def last_row(path: Path, tail_bytes: int = 16384) -> dict[str, Any]:
    """The newest whole row, read from the file's end; empty if there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - tail_bytes))
            lines = file.read().split(b"\n")
    except OSError:
        return {}
    for line in reversed(lines[:-1]):  # what follows the last line end is partial
        row = _row_of(line)
        if row is not None:
            return row
    return {}


def _row_of(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


class EventsFile:
    """Writes rows as TensorBoard scalars, with env steps, or evaluations, as the step.

    Written at once and without a thread of its own. TensorBoard's package takes a third of a
    second to import, so that is put off until the first row.
    """

    def __init__(self, folder: Path, *, purge_env_steps: int | None = None) -> None:
        self.folder = folder
        self._purge = purge_env_steps  # TensorBoard forgets what earlier files hold from this step on
        self._file: BinaryIO | None = None
        self._records: Any = None

    def append(self, row: Row) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        if self._records is None:
            self._open()
        values = [
            Summary.Value(tag=name, simple_value=float(value))
            for name, value in row.items()
            if name not in PROGRESS and isinstance(value, int | float | np.number) and math.isfinite(value)
        ]
        step = int(progress_of(row))
        self._write(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file, self._records = None, None

    def _open(self) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.record_writer import RecordWriter

        self.folder.mkdir(exist_ok=True)
        now = time.time()
        # Readers take the files in the order of their names, which therefore start with the time.
        name = f"events.out.tfevents.{int(now)}.{socket.gethostname()}.{os.getpid()}.{time.monotonic_ns()}"
        self._file = (self.folder / name).open("wb", buffering=0)
        self._records = RecordWriter(self._file)
        self._write(Event(wall_time=now, file_version="brain.Event:2"))
        if self._purge is not None:
            start = SessionLog(status=SessionLog.START)
            self._write(Event(wall_time=now, step=self._purge, session_log=start))

    def _write(self, event: Any) -> None:
        self._records.write(event.SerializeToString())
