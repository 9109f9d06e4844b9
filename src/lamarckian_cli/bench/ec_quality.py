"""How near NSGA-II comes to the known fronts, beside pymoo. Takes minutes.

Population 100, 25,000 evaluations (DTLZ3: 50,000), three objectives on DTLZ; what counts are the
non-dominated ones of the last population.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lamarckian_cli.bench.ec_peers import Pymoo
from lamarckian_cli.bench.ec_runs import cpu_ms, evolved_here, igd_of, job, p_of, row, seeded
from lamarckian_cli.launch.evolution.job import Job
from lamarckian_cli.problems.evaluator import Evaluator

POPULATION = 100
GENERATIONS = {"dtlz3": 500}
USUAL_GENERATIONS = 250
PROBLEMS = (
    *("zdt1", "zdt2", "zdt3", "zdt4", "zdt6"),
    *("dtlz1", "dtlz2", "dtlz3", "dtlz4", "dtlz5", "dtlz6", "dtlz7"),
)
CROSSOVERS = ("sbx", "sbx_clamped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Of one library or setting: a number for each seed."""

    generation_ms: list[float]  # CPU
    igd: list[float]


def quality(
    pymoo: Pymoo, *, problems: tuple[str, ...], seeds: int, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Median IGD, beside pymoo with Deb's settings, whose SBX keeps to the bounds.

    `p_worse` is of the rank test that our IGD is greater; a small one says that it is.
    """
    for name in problems:
        generations = GENERATIONS.get(name, USUAL_GENERATIONS)
        evaluator = _evolution(name, generations, CROSSOVERS[0]).problem.make()
        theirs = None
        if not pymoo.missing:
            peer = partial(_run_peer, pymoo, evaluator, generations)
            theirs = _scores(peer, evaluator, generations, seeds, partial(_say, say, name, pymoo.name, seeds))
        for crossover in CROSSOVERS:
            run = partial(_run, _evolution(name, generations, crossover), evaluator)
            ours = _scores(run, evaluator, generations, seeds, partial(_say, say, name, crossover, seeds))
            yield _compared(f"quality {name} {crossover}", ours, pymoo.name, theirs, generations)


def _evolution(name: str, generations: int, crossover: str) -> Job:
    return job(
        f"problem={name}",
        f"evo.population={POPULATION}",
        f"evo.evaluations={POPULATION * generations}",
        f"evo.variation.crossover={crossover}",
    )


def _scores(
    run: Callable[[int], np.ndarray],
    evaluator: Evaluator,
    generations: int,
    seeds: int,
    say: Callable[[int], None],
) -> Scores:
    """Of what `run(seed)` leaves, objectives [N, M]."""
    front = evaluator.front()
    assert front is not None
    generation_ms, igd = [], []
    for seed in range(1, seeds + 1):
        say(seed)
        milliseconds, objectives = cpu_ms(partial(run, seed))
        generation_ms.append(milliseconds / generations)
        igd.append(igd_of(objectives, front))
    return Scores(generation_ms=generation_ms, igd=igd)


def _run(evolution: Job, evaluator: Evaluator, seed: int) -> np.ndarray:
    return evolved_here(seeded(evolution, seed), evaluator)


def _run_peer(pymoo: Pymoo, evaluator: Evaluator, generations: int, seed: int) -> np.ndarray:
    return pymoo.nsga2(evaluator, population=POPULATION, generations=generations, seed=seed)


def _say(say: Callable[[str], None], problem: str, who: str, seeds: int, seed: int) -> None:
    say(f"NSGA-II on {problem}, {who}, {seed} of {seeds}")


def _compared(what: str, ours: Scores, name: str, theirs: Scores | None, generations: int) -> dict[str, Any]:
    return row(
        what,
        statistics.median(ours.generation_ms),
        name,
        None if theirs is None else statistics.median(theirs.generation_ms),
        igd=statistics.median(ours.igd),
        rival_igd=None if theirs is None else statistics.median(theirs.igd),
        p_worse=None if theirs is None else p_of(ours.igd, theirs.igd, "greater"),
        evaluations=POPULATION * generations,
        seeds=len(ours.igd),
    )
