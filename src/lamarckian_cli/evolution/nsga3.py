"""NSGA-III (Deb & Jain 2014; constraints: Jain & Deb 2014): reference directions keep the front spread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import comb
from typing import Any

import numpy as np

from lamarckian_cli.ec.reference import Scale, das_dennis, survivors_nsga3, two_layers
from lamarckian_cli.ec.selection import tournament
from lamarckian_cli.ec.variation import Variation
from lamarckian_cli.errors import ConfigError, require
from lamarckian_cli.evolution.asking import check_population
from lamarckian_cli.evolution.generational import Generational, GenerationalSettings
from lamarckian_cli.evolution.strategy import FirstGenomes, Individuals, Task

PUBLISHED = {
    2: (99, 0),
    3: (12, 0),
    4: (8, 0),
    5: (6, 0),
    6: (4, 0),
    7: (3, 2),
    8: (3, 2),
    9: (3, 2),
    10: (3, 2),
}
"""Objectives -> partitions of the outer and the inner layer; 3, 5, 8 and 10 are the authors'."""
MANY = (2, 1)  # for more objectives: the authors' choice for 15


@dataclass(frozen=True, kw_only=True)
class NSGA3Settings(GenerationalSettings):
    """Keys of `conf/evo/nsga3.yaml`."""

    population: int | None = None  # None: as many as there are directions, rounded up to a multiple of four
    partitions: int | tuple[int, ...] | None = (
        None  # of each axis; [outer, inner]: two layers; None: as published
    )
    variation: Variation = field(
        default_factory=lambda: Variation(crossover_probability=1.0, crossover_eta=30.0)
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.population is not None:
            check_population(self.population, 4)
        if self.partitions is not None:
            layers = (self.partitions,) if isinstance(self.partitions, int) else self.partitions
            shown = self.partitions if isinstance(self.partitions, int) else list(self.partitions)
            remedy = "it must be a number of at least 1, two of them for two layers ([3, 2]), or null"
            require(1 <= len(layers) <= 2 and min(layers) >= 1, "evo.partitions", shown, remedy)

    def make(self, task: Task, first: FirstGenomes, rng: np.random.Generator) -> NSGA3:
        if task.objectives < 2:
            raise ConfigError(
                "evo is nsga3, which is for several objectives, and the problem has one; use evo=ga"
            )
        return NSGA3(self, task, first, rng)

    def layers(self, objectives: int) -> tuple[int, int]:
        """Partitions of the outer and the inner layer (0: none)."""
        if self.partitions is not None:
            given = (self.partitions,) if isinstance(self.partitions, int) else self.partitions
            return given[0], given[1] if len(given) > 1 else 0
        published = PUBLISHED.get(objectives, MANY)
        if self.population is None:
            return published
        outer = 1
        while directions_of(objectives, outer + 1, 0) <= self.population:
            outer += 1
        fits = directions_of(objectives, outer, 0) <= directions_of(objectives, *published) <= self.population
        return published if fits else (outer, 0)


class NSGA3(Generational):
    """Parents by chance, though feasible before infeasible; survivors by rank, then by direction."""

    def __init__(
        self, settings: NSGA3Settings, task: Task, first: FirstGenomes, rng: np.random.Generator
    ) -> None:
        outer, inner = settings.layers(task.objectives)
        count = directions_of(task.objectives, outer, inner)
        size = -(-count // 4) * 4 if settings.population is None else settings.population
        require(
            size >= count,
            "evo.population",
            size,
            f"each of {count} reference directions needs one: raise it, or give fewer evo.partitions",
        )
        if inner:
            self.directions = two_layers(task.objectives, outer, inner)
        else:
            self.directions = das_dennis(task.objectives, outer)
        super().__init__(settings, task, first, rng, size)
        self._scale: Scale | None = None

    def mating(self, n: int) -> np.ndarray:
        return tournament(self._population.violation, 2 * n, 2, self._rng).reshape(n, 2).T

    def survivors(self, people: Individuals, n: int, old: int) -> np.ndarray:
        index, _, self._scale = survivors_nsga3(
            people.objectives, people.violation, n, self.directions, self._scale, self._rng
        )
        return index

    def _own_state(self) -> dict[str, Any]:
        scale = self._scale
        shown = None
        if scale is not None:
            shown = {name: getattr(scale, name).copy() for name in ("ideal", "extremes", "nadir")}
        return {**super()._own_state(), "scale": shown}

    def _adopt_state(self, state: Mapping[str, Any]) -> None:
        super()._adopt_state(state)
        scale = state["scale"]
        self._scale = None if scale is None else Scale(**{name: np.array(v) for name, v in scale.items()})


def directions_of(objectives: int, outer: int, inner: int) -> int:
    """How many reference directions so many partitions make."""
    count = comb(objectives + outer - 1, outer)
    return count + comb(objectives + inner - 1, inner) if inner else count
