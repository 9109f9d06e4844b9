"""`lineage.jsonl`: one line for each individual that was evaluated, in the order of arrival.

    {"id": 7, "parents": [3, 1], "born": 2, "generation": 2, "objectives": [0.1, 2.0],
     "constraints": [], "cost": null, "worker": 0, "seconds": 0.004, "attempts": 1, "error": null}

`born` is the generation that asked for it, `generation` the one that it arrived in; their
difference is its staleness. Parents are ids; a first individual has none. Objectives are in
their own senses, null where the evaluation failed, which `error` then says why.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from lamarckian_cli.ec.coding import Genomes
from lamarckian_cli.errors import RunError
from lamarckian_cli.evolution.strategy import Candidates
from lamarckian_cli.launch.evolution.evaluation import Done
from lamarckian_cli.metrics import read_rows

LINEAGE = "lineage.jsonl"
_BUFFER = 1 << 16  # characters


class Lineage:
    """Appends to the file; what is buffered is written by `flush`, which tells how long it is then.

    With `genomes` each line has its individual's, in the words of that function, as `genome`.
    """

    def __init__(self, path: Path, genomes: Callable[[Genomes, int], dict[str, Any]] | None = None) -> None:
        self.path = path
        self._genomes = genomes
        self._file: BinaryIO | None = None
        self._lines: list[str] = []
        self._size = 0

    def add(self, done: Done, generation: int) -> None:
        """Lines for what arrived in that generation."""
        candidates, results = done.candidates, done.results
        n = len(candidates)
        nothing: Iterable[Any] = [[]] * n
        objectives = nothing if results is None else _numbers(results.objectives)
        constraints = (
            nothing if results is None or results.constraints is None else _numbers(results.constraints)
        )
        cost = ["null"] * n if results is None or results.cost is None else _numbers(results.cost)
        error = "null" if done.failure is None else json.dumps(done.failure.error)
        tail = (
            f', "worker": {done.worker}, "seconds": {done.seconds / n:.6g}, '
            f'"attempts": {done.attempts}, "error": {error}'
        )
        middle = f', "generation": {generation}, "objectives": '
        if results is None:
            objectives = ["null"] * n
        line = "".join(
            [
                f'{{"id": {i}, "parents": {[] if p == [-1, -1] else p if p[1] >= 0 else p[:1]}, "born": {b}'
                f'{middle}{o}, "constraints": {c}, "cost": {k}{tail}{g}}}\n'
                for i, p, b, o, c, k, g in zip(
                    candidates.ids.tolist(),
                    candidates.parents.tolist(),
                    candidates.born.tolist(),
                    objectives,
                    constraints,
                    cost,
                    self._genome(candidates),
                    strict=True,
                )
            ]
        )
        self._lines.append(line)
        self._size += len(line)
        if self._size >= _BUFFER:
            self._write()

    def _genome(self, candidates: Candidates) -> Iterable[str]:
        if self._genomes is None:
            return [""] * len(candidates)
        words = (self._genomes(candidates.genomes, i) for i in range(len(candidates)))
        return [f', "genome": {json.dumps(word)}' for word in words]

    def flush(self, *, durable: bool = False) -> int:
        """Write what is buffered; bytes of the file from then on. `durable`: they survive a power cut."""
        self._write()
        if self._file is None:
            return self.path.stat().st_size if self.path.exists() else 0
        if durable:
            os.fsync(self._file.fileno())
        return self._file.tell()

    def rewind(self, size: int) -> None:
        """Cut what lies behind the first `size` bytes, which a checkpoint was saved at."""
        self.close()
        there = self.path.stat().st_size if self.path.exists() else 0
        if there < size:
            raise RunError(
                f"{self.path} has {there} bytes, and {size} when its checkpoint was saved; restore the file, "
                "or begin a new run"
            )
        if there > size:
            os.truncate(self.path, size)

    def close(self) -> None:
        """Write what is buffered; twice is fine."""
        self._write()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self) -> None:
        if not self._lines:
            return
        if self._file is None:
            self._file = self.path.open("ab", buffering=0)
        self._file.write("".join(self._lines).encode())
        self._lines.clear()
        self._size = 0


def read_lineage(path: Path) -> Iterator[dict[str, Any]]:
    """The individuals of a run folder's lineage; damaged or partial lines are left out."""
    return read_rows(path / LINEAGE)


def _numbers(values: np.ndarray) -> list[Any]:
    """As lists, and as JSON where a number is infinite, which JSON cannot say."""
    if np.isfinite(values).all():
        listed: list[Any] = values.tolist()
        return listed
    return [json.dumps(_finite(row)) for row in values.tolist()]


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value if math.isfinite(value) else None
