"""What every strategy is: it asks for genomes to be evaluated, is told their results, never evaluates.

    asked = strategy.ask(strategy.wanted())    # new candidates, with ids and parents
    strategy.tell(evaluated)                   # any number of them, in any order
    strategy.population()                      # who lives now

All strategies minimise; the loop turns the senses round before they see anything. They draw
from one random generator, which is part of their state, so a restored strategy goes on with
the same numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamarckian_cli.ec.coding import Coding, Genomes, join, take

FirstGenomes = Callable[[int, np.random.Generator], Genomes]
"""Where first genomes come from (`Evaluator.initialize`): so many, drawn from that generator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """N individuals that wait for their results."""

    ids: np.ndarray  # [N] int64, unique in a run, in the order of asking
    genomes: Genomes
    parents: np.ndarray  # [N, 2] int64: ids, -1 where there is none
    born: np.ndarray  # [N] int64: the generation that they were asked in

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Individuals:
    """N individuals with their results. Who failed has infinite objectives and violation."""

    ids: np.ndarray  # [N] int64
    genomes: Genomes  # as evaluating left them
    parents: np.ndarray  # [N, 2] int64
    born: np.ndarray  # [N] int64
    objectives: np.ndarray  # [N, M] float64, all to be minimised
    violation: np.ndarray  # [N] float64: sum of what constraints are exceeded by; 0 is feasible
    measures: np.ndarray  # [N, B] float64; B is 0 without measures

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, index: np.ndarray | slice) -> Individuals:
        """Those at `index` (int or bool array, or a slice)."""
        return Individuals(
            ids=self.ids[index],
            genomes=take(self.genomes, index),
            parents=self.parents[index],
            born=self.born[index],
            objectives=self.objectives[index],
            violation=self.violation[index],
            measures=self.measures[index],
        )

    @staticmethod
    def join(several: list[Individuals]) -> Individuals:
        """All of them in one, in this order; at least one is needed."""
        if len(several) == 1:
            return several[0]
        return Individuals(
            ids=np.concatenate([s.ids for s in several]),
            genomes=join(s.genomes for s in several),
            parents=np.concatenate([s.parents for s in several]),
            born=np.concatenate([s.born for s in several]),
            objectives=np.concatenate([s.objectives for s in several]),
            violation=np.concatenate([s.violation for s in several]),
            measures=np.concatenate([s.measures for s in several]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a strategy is to solve, as far as it may know."""

    coding: Coding
    objectives: int
    constrained: bool = False
    measures: tuple[tuple[float, float], ...] = ()  # the range of each


class Strategy(ABC):
    """One evolutionary algorithm at work. `Settings.make(task, first, rng)` makes one."""

    generation: int  # selections so far

    @abstractmethod
    def wanted(self) -> int:
        """How many candidates may be asked for now without breaking the limit of staleness; 0: tell first."""

    @abstractmethod
    def ask(self, n: int) -> Candidates:
        """At most n new candidates, at least one where `wanted()` is not 0."""

    @abstractmethod
    def tell(self, evaluated: Individuals) -> None:
        """Take in results of candidates that were asked for, each once, in any order."""

    @abstractmethod
    def population(self) -> Individuals:
        """Who lives now, best first where there is one objective; empty before anything is told."""

    def numbers(self) -> dict[str, float]:
        """What it alone can tell of how it stands, for metrics and summary."""
        return {}

    @abstractmethod
    def finished(self) -> str:
        """Why there is nothing more to ask for (converged, as `cma` may say); empty while there is."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Everything to go on from, as plain values and arrays (what a checkpoint takes); those who are out
        for evaluation are told of by the loop, which keeps them."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()` of a strategy with the same settings and task."""


class Settings(ABC):
    """A strategy's configuration: a frozen dataclass that checks itself and makes the strategy."""

    @abstractmethod
    def make(self, task: Task, first: FirstGenomes, rng: np.random.Generator) -> Strategy:
        """The strategy at its start; raises a ConfigError where it cannot solve such a task."""
