"""`summary.json` of an evolution: what it came to, on what it ran, and the command that repeats it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from lamarckian_cli.launch.evolution.collector import Collector
from lamarckian_cli.launch.evolution.job import Job
from lamarckian_cli.launch.evolution.pool import PoolReport
from lamarckian_cli.launch.evolution.quality import Numbers, Quality
from lamarckian_cli.launch.summary import git_state, package_versions
from lamarckian_cli.metrics import finite


def summarize(
    job: Job, collector: Collector, numbers: Numbers, report: PoolReport, seconds: float, quality: Quality
) -> dict[str, Any]:
    """The document, without NaN or infinities; `best`, `igd` and `hypervolume` where they exist."""
    summary: dict[str, Any] = {
        "evaluations": collector.evaluations,
        "generations": collector.strategy.generation,
        "failed": collector.failed,
        "seconds": round(seconds, 3),
        "evaluations_per_s": collector.evaluations / seconds if seconds > 0 else None,
    }
    if quality.single:
        summary["best"] = numbers.best
        if quality.optimum is not None:
            summary["optimum"] = quality.optimum
    else:
        summary["hypervolume"] = numbers.hypervolume
        if quality.front is not None:
            people = collector.individuals()
            summary["igd"] = numbers.igd
            summary |= quality.distances(people.objectives[people.violation <= 0])
        if quality.reference is not None:
            summary["hypervolume_reference"] = (quality.reference * quality.signs).tolist()
    summary |= {
        "front_size": numbers.front_size,
        **collector.strategy.numbers(),
        "workers": report.workers,
        "workers_busy": report.used,
        "worker_restarts": report.restarts,
        "retries": report.retries,
        "staleness_mean": collector.staleness_mean,
        "staleness_max": collector.staleness_max,
        "end": collector.over(),
        "seed": job.seed,
    }
    git = git_state(Path.cwd())
    if git is not None:
        summary["git"] = git
    summary["packages"] = package_versions()
    summary["command"] = shlex.join(job.command_line)
    result: dict[str, Any] = finite(summary)
    return result
