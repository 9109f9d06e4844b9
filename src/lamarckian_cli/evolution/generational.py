"""Genetic algorithms: pairs are mated from whoever lives now, and vary; selection follows their number.

The workflow is the paper's (section III-A): every pair is mated when a worker asks for it and
its child is evaluated on its own; once `offspring` children have arrived, one selection makes
the next generation of them and the population. With `max_staleness` 0 nobody is asked for
before the selection that all of its siblings take part in, which is the classical algorithm
exactly. With `offspring` 1 every child is selected as it comes: steady state.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lamarckian_cli.ec.coding import Genomes, take
from lamarckian_cli.ec.variation import Variation
from lamarckian_cli.errors import require
from lamarckian_cli.evolution.arrivals import Arrivals
from lamarckian_cli.evolution.asking import FirstBorn, Gathering, check_staleness
from lamarckian_cli.evolution.individuals import as_state, failed, from_state, living, unknown
from lamarckian_cli.evolution.strategy import FirstGenomes, Individuals, Settings, Task


@dataclass(frozen=True, kw_only=True)
class GenerationalSettings(Settings):
    """What all of them share; the size of the population apart: keys of `conf/evo/base/generational.yaml`."""

    offspring: int | None = None  # children that a selection waits for; None: as many as the population
    max_staleness: int | None = None  # generations between asking for a child and its selection; None: any
    variation: Variation = field(default_factory=Variation)

    def __post_init__(self) -> None:
        require(
            self.offspring is None or self.offspring >= 1,
            "evo.offspring",
            self.offspring,
            "it must be at least 1 (steady state), or null for as many as the population",
        )
        check_staleness(self.max_staleness)


class Generational(Gathering):
    """Mating, crossover, mutation; a subclass says who mates (`mating`) and who survives (`survivors`)."""

    def __init__(
        self,
        settings: GenerationalSettings,
        task: Task,
        first: FirstGenomes,
        rng: np.random.Generator,
        population: int,
    ) -> None:
        self._size = population
        each = population if settings.offspring is None else settings.offspring
        arrivals = Arrivals(first=population, each=each, limit=settings.max_staleness)
        super().__init__(task, first, rng, arrivals)
        self._variation = settings.variation
        self._variation.check(task.coding)
        self._population = unknown(task, 0)
        self._first_born = FirstBorn(self._size)

    def population(self) -> Individuals:
        if self.generation:
            return self._population
        return living(self._together())

    @abstractmethod
    def mating(self, n: int) -> np.ndarray:
        """n pairs of parents: indices [2, n] into the population."""

    def crossover(self, parents: Genomes) -> Genomes:
        """Children [2, N, D] of parents [2, N, D]."""
        return self._variation.cross(parents, self._task.coding, self._rng)

    def mutation(self, genomes: Genomes) -> Genomes:
        """Mutants [N, D] of genomes [N, D]."""
        return self._variation.mutate(genomes, self._task.coding, self._rng)

    @abstractmethod
    def survivors(self, people: Individuals, n: int, old: int) -> np.ndarray:
        """Who of them live on: indices, n or all of them, best first; remembers what `mating` needs to know.

        The first `old` of them are the population as it stands, the others have just arrived.
        """

    def _make(self, ids: np.ndarray) -> tuple[Genomes, np.ndarray]:
        n = len(ids)
        if not self._first_born.left and not self.generation:
            self._meet_arrived()
        if self._first_born.left or not len(self._population):  # nobody: workers are free, and nobody is back
            return self._first_born.take(n, self._draw_first), np.full((n, 2), -1)
        return self._breed(n)

    def _breed(self, n: int) -> tuple[Genomes, np.ndarray]:
        """n children and their parents; of an odd number the last pair's second child is not born."""
        pairs = self.mating((n + 1) // 2)
        children = self.crossover(take(self._population.genomes, pairs))
        flat = {name: values.reshape(-1, values.shape[-1])[:n] for name, values in children.items()}
        parents = self._population.ids[pairs].T
        return self.mutation(flat), np.concatenate((parents, parents))[:n]

    def _select(self, arrived: Individuals) -> None:
        # Before the first selection the population is made of those who have arrived themselves.
        if self.generation == 1:
            self._live(arrived, self._size, 0)
        else:
            everyone = Individuals.join([self._population, arrived])
            self._live(everyone, self._size, len(self._population))

    def _meet_arrived(self) -> None:
        """Until the first selection, who has arrived is who may mate; asked only where workers would idle."""
        arrived = self._together()
        if len(arrived) > 1:
            self._live(arrived, len(arrived), 0)

    def _live(self, people: Individuals, n: int, old: int) -> None:
        """The survivors of `people` are the population; who failed is not, where anybody did not."""
        good = ~failed(people)
        if not good.all() and good.any():
            people, old = people.take(good), int(good[:old].sum())
        self._population = people.take(self.survivors(people, n, old))

    def _own_state(self) -> dict[str, Any]:
        return {"population": as_state(self._population), "first_born": self._first_born.state()}

    def _adopt_state(self, state: Mapping[str, Any]) -> None:
        self._population = from_state(state["population"])
        self._first_born.restore(state["first_born"])
