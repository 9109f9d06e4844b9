"""Where candidates are evaluated: what every pool promises, and the two that need no other process.

A pool is given candidates and gives them back evaluated, one by one or many together, in any
order. It never asks a strategy anything, so all of them serve the same workflow.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from lamarckian_cli.ec.coding import take
from lamarckian_cli.evolution.strategy import Candidates
from lamarckian_cli.launch.evolution.evaluation import Done, Failure, evaluate, evaluation_seeds
from lamarckian_cli.problems.evaluator import Description, Evaluator, Results


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReport:
    """How the workers stand."""

    workers: int
    busy: int  # that evaluate at this moment
    used: float | None  # share of the workers' time, since they were there, that was spent evaluating
    restarts: int = 0  # workers that died or hung, and were replaced
    retries: int = 0  # evaluations that were begun anew


class Pool(Protocol):
    """What evaluates."""

    keeps: bool  # whether it keeps something of each individual, which children take over

    @property
    def notes(self) -> list[str]:
        """For the user, in order."""

    def free(self) -> int | None:
        """How many more candidates keep the workers busy; None where any number is as good."""

    def put(self, candidates: Candidates) -> None:
        """Take these in, any number of them."""

    def take(self, timeout_s: float) -> list[Done]:
        """What has been evaluated; waits for the first, but no longer than that."""

    def out(self) -> list[Candidates]:
        """Those that were put and not taken."""

    def report(self) -> PoolReport: ...

    def metrics(self) -> dict[str, float]:
        """Further numbers for the log, by name."""

    def keep(self, individuals: Sequence[int]) -> None:
        """Of whom something may still be asked for; everybody else is forgotten."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs, those who are out apart."""

    def close(self) -> None:
        """End every process. Twice is fine."""


class KeepsNothing:
    """What a pool has that evaluates genomes and forgets them."""

    keeps = False

    def metrics(self) -> dict[str, float]:
        return {}

    def keep(self, individuals: Sequence[int]) -> None:
        """Nothing is kept."""

    def state(self) -> dict[str, Any]:
        return {}


class InprocPool(KeepsNothing):
    """Evaluates in this process and thread: all that was put as one batch, in order."""

    def __init__(
        self, evaluator: Evaluator, description: Description, seed: int, *, retries: int = 0
    ) -> None:
        self.notes: list[str] = []
        self._evaluator, self._description = evaluator, description
        self._seed, self._retries = seed, retries
        self._waiting: list[Candidates] = []
        self._began = time.perf_counter()
        self._evaluating_s = 0.0

    def free(self) -> int | None:
        return None

    def put(self, candidates: Candidates) -> None:
        self._waiting.append(candidates)

    def take(self, timeout_s: float) -> list[Done]:
        done = [d for candidates in self._waiting for d in self._evaluate(candidates)]
        self._waiting.clear()
        return done

    def out(self) -> list[Candidates]:
        return list(self._waiting)

    def report(self) -> PoolReport:
        elapsed = time.perf_counter() - self._began
        return PoolReport(workers=1, busy=1, used=self._evaluating_s / elapsed if elapsed > 0 else None)

    def close(self) -> None:
        self._waiting.clear()

    def _evaluate(self, candidates: Candidates) -> Iterator[Done]:
        began = time.perf_counter()
        seeds = evaluation_seeds(self._seed, candidates.ids)
        found = evaluate(self._evaluator, self._description, candidates.genomes, seeds, retries=self._retries)
        seconds = time.perf_counter() - began
        self._evaluating_s += seconds
        for part, results in found:
            yield done(part_of(candidates, part), results, seconds=seconds / len(found))


class SimulatedPool(KeepsNothing):
    """Many workers simulated in this process: real results, in the order in which they would end.

    Each evaluation takes `duration(id)` seconds of a clock of its own (`clock_s`), on the
    first of `workers` that is free. Nothing waits, so hours pass in seconds and exactly alike
    each time. With equal durations results come in the order of asking.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        description: Description,
        seed: int,
        *,
        workers: int,
        duration: Callable[[int], float] = lambda _: 1.0,
        retries: int = 0,
    ) -> None:
        self.notes: list[str] = []
        self.clock_s = 0.0
        self._evaluator, self._description = evaluator, description
        self._seed, self._retries = seed, retries
        self._workers, self._duration = workers, duration
        self._running: list[tuple[float, int, int, Candidates]] = []  # end, id, worker, candidate
        self._idle = list(range(workers))
        self._waiting: list[Candidates] = []
        self._evaluating_s = 0.0

    def free(self) -> int | None:
        return max(0, len(self._idle) - len(self._waiting))

    def put(self, candidates: Candidates) -> None:
        self._waiting += one_by_one(candidates)
        self._start()

    def take(self, timeout_s: float) -> list[Done]:
        if not self._running:
            return []
        self.clock_s, number, worker, candidate = heapq.heappop(self._running)
        heapq.heappush(self._idle, worker)
        self._start()
        seconds = self._duration(number)
        self._evaluating_s += seconds
        seeds = evaluation_seeds(self._seed, candidate.ids)
        [(_, results)] = evaluate(
            self._evaluator, self._description, candidate.genomes, seeds, retries=self._retries
        )
        return [done(candidate, results, seconds=seconds, worker=worker)]

    def out(self) -> list[Candidates]:
        return [candidate for *_, candidate in sorted(self._running, key=lambda r: r[1])] + self._waiting

    def report(self) -> PoolReport:
        whole = self._workers * self.clock_s
        return PoolReport(
            workers=self._workers,
            busy=len(self._running),
            used=self._evaluating_s / whole if whole > 0 else None,
        )

    def close(self) -> None:
        self._running.clear()
        self._waiting.clear()

    def _start(self) -> None:
        while self._idle and self._waiting:
            candidate = self._waiting.pop(0)
            number = int(candidate.ids[0])
            end = self.clock_s + self._duration(number)
            heapq.heappush(self._running, (end, number, heapq.heappop(self._idle), candidate))


def one_by_one(candidates: Candidates) -> list[Candidates]:
    """Each of them on its own."""
    return [part_of(candidates, slice(i, i + 1)) for i in range(len(candidates))]


def part_of(candidates: Candidates, index: slice | np.ndarray) -> Candidates:
    """Those at `index`."""
    if isinstance(index, slice) and index == slice(0, len(candidates)):
        return candidates
    return Candidates(
        ids=candidates.ids[index],
        genomes=take(candidates.genomes, index),
        parents=candidates.parents[index],
        born=candidates.born[index],
    )


def done(
    candidates: Candidates, results: Results | Failure, *, seconds: float, worker: int = 0, attempts: int = 1
) -> Done:
    """What became of them: `results` are Results or a Failure."""
    return Done(
        candidates=candidates,
        results=None if isinstance(results, Failure) else results,
        failure=results if isinstance(results, Failure) else None,
        worker=worker,
        seconds=seconds,
        attempts=attempts,
    )
