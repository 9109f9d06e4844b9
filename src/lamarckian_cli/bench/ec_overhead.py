"""What an evaluation that costs nothing takes over Ray: the workflow beside plain calls of Ray actors."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from lamarckian_cli.bench.ec_runs import evolved, job, row, seeded
from lamarckian_cli.evolution.strategy import Candidates
from lamarckian_cli.launch import ray_cluster
from lamarckian_cli.launch.evolution.collector import Collector
from lamarckian_cli.launch.evolution.crew import Crew
from lamarckian_cli.launch.evolution.evaluation import Done, evaluation_seeds
from lamarckian_cli.launch.evolution.job import EvaluatorFactory, Job
from lamarckian_cli.launch.evolution.pool import PoolReport, done, one_by_one
from lamarckian_cli.launch.evolution.workers import WorkerPool
from lamarckian_cli.problems.evaluator import Results

PROBLEM = "zdt1"
MOST_WORKERS = 2
IN_FLIGHT = 2  # calls of each Ray actor: one is evaluated while the next one is on its way
TIMEOUT_S = 60.0
RESTARTS = 10


def overhead(*, evaluations: int, repeat: int, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Wall ms an evaluation of a whole NSGA-II, genomes out and results back one by one."""
    workers = min(MOST_WORKERS, ray_cluster.available_cores())
    evolution = job(
        f"problem={PROBLEM}",
        f"evo.evaluations={evaluations}",
        "cluster=local",
        f"cluster.actors={workers}",
        "cluster.start_timeout_s=240",
    )
    say("starting Ray")
    crew = Crew(evolution, threading.Event())
    try:
        crew.start()
        ours_pool = WorkerPool(crew, 0, retries=0, deadline_s=None, restart_limit=RESTARTS)
        rival_pool = RayPool(evolution.problem, workers)
        ours, theirs, use = [], [], []
        for number in range(repeat + 1):  # the first one warms up
            say(f"overhead over Ray, {number} of {repeat}")
            milliseconds, collector = _wall_ms(seeded(evolution, number), ours_pool)
            ours.append(milliseconds / collector.evaluations)
            milliseconds, collector = _wall_ms(seeded(evolution, number), rival_pool)
            theirs.append(milliseconds / collector.evaluations)
    finally:
        crew.stop()
    del use
    yield row(
        f"overhead {PROBLEM}",
        statistics.median(ours[1:]),
        "ray calls",
        statistics.median(theirs[1:]),
        workers=workers,
        evaluations=evaluations,
    )
