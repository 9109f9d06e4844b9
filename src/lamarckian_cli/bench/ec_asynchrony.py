"""Asynchronous evolution by a clock of its own: how busy workers are, how soon it ends, what it costs.

The workflow is the real one and so are all results; only the time that evaluations take is
made up, from a log-normal distribution of mean 1 s. So a measurement of days takes seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamarckian_cli.bench.ec_runs import evolved, igd_of, job, objectives_of, p_of, row, seeded
from lamarckian_cli.launch.evolution.job import Job
from lamarckian_cli.launch.evolution.pool import SimulatedPool
from lamarckian_cli.problems.evaluator import Evaluator
from lamarckian_cli.seeding import stream

PROBLEM = "zdt4"
POPULATION = 100
SIGMA = 1.0  # of the durations' logarithm
BARRIER, ONE_AT_A_TIME = "a barrier each generation", "one at a time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one evolution came to."""

    elapsed_s: float
    used: float  # share of the workers' time
    igd: float
    staleness_mean: float
    staleness_max: int


def asynchrony(
    *, evaluations: int, in_flight: tuple[int, ...], seeds: int, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Simulated ms of a whole NSGA-II, beside a barrier each generation, and beside one evaluation at a time.

    `p_worse` is of the rank test that IGD is worse than the rival's: a small one says that it is.
    """
    words = (f"problem={PROBLEM}", f"evo.population={POPULATION}", f"evo.evaluations={evaluations}")
    free, barrier = job(*words), job(*words, "evo.max_staleness=0")
    evaluator = free.problem.make()

    def run(evolution: Job, workers: int, name: str) -> list[Measured]:
        found = []
        for seed in range(1, seeds + 1):
            say(f"{name}, {seed} of {seeds}")
            found.append(
                _measure(seeded(evolution, seed), evaluator, workers, durations_s(evaluations, seed))
            )
        return found

    alone = run(free, 1, ONE_AT_A_TIME)
    for workers in in_flight:
        ours = run(free, workers, f"{workers} in flight")
        rivals = {BARRIER: run(barrier, workers, f"{workers} in flight, {BARRIER}"), ONE_AT_A_TIME: alone}
        for name, rival in rivals.items():
            result = _compared(f"asynchrony {workers} in flight", ours, name, rival)
            yield {**result, "evaluations": evaluations, "seeds": seeds}


def _measure(evolution: Job, evaluator: Evaluator, workers: int, durations: list[float]) -> Measured:
    front = evaluator.front()
    assert front is not None
    pool = SimulatedPool(
        evaluator,
        evaluator.describe(),
        evolution.seed,
        workers=workers,
        duration=durations.__getitem__,
    )
    collector = evolved(evolution, evaluator, pool)
    return Measured(
        elapsed_s=pool.clock_s,
        used=pool.report().used or 0.0,
        igd=igd_of(objectives_of(collector), front),
        staleness_mean=collector.staleness_mean,
        staleness_max=collector.staleness_max,
    )


def _compared(what: str, ours: list[Measured], name: str, rival: list[Measured]) -> dict[str, Any]:
    elapsed, rival_elapsed = (statistics.median(m.elapsed_s for m in some) for some in (ours, rival))
    igd, rival_igd = ([m.igd for m in some] for some in (ours, rival))
    return row(
        what,
        1000 * elapsed,
        name,
        1000 * rival_elapsed,
        sooner=rival_elapsed / elapsed,
        workers_busy=statistics.median(m.used for m in ours),
        rival_workers_busy=statistics.median(m.used for m in rival),
        igd=statistics.median(igd),
        rival_igd=statistics.median(rival_igd),
        p_worse=p_of(igd, rival_igd, "greater"),
        staleness_mean=statistics.fmean(m.staleness_mean for m in ours),
        staleness_max=max(m.staleness_max for m in ours),
    )


def durations_s(count: int, seed: int) -> list[float]:
    """Of evaluations 0, 1, ...: log-normal, of mean 1 s; the same for everybody who is compared."""
    drawn = stream(seed, "bench", "durations").standard_normal(count)
    durations: list[float] = np.exp(SIGMA * drawn - 0.5 * SIGMA**2).tolist()
    return durations
