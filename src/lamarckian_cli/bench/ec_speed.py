"""What a generation of NSGA-II and a non-dominated sorting cost, beside other libraries, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import moocore
import numpy as np

from lamarckian_cli.bench.ec_peers import Pymoo
from lamarckian_cli.bench.ec_runs import cpu_ms, evolved_here, job, row, seeded
from lamarckian_cli.ec.pareto import ranks

POPULATION = 100
PROBLEMS = ("zdt1", "dtlz2")
SAMPLE_MS = 20.0  # a sorting that takes less is repeated until it has taken so long
ENOUGH_MS = 2000.0  # one that takes longer is measured once
POINTS_SEED = 1


def speed(
    pymoo: Pymoo, *, generations: int, repeat: int, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """CPU ms a generation of NSGA-II at population 100, with its evaluations, by the same code for both."""
    for name in PROBLEMS:
        evolution = job(
            f"problem={name}", f"evo.population={POPULATION}", f"evo.evaluations={POPULATION * generations}"
        )
        evaluator = evolution.problem.make()
        ours, theirs = [], []
        for number in range(repeat + 1):  # the first one warms up
            say(f"NSGA-II on {name}, {number} of {repeat}")
            ours.append(cpu_ms(partial(evolved_here, seeded(evolution, number), evaluator))[0])
            if not pymoo.missing:
                run = partial(
                    pymoo.nsga2, evaluator, population=POPULATION, generations=generations, seed=number
                )
                theirs.append(cpu_ms(run)[0])
        yield row(
            f"nsga2 {name}",
            statistics.median(ours[1:]) / generations,
            pymoo.name,
            statistics.median(theirs[1:]) / generations if theirs else None,
            population=POPULATION,
            generations=generations,
        )


def sorting(
    pymoo: Pymoo,
    *,
    sizes: tuple[int, ...],
    objectives: tuple[int, ...],
    repeat: int,
    say: Callable[[str], None],
) -> Iterator[dict[str, Any]]:
    """CPU ms of ranking points that are uniform in the cube, beside bare `moocore.pareto_rank` and pymoo."""
    rivals: dict[str, Callable[[np.ndarray], Any] | None] = {"moocore": moocore.pareto_rank}
    rivals |= {pymoo.name: None} if pymoo.missing else pymoo.sorting()
    for m in objectives:
        for n in sizes:
            points = np.random.default_rng(POINTS_SEED).random((n, m))
            for rival, sort in rivals.items():
                say(f"sorting {n:,} points of {m} objectives, beside {rival}")
                ours, theirs = _in_turns(points, sort, repeat)
                yield row(f"sorting {n} x {m}", ours, rival, theirs, points=n, objectives=m)


def _in_turns(
    points: np.ndarray, sort: Callable[[np.ndarray], Any] | None, repeat: int
) -> tuple[float, float | None]:
    """Medians of ours and theirs; theirs is None without a rival."""
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(repeat):
        ours.append(_call_ms(ranks, points))
        if sort is not None and (not theirs or theirs[0] < ENOUGH_MS):
            theirs.append(_call_ms(sort, points))
    return statistics.median(ours), statistics.median(theirs) if theirs else None


def _call_ms(sort: Callable[[np.ndarray], Any], points: np.ndarray) -> float:
    """CPU ms of one call: the mean of as many as take SAMPLE_MS, after one that is not counted."""
    first, _ = cpu_ms(partial(sort, points))
    if first > SAMPLE_MS:
        return first
    calls = max(1, round(SAMPLE_MS / max(first, 0.01)))
    return cpu_ms(lambda: [sort(points) for _ in range(calls)])[0] / calls
