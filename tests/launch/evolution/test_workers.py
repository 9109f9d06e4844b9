"""The pool of workers, its processes played by the test: who gets what, and what a fault costs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from evolving import Bowl, some

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.evolution.evaluation import Done, Failure, evaluate, evaluation_seeds
from lamarckian_cli.launch.evolution.messages import pack_results, unpack_work
from lamarckian_cli.launch.evolution.workers import LOOK_S, SHORT_S, WorkerPool
from lamarckian_cli.transport.exchange import Exchange, ExchangeWorker

WAIT_S = 20.0  # far beyond what anything here takes
SEED = 5


class Crew:
    """Processes that are ends of the exchange in this thread; `die` ends one."""

    def __init__(self, exchange: Exchange, number: int) -> None:
        self.exchange, self.notes = exchange, []
        self.workers: dict[str, ExchangeWorker] = {}
        self.dead: dict[str, str] = {}
        self.started = 0
        for _ in range(number):
            self.start()

    @property
    def names(self) -> list[str]:
        return list(self.workers)

    def start(self) -> None:
        name = f"worker {self.started}"
        self.started += 1
        self.workers[name] = ExchangeWorker(self.exchange.uri, name=name, timeout_s=WAIT_S)

    def die(self, name: str, reason: str) -> None:
        self.dead[name] = reason

    def look(self) -> dict[str, str]:
        dead, self.dead = self.dead, {}
        for name in dead:
            self.replace(name)
        return dead

    def replace(self, name: str) -> None:
        self.workers.pop(name).close()
        self.start()

    def stop(self) -> None:
        for worker in self.workers.values():
            worker.close()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Place:
    """A pool with its crew; `answer` plays a worker for one candidate."""

    def __init__(self, exchange: Exchange, workers: int = 2, **settings) -> None:
        self.crew, self.clock, self.problem = Crew(exchange, workers), Clock(), Bowl()
        keys = {"retries": 1, "deadline_s": None, "restart_limit": 10, **settings}
        self.pool = WorkerPool(self.crew, SEED, clock=self.clock, **keys)

    def answer(self, name: str, *, seconds: float = 1.0, failure: Failure | None = None) -> int:
        """Evaluate what the worker has got; the number of its order."""
        message = self.crew.workers[name].receive(WAIT_S)
        assert message is not None
        order, genomes, seeds = unpack_work(message)
        [(_, results)] = evaluate(self.problem, self.problem.describe(), genomes, seeds)
        self.crew.workers[name].send(pack_results(order, failure or results, seconds))
        return order

    def idle(self, name: str) -> bool:
        return self.crew.workers[name].receive(0.05) is None

    def look(self) -> list[Done]:
        """Time passes, so that the pool looks after its workers."""
        self.clock.now += LOOK_S
        return self.pool.take(0)

    def take(self) -> list[Done]:
        """Of what was answered."""
        return self.pool.take(WAIT_S)


@pytest.fixture
def exchange() -> Iterator[Exchange]:
    folder = Path(tempfile.mkdtemp(prefix="pool-"))
    with closing(Exchange(f"ipc://{folder}/work")) as made:
        yield made
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def place(exchange: Exchange) -> Iterator[Place]:
    made = Place(exchange)
    yield made
    made.pool.close()


def test_results_come_back_with_their_candidate_in_any_order(place: Place) -> None:
    candidates = some(2, start=7)
    place.pool.put(candidates)
    seen = []
    for name in ("worker 1", "worker 0"):
        place.answer(name, seconds=0.5)
        [done] = place.take()
        assert done.results is not None
        assert done.failure is None
        at = int(done.candidates.ids[0]) - 7
        np.testing.assert_array_equal(done.candidates.genomes["x"][0], candidates.genomes["x"][at])
        expected = place.problem.evaluate({"x": candidates.genomes["x"][at : at + 1]}, np.zeros(1))
        np.testing.assert_array_equal(done.results.objectives, expected.objectives)
        assert (done.worker, done.seconds, done.attempts) == (int(name[-1]), 0.5, 1)
        seen.append(at)
    assert seen == [1, 0]
    assert not place.pool.out()


def test_seeds_do_not_depend_on_the_worker(place: Place) -> None:
    place.pool.put(some(2, start=40))
    got = []
    for worker in place.crew.workers.values():
        message = worker.receive(WAIT_S)
        assert message is not None
        got.append(int(unpack_work(message)[2][0]))
    assert got == evaluation_seeds(SEED, np.arange(40, 42)).tolist()


def test_a_second_candidate_is_handed_out_ahead_only_where_evaluations_are_short(place: Place) -> None:
    assert place.pool.free() == 2
    place.pool.put(some(2))
    assert place.pool.free() == 0
    place.answer("worker 0", seconds=2 * SHORT_S)
    place.take()
    assert place.pool.free() == 1
    place.answer("worker 1", seconds=0.0)
    place.take()
    for _ in range(20):  # until the mean is short
        if place.pool.free() == 4:
            break
        place.pool.put(some(1))
        place.answer("worker 0", seconds=0.0)
        place.take()
    assert place.pool.free() == 4
    place.pool.put(some(6))
    assert [len(c) for c in place.pool.out()] == [1] * 6
    for worker in place.crew.workers.values():
        assert worker.receive(WAIT_S) is not None
        assert worker.receive(WAIT_S) is not None
        assert worker.receive(0.05) is None


def test_what_a_dead_worker_was_at_is_begun_elsewhere(place: Place) -> None:
    place.pool.put(some(2))
    place.crew.die("worker 0", "killed by signal 9")
    assert place.look() == []
    assert len(place.pool.out()) == 2
    order = place.answer("worker 2")
    [again] = place.take()
    assert (order, again.attempts, again.worker) == (0, 2, 2)
    place.answer("worker 1")
    [other] = place.take()
    assert other.attempts == 1
    report = place.pool.report()
    assert (report.restarts, report.retries, report.workers) == (1, 1, 2)


def test_it_has_failed_when_its_tries_are_spent(exchange: Exchange) -> None:
    place = Place(exchange, workers=1)
    place.pool.put(some(1))
    place.crew.die("worker 0", "killed by signal 9")
    assert place.look() == []
    place.crew.die("worker 1", "killed by signal 11")
    [done] = place.look()
    assert done.results is None
    assert done.failure is not None
    assert done.failure.error == "worker 1 died: killed by signal 11"
    assert done.attempts == 2
    assert not place.pool.out()
    place.pool.close()


def test_a_hung_evaluation_ends_its_worker_at_the_deadline_and_no_other(exchange: Exchange) -> None:
    place = Place(exchange, deadline_s=5.0)
    place.pool.put(some(2))
    place.clock.now += 4.9
    assert place.pool.take(0) == []
    place.answer("worker 1")
    assert len(place.take()) == 1
    place.clock.now += 0.2
    assert place.pool.take(0) == []
    assert place.crew.names == ["worker 1", "worker 2"]
    # The other worker has it now, and hangs as well.
    place.look()
    assert not place.idle("worker 1") or not place.idle("worker 2")
    place.clock.now += 5.0
    [done] = place.pool.take(0)
    assert done.failure is not None
    assert done.failure.error == "it took more than evo.deadline_s=5"
    assert done.attempts == 2
    place.pool.close()


def test_what_waits_behind_a_hung_one_goes_to_others_without_spending_a_try(exchange: Exchange) -> None:
    place = Place(exchange, workers=1, deadline_s=5.0, retries=0)
    place.pool.put(some(1))
    place.answer("worker 0", seconds=0.0)
    place.take()
    assert place.pool.free() == 2
    place.pool.put(some(2, start=1))
    place.clock.now += 5.0
    found = place.pool.take(0)
    assert [int(d.candidates.ids[0]) for d in found] == [1]
    place.look()
    place.answer("worker 1")
    [done] = place.take()
    assert int(done.candidates.ids[0]) == 2
    assert done.failure is None
    assert done.attempts == 1
    place.pool.close()


def test_one_that_raises_is_tried_again_and_keeps_its_error(place: Place) -> None:
    place.pool.put(some(1))
    broken = Failure(error="ValueError: no (game.py, line 3)", trace="Traceback ...")
    place.answer("worker 0", failure=broken)
    assert place.take() == []
    place.answer("worker 0", failure=broken)
    [done] = place.take()
    assert done.failure == broken
    assert done.attempts == 2


def test_lost_workers_end_it_where_nothing_is_evaluated_between(exchange: Exchange) -> None:
    place = Place(exchange, workers=1, restart_limit=3, retries=100)
    place.pool.put(some(1))
    for n in range(3):
        place.crew.die(f"worker {n}", "no memory")
        place.look()
        place.look()
    place.answer("worker 3")
    assert len(place.take()) == 1
    place.pool.put(some(1))
    for n in range(3, 6):
        place.crew.die(f"worker {n}", "no memory")
        place.look()
    place.crew.die("worker 6", "no memory")
    with pytest.raises(ClusterError, match=r"4 workers were lost .* the last: worker 6 died: no memory"):
        place.look()
    place.pool.close()


def test_the_time_of_workers_is_counted_as_used_or_not(exchange: Exchange) -> None:
    place = Place(exchange)
    place.pool.put(some(2))
    place.clock.now += 10.0
    place.answer("worker 0", seconds=10.0)
    place.take()
    place.clock.now += 10.0
    report = place.pool.report()
    # One was busy for 10 of 20 seconds and has the rest free; the other is at its first still.
    assert report.used == pytest.approx(30 / 40)
    assert (report.busy, report.workers) == (1, 2)
    place.pool.close()
