"""The pool of worker processes: hands candidates out one by one, and deals with those that go wrong.

An evaluation that raises, hangs beyond `evo.deadline_s`, or takes its worker down with it is
begun anew elsewhere, `evo.retries` times; then it has failed. A worker that hangs is ended and
replaced; what waited in its queue goes to others. Where evaluations are short a worker holds
a second candidate, so that it never waits for the next.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from lamarckian_cli.errors import ClusterError, TransportError
from lamarckian_cli.evolution.strategy import Candidates
from lamarckian_cli.launch.evolution.evaluation import Done, Failure, evaluation_seeds
from lamarckian_cli.launch.evolution.messages import pack_work, unpack_results
from lamarckian_cli.launch.evolution.pool import KeepsNothing, PoolReport, done, one_by_one
from lamarckian_cli.problems.evaluator import Results
from lamarckian_cli.transport.exchange import Exchange

LOOK_S = 0.2  # how often it is looked who died
SHORT_S = 0.2  # evaluations that take less are handed out ahead
MEMORY = 0.9  # of the running mean of how long evaluations take


class Processes(Protocol):
    """What the pool needs of a `Crew`."""

    exchange: Exchange
    notes: list[str]

    @property
    def names(self) -> list[str]: ...
    def look(self) -> dict[str, str]: ...
    def replace(self, name: str) -> None: ...
    def stop(self) -> None: ...


@dataclass(eq=False, slots=True)
class Order:
    """One candidate on its way."""

    number: int
    candidate: Candidates
    attempts: int = 0  # that ended without results


@dataclass(eq=False, slots=True)
class Worker:
    """One worker, as the pool knows it."""

    since: float  # it has been there
    orders: deque[Order] = field(default_factory=deque)  # the first is being evaluated, ...
    began: float = 0.0  # ... from then on


class WorkerPool(KeepsNothing):
    """Evaluates on the workers of a crew."""

    def __init__(
        self,
        crew: Processes,
        seed: int,
        *,
        retries: int,
        deadline_s: float | None,
        restart_limit: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`restart_limit`: workers that may die or hang one after the other, without a result between."""
        self.notes = crew.notes
        self._crew, self._exchange, self._seed = crew, crew.exchange, seed
        self._retries, self._deadline_s, self._restart_limit = retries, deadline_s, restart_limit
        self._clock = clock
        self._waiting: deque[Order] = deque()
        self._workers: dict[str, Worker] = {}
        self._failed: list[Done] = []  # to be taken
        self._next = 0
        self._mean_s: float | None = None
        self._looked_at = -LOOK_S
        self._restarts, self._restarts_in_a_row, self._again = 0, 0, 0
        self._evaluating_s = 0.0
        self._present_s = 0.0  # of workers that are gone
        self._take_in_workers()

    def free(self) -> int | None:
        out = len(self._waiting) + sum(len(worker.orders) for worker in self._workers.values())
        return max(0, len(self._crew.names) * self._depth() - out)

    def put(self, candidates: Candidates) -> None:
        for candidate in one_by_one(candidates):
            self._waiting.append(Order(self._next, candidate))
            self._next += 1
        self._hand_out()

    def take(self, timeout_s: float) -> list[Done]:
        if self._clock() - self._looked_at >= LOOK_S:
            self._look()
        self._end_late()
        found, self._failed = self._failed, []
        item = self._exchange.receive(0 if found else self._patience_s(timeout_s))
        while item is not None:
            name, message = item
            found += self._arrived(name, *unpack_results(message))
            item = self._exchange.receive(0)
        self._hand_out()
        return found

    def out(self) -> list[Candidates]:
        orders = [order for worker in self._workers.values() for order in worker.orders]
        return [order.candidate for order in sorted([*orders, *self._waiting], key=lambda o: o.number)]

    def report(self) -> PoolReport:
        now = self._clock()
        busy = [worker for worker in self._workers.values() if worker.orders]
        whole = self._present_s + sum(now - worker.since for worker in self._workers.values())
        spent = self._evaluating_s + sum(now - worker.began for worker in busy)
        return PoolReport(
            workers=len(self._crew.names),
            busy=len(busy),
            used=min(1.0, spent / whole) if whole > 0 else None,
            restarts=self._restarts,
            retries=self._again,
        )

    def close(self) -> None:
        self._crew.stop()

    # -------------------------------------------------------------- handing out, taking in

    def _depth(self) -> int:
        return 2 if self._mean_s is not None and self._mean_s < SHORT_S else 1

    def _hand_out(self) -> None:
        for depth in range(self._depth()):
            for name, worker in self._workers.items():
                if not self._waiting:
                    return
                if len(worker.orders) == depth:
                    self._send(name, worker, self._waiting.popleft())

    def _send(self, name: str, worker: Worker, order: Order) -> None:
        seeds = evaluation_seeds(self._seed, order.candidate.ids)
        if not self._exchange.send(name, pack_work(order.number, order.candidate.genomes, seeds)):
            self._waiting.appendleft(order)  # it left; the next look finds that out
            return
        if not worker.orders:
            worker.began = self._clock()
        worker.orders.append(order)

    def _arrived(self, name: str, number: int, results: Results | Failure, seconds: float) -> list[Done]:
        worker = self._workers.get(name)
        if worker is None or not worker.orders or worker.orders[0].number != number:
            return []  # of a worker that was given up: its order is with another one
        order = worker.orders.popleft()
        worker.began = self._clock()
        self._evaluating_s += seconds
        if isinstance(results, Failure):
            return self._again_or_failed(order, results, name, seconds)
        self._restarts_in_a_row = 0
        self._mean_s = seconds if self._mean_s is None else MEMORY * self._mean_s + (1 - MEMORY) * seconds
        return [
            done(
                order.candidate,
                results,
                seconds=seconds,
                worker=_number(name),
                attempts=order.attempts + 1,
            )
        ]

    def _again_or_failed(self, order: Order, failure: Failure, name: str, seconds: float) -> list[Done]:
        order.attempts += 1
        if order.attempts <= self._retries:
            self._again += 1
            self._waiting.append(order)
            return []
        return [
            done(order.candidate, failure, seconds=seconds, worker=_number(name), attempts=order.attempts)
        ]

    # -------------------------------------------------------------- what goes wrong

    def _patience_s(self, timeout_s: float) -> float:
        """How long to wait for results before it has to be looked at something else."""
        wait_s = min(timeout_s, LOOK_S)
        if self._deadline_s is not None:
            began = [worker.began for worker in self._workers.values() if worker.orders]
            if began:
                wait_s = min(wait_s, min(began) + self._deadline_s - self._clock())
        return max(0.0, wait_s)

    def _look(self) -> None:
        self._looked_at = self._clock()
        for name, reason in self._crew.look().items():
            self._give_up(name, Failure(error=f"{name} died: {reason}"))
        for name in self._exchange.rejoined():  # what was under way on its connection is lost
            self._crew.replace(name)
            self._give_up(name, None)
        self._take_in_workers()

    def _end_late(self) -> None:
        """End the workers whose evaluation takes too long."""
        if self._deadline_s is None:
            return
        now = self._clock()
        late = [n for n, w in self._workers.items() if w.orders and now - w.began >= self._deadline_s]
        for name in late:
            self._crew.replace(name)
            self._give_up(name, Failure(error=f"it took more than evo.deadline_s={self._deadline_s:g}"))

    def _give_up(self, name: str, failure: Failure | None) -> None:
        """A worker is gone. With a `failure` the order that it was at is to blame, and has spent a try."""
        self._restarts += 1
        worker = self._workers.pop(name, None)
        if worker is not None:
            now = self._clock()
            self._present_s += now - worker.since
            seconds = now - worker.began if worker.orders else 0.0
            self._evaluating_s += seconds
            if worker.orders and failure is not None:
                order = worker.orders.popleft()
                self._failed += self._again_or_failed(order, failure, name, seconds)
            self._waiting.extendleft(reversed(worker.orders))
        self._restarts_in_a_row += 1
        if self._restarts_in_a_row > self._restart_limit:
            reason = f"{name} lost its connection" if failure is None else failure.error
            raise ClusterError(
                f"{self._restarts_in_a_row} workers were lost one after the other, more than "
                f"cluster.restart_limit={self._restart_limit}, and nothing was evaluated meanwhile; "
                f"the last: {reason}"
            )

    def _take_in_workers(self) -> None:
        present = self._exchange.present()
        for name in self._crew.names:
            if name in present and name not in self._workers:
                self._workers[name] = Worker(since=self._clock())


def _number(name: str) -> int:
    digits = name.rpartition(" ")[2]
    if not digits.isdigit():
        raise TransportError(f"a worker called {name!r}; names end with a number")
    return int(digits)
