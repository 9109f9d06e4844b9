"""Evolutions as `lamarck bench ec` runs them: the workflow of `lamarck evolve`, without a run folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lamarckian_cli.ec import indicators, pareto
from lamarckian_cli.launch.evolution.collector import Collector
from lamarckian_cli.launch.evolution.job import Job
from lamarckian_cli.launch.evolution.pool import InprocPool, Pool
from lamarckian_cli.launch.evolution.wiring import job_of
from lamarckian_cli.problems.evaluator import Evaluator

TAKE_S = 1.0  # how long a look at the workers waits


def job(*overrides: str) -> Job:
    """What `lamarck evolve` would run."""
    return job_of([*overrides, "run.dir=unused"])


def seeded(job: Job, seed: int) -> Job:
    return replace(job, seed=seed)


def evolved(job: Job, evaluator: Evaluator, pool: Pool) -> Collector:
    """The evolution, run to the end of its budget in `pool`, which stays open."""
    description = evaluator.describe()
    strategy = job.make_strategy(evaluator, description)
    collector = Collector(strategy, description, pool, job.workflow, whole=job.exact)
    while not collector.over():
        collector.step(TAKE_S)
    return collector


def evolved_here(job: Job, evaluator: Evaluator) -> np.ndarray:
    """Generation by generation in this thread; objectives [N, M] of the last population."""
    return objectives_of(evolved(job, evaluator, InprocPool(evaluator, evaluator.describe(), job.seed)))


def objectives_of(collector: Collector) -> np.ndarray:
    """Of the population [N, M], minimised."""
    return collector.strategy.population().objectives


def igd_of(objectives: np.ndarray, front: np.ndarray) -> float:
    """IGD of those of a population [N, M] whom no other dominates."""
    return indicators.igd(objectives[pareto.nondominated(objectives)], front)


def p_of(ours: Sequence[float], theirs: Sequence[float], alternative: str) -> float:
    """Of the rank test of Mann and Whitney: how likely ours would be as `greater`, or as unlike
    (`two-sided`), by chance alone."""
    from scipy.stats import mannwhitneyu

    return float(mannwhitneyu(ours, theirs, alternative=alternative).pvalue)


def cpu_ms(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU milliseconds of all threads of this process, and what `work` returns."""
    began = time.process_time()
    result = work()
    return 1000 * (time.process_time() - began), result


def row(what: str, ours_ms: float | None, rival: str, rival_ms: float | None, **more: Any) -> dict[str, Any]:
    """One result; `ratio` is our time divided by the rival's."""
    ratio = ours_ms / rival_ms if ours_ms is not None and rival_ms else None
    return {"what": what, "ours_ms": ours_ms, "rival": rival, "rival_ms": rival_ms, "ratio": ratio, **more}
