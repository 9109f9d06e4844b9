"""What strategies have in common: ids, counts, random numbers, and the state of all that.

Asking        asks, and is told one by one (PSO, CSO, PBT, MAP-Elites)
└── Gathering is told by the generation: results wait until their number is there (GA, NSGA, ES)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lamarckian_cli.ec.coding import Genomes, take
from lamarckian_cli.errors import ConfigError, require
from lamarckian_cli.evolution.arrivals import Arrivals
from lamarckian_cli.evolution.individuals import as_state, best_first, blank, from_state, living, unknown
from lamarckian_cli.evolution.strategy import Candidates, FirstGenomes, Individuals, Strategy, Task


class Asking(Strategy):
    """A strategy whose candidates are numbered and counted by `Arrivals`."""

    def __init__(self, task: Task, first: FirstGenomes, rng: np.random.Generator, arrivals: Arrivals) -> None:
        self._task, self._first, self._rng = task, first, rng
        self._arrivals = arrivals

    @property
    def generation(self) -> int:  # type: ignore[override]
        return self._arrivals.generation

    def finished(self) -> str:
        return ""

    def wanted(self) -> int:
        return 0 if self.finished() else min(self._ready(), self._arrivals.allowed())

    def ask(self, n: int) -> Candidates:
        n = max(0, min(n, self.wanted()))
        born = np.full(n, self.generation)
        ids = self._arrivals.ask(n) if n else np.empty(0, np.int64)
        genomes, parents = self._make(ids) if n else (blank(self._task.coding, 0), np.empty((0, 2), np.int64))
        return Candidates(ids=ids, genomes=genomes, parents=parents, born=born)

    def state(self) -> dict[str, Any]:
        own = self._own_state()
        return {"arrivals": self._arrivals.state(), "rng": self._rng.bit_generator.state, "own": own}

    def restore(self, state: dict[str, Any]) -> None:
        self._arrivals.restore(state["arrivals"])
        self._rng.bit_generator.state = state["rng"]
        self._adopt_state(state["own"])

    @abstractmethod
    def _ready(self) -> int:
        """How many candidates could be made now, the limit of staleness apart."""

    @abstractmethod
    def _make(self, ids: np.ndarray) -> tuple[Genomes, np.ndarray]:
        """Genomes of new candidates `ids` [N], N at least 1, and their parents [N, 2]."""

    @abstractmethod
    def _own_state(self) -> dict[str, Any]:
        """Of the strategy itself, in copies."""

    @abstractmethod
    def _adopt_state(self, state: Mapping[str, Any]) -> None:
        """Go on from `_own_state()`; the random numbers stand there already."""

    def _count(self, evaluated: Individuals) -> None:
        """Count results in where each is taken in as it comes; the generation follows from their number."""
        born = evaluated.born
        while len(born):
            expected = self._arrivals.expected()
            self._arrivals.tell(born[:expected])
            born = born[expected:]

    def _draw_first(self, n: int) -> Genomes:
        """n first genomes, which follow the coding whoever draws them."""
        genomes = self._first(n, self._rng)
        self._task.coding.check(genomes, "initialize()")
        return genomes


class Gathering(Asking):
    """A strategy that selects once the expected number of results has arrived, ordered by id."""

    def __init__(self, task: Task, first: FirstGenomes, rng: np.random.Generator, arrivals: Arrivals) -> None:
        super().__init__(task, first, rng, arrivals)
        self._arrived: list[Individuals] = []

    def _ready(self) -> int:
        return max(1, self._arrivals.missing())

    def tell(self, evaluated: Individuals) -> None:
        start = 0
        while start < len(evaluated):
            end = start + self._arrivals.expected()
            taken = evaluated if end - start >= len(evaluated) else evaluated.take(slice(start, end))
            start += len(taken)
            self._arrived.append(taken)
            if self._arrivals.tell(taken.born):
                arrived = self._together()
                self._arrived = []
                self._select(arrived)

    @abstractmethod
    def _select(self, arrived: Individuals) -> None:
        """Results of a whole generation, in the order of their ids."""

    def state(self) -> dict[str, Any]:
        return {**super().state(), "arrived": [as_state(some) for some in self._arrived]}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._arrived = [from_state(some) for some in state["arrived"]]

    def _together(self) -> Individuals:
        """Those who arrived since the last selection, by id; there may be nobody."""
        if not self._arrived:
            return unknown(self._task, 0)
        arrived = Individuals.join(self._arrived)
        if (arrived.ids[1:] > arrived.ids[:-1]).all():
            return arrived
        return arrived.take(np.argsort(arrived.ids))


class FirstBorn:
    """The first genomes, drawn all together when the first is asked for, and handed out one by one."""

    def __init__(self, n: int) -> None:
        self.left = n
        self._genomes: Genomes | None = None  # those that are left; None before they are drawn

    def take(self, n: int, draw: Callable[[int], Genomes]) -> Genomes:
        """The next n of them; others where none are left."""
        if not self.left:
            return draw(n)
        genomes = draw(self.left) if self._genomes is None else self._genomes
        self.left -= n
        self._genomes = take(genomes, slice(n, None))
        return take(genomes, slice(n))

    def state(self) -> dict[str, Any]:
        genomes = self._genomes
        return {
            "left": self.left,
            "genomes": None if genomes is None else {name: values.copy() for name, values in genomes.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        genomes = state["genomes"]
        self.left = int(state["left"])
        self._genomes = None if genomes is None else {name: np.array(v) for name, v in genomes.items()}


class Best:
    """The best individual that was ever told of, beside a population that may lose it."""

    def __init__(self, task: Task) -> None:
        self._best = unknown(task, 0)

    def watch(self, people: Individuals) -> None:
        both = Individuals.join([self._best, people])
        self._best = both.take(best_first(both)[:1])

    def leading(self, people: Individuals) -> Individuals:
        """Who of `people` lives, best first, and the best ever before them where it is not among them."""
        ordered = living(people)
        if not len(self._best) or (ordered.ids == self._best.ids[0]).any():
            return ordered
        return Individuals.join([self._best, ordered])

    def state(self) -> dict[str, Any]:
        return as_state(self._best)

    def restore(self, state: Mapping[str, Any]) -> None:
        self._best = from_state(state)


def check_population(population: int, least: int, key: str = "evo.population") -> None:
    require(population >= least, key, population, f"it must be at least {least}")


def check_staleness(limit: int | None) -> None:
    require(
        limit is None or limit >= 0,
        "evo.max_staleness",
        limit,
        "it must be 0 (wait for everybody) or more generations, or null for no limit",
    )


def one_objective(task: Task, name: str, instead: str = "evo=nsga2 or evo=nsga3") -> None:
    """Raise a ConfigError where a strategy for one objective is given several."""
    if task.objectives != 1:
        raise ConfigError(
            f"evo is {name}, which takes one objective, and the problem has {task.objectives}; use {instead}"
        )
