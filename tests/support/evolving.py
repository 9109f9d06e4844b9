"""An evolution small enough to follow by hand: a counting strategy, and problems that go wrong as told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lamarckian_cli.ec.coding import Coding, Genomes, bounds
from lamarckian_cli.evolution.strategy import Candidates, FirstGenomes, Individuals, Settings, Strategy, Task
from lamarckian_cli.problems.evaluator import Description, Evaluator, Objective, Results, Sense


@dataclass(frozen=True, kw_only=True)
class WalkSettings(Settings):
    """Of `Walk`."""

    population: int = 4
    max_staleness: int | None = 0

    def make(self, task: Task, first: FirstGenomes, rng: np.random.Generator) -> Walk:
        return Walk(self, first, rng)


class Walk(Strategy):
    """Generations of `population`: each is a step away from the best so far. Keeps what it is told."""

    def __init__(self, settings: WalkSettings, first: FirstGenomes, rng: np.random.Generator) -> None:
        self.settings, self._first, self._rng = settings, first, rng
        self.generation = 0
        self.asked = 0
        self.told: list[Individuals] = []  # of this generation
        self.heard: list[int] = []  # ids in the order in which they were told
        self._population: Individuals | None = None

    def wanted(self) -> int:
        size = self.settings.population
        ahead = 10**6 if self.settings.max_staleness is None else self.settings.max_staleness
        return min(size, (self.generation + 1 + ahead) * size - self.asked)

    def ask(self, n: int) -> Candidates:
        n = min(n, self.wanted())
        ids = np.arange(self.asked, self.asked + n)
        self.asked += n
        if self._population is None:
            genomes, parents = self._first(n, self._rng), np.full((n, 2), -1)
        else:
            best = self._population
            steps = self._rng.normal(0, 0.1, (n, best.genomes["x"].shape[1]))
            genomes = {"x": np.clip(best.genomes["x"][0] + steps, -1, 1)}
            parents = np.tile([best.ids[0], -1], (n, 1))
        return Candidates(ids=ids, genomes=genomes, parents=parents, born=np.full(n, self.generation))

    def tell(self, evaluated: Individuals) -> None:
        self.told.append(evaluated)
        self.heard += evaluated.ids.tolist()
        if sum(map(len, self.told)) < self.settings.population:
            return
        everybody = Individuals.join(self.told)
        if self._population is not None:
            everybody = Individuals.join([self._population, everybody])
        order = np.lexsort((everybody.ids, everybody.objectives[:, 0], everybody.violation))
        self._population = everybody.take(order[: self.settings.population])
        self.told = []
        self.generation += 1

    def population(self) -> Individuals:
        if self._population is not None:
            return self._population
        if self.told:
            return Individuals.join(self.told)
        empty = np.zeros(0, np.int64)
        return Individuals(
            ids=empty,
            genomes={"x": np.zeros((0, 2))},
            parents=np.zeros((0, 2), np.int64),
            born=empty,
            objectives=np.zeros((0, 1)),
            violation=np.zeros(0),
            measures=np.zeros((0, 0)),
        )

    def finished(self) -> str:
        return ""

    def state(self) -> dict[str, Any]:
        people = [*([] if self._population is None else [self._population]), *self.told]
        return {
            "generation": self.generation,
            "asked": self.asked,
            "heard": list(self.heard),
            "rng": self._rng.bit_generator.state,
            "selected": self._population is not None,
            "people": [{name: getattr(p, name) for name in p.__slots__} for p in people],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.generation, self.asked, self.heard = state["generation"], state["asked"], list(state["heard"])
        self._rng.bit_generator.state = state["rng"]
        people = [Individuals(**values) for values in state["people"]]
        self._population = people.pop(0) if state["selected"] else None
        self.told = people


class Bowl(Evaluator):
    """Squared distance from `center`, beside it (with two objectives) that from its mirror image.

    `raises` and `nans` are the shares of all genomes that go so, by digits of their first number.
    `limit` is of the sum of absolute values, a constraint.
    """

    def __init__(
        self,
        *,
        dim: int = 2,
        objectives: int = 1,
        sense: Sense = "min",
        limit: float | None = None,
        raises: float = 0.0,
        nans: float = 0.0,
    ) -> None:
        self.dim, self.objectives, self.sense = dim, objectives, sense
        self.limit, self.raises, self.nans = limit, raises, nans
        self.batches: list[int] = []

    def describe(self) -> Description:
        return Description(
            coding=Coding({"x": bounds(-1.0, 1.0, self.dim)}),
            objectives=tuple(Objective(name=f"f{i + 1}", sense=self.sense) for i in range(self.objectives)),
            constraints=() if self.limit is None else ("far",),
        )

    def evaluate(self, genomes: Genomes, seeds: np.ndarray) -> Results:
        x = genomes["x"]
        self.batches.append(len(x))
        if (self._share(x) < self.raises).any():
            raise ValueError("the bowl is broken")
        columns = [((x - (0.5 if i == 0 else -0.5)) ** 2).sum(axis=1) for i in range(self.objectives)]
        values = np.column_stack(columns)
        values[self._share(x) < self.nans] = np.nan
        return Results(
            objectives=-values if self.sense == "max" else values,
            constraints=None if self.limit is None else np.abs(x).sum(axis=1, keepdims=True) - self.limit,
        )

    def _share(self, x: np.ndarray) -> np.ndarray:
        """[N] in [0, 1): which part of all genomes each belongs to."""
        share: np.ndarray = np.modf(np.abs(x[:, 0]) * 1e6)[0]
        return share


def some(n: int, start: int = 0) -> Candidates:
    """n candidates of `Bowl`, with ids from `start` on."""
    rng = np.random.default_rng(start)
    return Candidates(
        ids=np.arange(start, start + n),
        genomes={"x": rng.uniform(-1, 1, (n, 2))},
        parents=np.full((n, 2), -1),
        born=np.zeros(n, np.int64),
    )
