"""NSGA-II (Deb, Pratap, Agarwal & Meyarivan 2002): non-dominated sorting, then the least crowded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamarckian_cli.ec.pareto import survivors_nsga2
from lamarckian_cli.ec.selection import crowded_tournament
from lamarckian_cli.evolution.asking import check_population
from lamarckian_cli.evolution.generational import Generational, GenerationalSettings
from lamarckian_cli.evolution.strategy import FirstGenomes, Individuals, Task


@dataclass(frozen=True, kw_only=True)
class NSGA2Settings(GenerationalSettings):
    """Keys of `conf/evo/nsga2.yaml`."""

    population: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check_population(self.population, 2)

    def make(self, task: Task, first: FirstGenomes, rng: np.random.Generator) -> NSGA2:
        return NSGA2(self, task, first, rng)


class NSGA2(Generational):
    """Constraints by constrained domination; parents by binary tournament on rank, then crowding."""

    def __init__(
        self, settings: NSGA2Settings, task: Task, first: FirstGenomes, rng: np.random.Generator
    ) -> None:
        super().__init__(settings, task, first, rng, settings.population)
        self._rank = np.empty(0, np.int64)
        self._crowding = np.empty(0)

    def mating(self, n: int) -> np.ndarray:
        return crowded_tournament(self._rank, self._crowding, 2 * n, self._rng).reshape(n, 2).T

    def survivors(self, people: Individuals, n: int, old: int) -> np.ndarray:
        index, self._rank, self._crowding = survivors_nsga2(people.objectives, people.violation, n)
        return index

    def _own_state(self) -> dict[str, Any]:
        return {**super()._own_state(), "rank": self._rank.copy(), "crowding": self._crowding.copy()}

    def _adopt_state(self, state: Mapping[str, Any]) -> None:
        super()._adopt_state(state)
        self._rank, self._crowding = np.array(state["rank"]), np.array(state["crowding"])
