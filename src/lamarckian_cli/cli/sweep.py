"""What the jobs of a sweep came to: a table for people, a document for scripts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lamarckian_cli.cli.failure import report, told
from lamarckian_cli.cli.output import print_table

if TYPE_CHECKING:
    from lamarckian_cli.launch.wiring import Ended


def sweep_document(jobs: Sequence[Ended]) -> dict[str, Any]:
    """Each job in its turn: its overrides, and its summary or its `error`."""
    return {
        "jobs": [
            {"overrides": job.overrides, **({"error": told(job.error)} if job.error else job.summary)}
            for job in jobs
        ]
    }


@dataclass(frozen=True)
class Comparison:
    """What the jobs of a command are compared by."""

    columns: tuple[str, ...]  # keys of the summary, as the table has them
    best: bool  # whether one of them can be called the best


TRAINING = Comparison(("best_return", "last_return"), best=True)
# Numbers of several problems, or of a strategy under several seeds, do not say which job is best.
EVOLUTION = Comparison(("evaluations", "best", "hypervolume", "igd", "seconds"), best=False)


def print_sweep(jobs: Sequence[Ended], by: Comparison = TRAINING) -> None:
    """A row for each job, and which one was best; nothing where there is nothing to compare."""
    from lamarckian_cli.launch.display import next_commands

    finished = [job for job in jobs if not job.error]
    if len(jobs) < 2 or not finished:
        return
    columns = [key for key in by.columns if any(job.summary.get(key) is not None for job in finished)]
    if by.best:
        columns = list(by.columns)
    print_table(
        ["job", *(column.replace("_", " ") for column in columns), "run"],
        [[_name(job, jobs), *(job.summary.get(c) for c in columns), _place(job)] for job in jobs],
        # A run's path is there to be copied, so it stays whole; why a job failed may break.
        fold=(0, len(columns) + 1) if len(finished) < len(jobs) else (0,),
    )
    best = max(finished, key=_score)
    if by.best and _score(best) > -math.inf:
        print(f"the best is {_name(best, jobs)}\n  {next_commands(Path(best.summary['run']))[0]}")


def report_failures(jobs: Sequence[Ended]) -> int:
    """Print how many jobs failed and why the first one did; the exit status, 0 where none failed."""
    failed = [job for job in jobs if job.error]
    if not failed:
        return 0
    first = failed[0]
    before = f"{len(failed)} of {len(jobs)} jobs failed; {_name(first, jobs)}: " if len(jobs) > 1 else ""
    assert first.error is not None
    return report(first.error, before)


def _name(job: Ended, jobs: Sequence[Ended]) -> str:
    """The overrides of a job that not all of them have."""
    shared = set.intersection(*(set(other.overrides or ()) for other in jobs))
    return " ".join(word for word in job.overrides or () if word not in shared)


def _place(job: Ended) -> str:
    """Where the job's run is, as it can be typed here; or why there is none."""
    from lamarckian_cli.launch.display import shown_path

    return f"failed: {told(job.error)}" if job.error else shown_path(Path(job.summary["run"]))


def _score(job: Ended) -> float:
    """The best mean return; the last one where no window of matches was ever full."""
    found = [job.summary.get(key) for key in ("best_return", "last_return")]
    return next((float(value) for value in found if value is not None), -math.inf)
