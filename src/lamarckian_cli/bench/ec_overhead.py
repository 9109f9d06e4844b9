"""What an evaluation that costs nothing takes over Ray: our workers beside plain calls of Ray actors."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lamarckian_cli.bench.ec_runs import evolved, job, row, seeded
from lamarckian_cli.ec.coding import Genomes
from lamarckian_cli.evolution.strategy import Candidates
from lamarckian_cli.launch import ray_calls, ray_cluster
from lamarckian_cli.launch.evolution.crew import Crew
from lamarckian_cli.launch.evolution.evaluation import Done, evaluation_seeds
from lamarckian_cli.launch.evolution.job import Job
from lamarckian_cli.launch.evolution.pool import KeepsNothing, Pool, PoolReport, done, one_by_one
from lamarckian_cli.launch.evolution.workers import WorkerPool
from lamarckian_cli.problems.evaluator import Evaluator, Results

PROBLEM = "zdt1"
MOST_WORKERS = 2
DEPTH = 2  # evaluations that a worker is given: one is under way while the next one waits, as in our pool
START_TIMEOUT_S = 240.0
LOSSES = 10  # of workers


def overhead(*, evaluations: int, repeat: int, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Wall ms an evaluation of a whole NSGA-II, where genomes go out and results come back one by one."""
    workers = min(MOST_WORKERS, ray_cluster.available_cores())
    evolution = job(
        f"problem={PROBLEM}",
        f"evo.evaluations={evaluations}",
        "cluster=local",
        f"cluster.actors={workers}",
        f"cluster.start_timeout_s={START_TIMEOUT_S}",
    )
    evaluator = evolution.problem.make()
    say("starting Ray")
    crew = Crew(evolution, threading.Event())
    try:
        crew.start()
        pools: tuple[Pool, Pool] = (
            WorkerPool(crew, evolution.seed, retries=0, deadline_s=None, restart_limit=LOSSES),
            RayPool(evolution, workers),
        )
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(repeat + 1):  # the first one warms up
            say(f"evaluations over Ray, {number} of {repeat}")
            for pool, taken in zip(pools, times, strict=True):
                began = time.perf_counter()
                evolved(seeded(evolution, number), evaluator, pool)
                taken.append(1000 * (time.perf_counter() - began) / evaluations)
    finally:
        crew.stop()
    ours, theirs = (statistics.median(taken[1:]) for taken in times)
    yield row("overhead", ours, RayPool.name, theirs, workers=workers, evaluations=evaluations)


class RayPool(KeepsNothing):
    """Evaluates on Ray actors by calls with a genome, as one would without a transport."""

    name = "ray calls"

    def __init__(self, evolution: Job, workers: int) -> None:
        self.notes: list[str] = []
        self._ray, self._seed = ray_calls.ray(), evolution.seed
        made = self._ray.remote(RayEvaluator).options(num_cpus=0)
        self._actors = [made.remote(evolution) for _ in range(workers)]
        self._ray.get([actor.ready.remote() for actor in self._actors], timeout=START_TIMEOUT_S)
        self._idle = list(range(workers)) * DEPTH
        self._waiting: list[Candidates] = []
        self._running: dict[Any, tuple[int, Candidates]] = {}  # by the reference of its call

    def free(self) -> int | None:
        return len(self._idle) - len(self._waiting)

    def put(self, candidates: Candidates) -> None:
        self._waiting += one_by_one(candidates)
        self._start()

    def take(self, timeout_s: float) -> list[Done]:
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=timeout_s)
        found = []
        for reference in ready:
            worker, candidate = self._running.pop(reference)
            self._idle.append(worker)
            found.append(done(candidate, self._ray.get(reference), seconds=0.0, worker=worker))
        self._start()
        return found

    def out(self) -> list[Candidates]:
        return [candidate for _, candidate in self._running.values()] + self._waiting

    def report(self) -> PoolReport:
        return PoolReport(workers=len(self._actors), busy=len(self._running), used=None)

    def close(self) -> None:
        """Its actors end with Ray."""

    def _start(self) -> None:
        while self._idle and self._waiting:
            worker, candidate = self._idle.pop(0), self._waiting.pop(0)
            seeds = evaluation_seeds(self._seed, candidate.ids)
            reference = self._actors[worker].evaluate.remote(candidate.genomes, seeds)
            self._running[reference] = (worker, candidate)


class RayEvaluator:
    """One Ray actor with an evaluator of its own."""

    def __init__(self, evolution: Job) -> None:
        self._evaluator: Evaluator = evolution.problem.make()

    def ready(self) -> None:
        """Answered when it runs."""

    def evaluate(self, genomes: Genomes, seeds: np.ndarray) -> Results:
        return self._evaluator.evaluate(genomes, seeds)
