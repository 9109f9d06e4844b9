"""A genetic algorithm for one objective: tournaments decide who mates, and the better survive."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lamarckian_cli.ec.selection import tournament
from lamarckian_cli.errors import require
from lamarckian_cli.evolution.asking import check_population, one_objective
from lamarckian_cli.evolution.generational import Generational, GenerationalSettings
from lamarckian_cli.evolution.individuals import best_first
from lamarckian_cli.evolution.strategy import FirstGenomes, Individuals, Task


@dataclass(frozen=True, kw_only=True)
class GASettings(GenerationalSettings):
    """Keys of `conf/evo/ga.yaml`."""

    population: int = 100
    elites: int | None = None  # of the old population that may live on; None: whoever is better
    tournament: int = 2  # how many compete to be a parent

    def __post_init__(self) -> None:
        super().__post_init__()
        check_population(self.population, 2)
        require(
            self.elites is None or 0 <= self.elites <= self.population,
            "evo.elites",
            self.elites,
            f"it must be 0 to evo.population ({self.population}), or null for whoever is better",
        )
        require(
            1 <= self.tournament <= self.population,
            "evo.tournament",
            self.tournament,
            f"it must be 1 (chance) to evo.population ({self.population})",
        )

    def make(self, task: Task, first: FirstGenomes, rng: np.random.Generator) -> GA:
        one_objective(task, "ga")
        return GA(self, task, first, rng)


class GA(Generational):
    """Deb's rules (2000) compare: feasible before infeasible, less violation before more, then the objective.

    With `elites` None the best of population and children survive (mu + lambda). With a number,
    only so many of the old population do while there are enough children to replace the rest.
    """

    def __init__(
        self, settings: GASettings, task: Task, first: FirstGenomes, rng: np.random.Generator
    ) -> None:
        super().__init__(settings, task, first, rng, settings.population)
        self._elites, self._tournament = settings.elites, settings.tournament

    def mating(self, n: int) -> np.ndarray:
        people = len(self._population)
        # The population stands best first, so a place is a key.
        size = min(self._tournament, people)
        return tournament(np.arange(people), 2 * n, size, self._rng).reshape(n, 2).T

    def survivors(self, people: Individuals, n: int, old: int) -> np.ndarray:
        order = best_first(people)
        if self._elites is None:
            return order[:n]
        # The population stands best first too: beyond the elites its places are for lack of children.
        yields = (order >= self._elites) & (order < old)
        kept = np.zeros(len(people), bool)
        kept[np.concatenate((order[~yields], order[yields]))[:n]] = True
        return order[kept[order]]
