"""`lamarck bench ec`: what evolution itself costs and reaches, each figure beside a rival's in the same run.

speed        CPU time of a generation of NSGA-II, beside pymoo
sorting      CPU time of non-dominated sorting, beside bare moocore and pymoo
overhead     wall time of an evaluation that costs nothing, over Ray, beside plain Ray calls
asynchrony   simulated time of an evolution, beside a barrier each generation
quality      how near NSGA-II comes to known fronts, beside pymoo; takes minutes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lamarckian_cli.bench.ec_asynchrony import asynchrony
from lamarckian_cli.bench.ec_overhead import overhead
from lamarckian_cli.bench.ec_peers import Pymoo
from lamarckian_cli.bench.ec_quality import PROBLEMS, quality
from lamarckian_cli.bench.ec_speed import sorting, speed
from lamarckian_cli.bench.machine import machine
from lamarckian_cli.errors import require
from lamarckian_cli.launch.process import limit_threads

WHAT = ("speed", "sorting", "overhead", "asynchrony", "quality")
USUAL = WHAT[:-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be measured; ConfigError where that cannot be."""

    what: tuple[str, ...] = USUAL
    repeat: int = 5  # of speed, sorting and overhead
    seeds: int = 11  # of asynchrony and quality
    in_flight: tuple[int, ...] = (16,)
    generations: int = 250  # of population 100
    evaluations: int = 5000  # over Ray
    simulated: int = 25_000  # evaluations of asynchrony
    sizes: tuple[int, ...] = (1000, 5000, 20_000)
    objectives: tuple[int, ...] = (2, 3, 10)
    problems: tuple[str, ...] = PROBLEMS

    def __post_init__(self) -> None:
        for what in self.what:
            require(
                what in WHAT, "--what", what, f"it must be of {', '.join(WHAT)}, with commas between them"
            )
        require(bool(self.what), "--what", "", f"it must be one of {', '.join(WHAT)}, or several")
        require(self.repeat >= 1, "--repeat", self.repeat, "it must be at least 1")
        require(self.seeds >= 1, "--seeds", self.seeds, "it must be at least 1 (11 as published)")
        require(bool(self.in_flight), "--in-flight", "", "it must be at least one number, such as 16")
        for workers in self.in_flight:
            require(workers >= 1, "--in-flight", workers, "each must be at least 1")


def measure_ec(plan: Plan, say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """The document of `lamarck bench ec --json`; `say` is told what goes on."""
    limit_threads(1)
    pymoo = Pymoo()
    results = [result for what in plan.what for result in _measure(what, plan, pymoo, say)]
    document = {"kind": "ec", "machine": machine(), "rivals": pymoo.versions, "results": results}
    needed = any(what in plan.what for what in ("speed", "sorting", "quality"))
    return {**document, "missing": pymoo.missing} if pymoo.missing and needed else document


def _measure(what: str, plan: Plan, pymoo: Pymoo, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    if what == "speed":
        return speed(pymoo, generations=plan.generations, repeat=plan.repeat, say=say)
    if what == "sorting":
        return sorting(pymoo, sizes=plan.sizes, objectives=plan.objectives, repeat=plan.repeat, say=say)
    if what == "overhead":
        return overhead(evaluations=plan.evaluations, repeat=plan.repeat, say=say)
    if what == "asynchrony":
        return asynchrony(evaluations=plan.simulated, in_flight=plan.in_flight, seeds=plan.seeds, say=say)
    return quality(pymoo, problems=plan.problems, seeds=plan.seeds, say=say)
