"""The bridge between evolution and whatever it solves: a formula, a simulation, a whole training.

An evaluator says how its candidates are coded, draws first ones, and turns genomes into
results (the paper's section III-D). It works on batches; where evaluations are costly, the
workflow hands it batches of one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lamarckian_cli.ec.coding import Coding, Genomes

Sense = Literal["min", "max"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One number by which candidates are judged, and which way is better."""

    name: str
    sense: Sense = "min"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One behaviour by which MAP-Elites tells candidates apart, with the range that its archive covers."""

    name: str
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What `Evaluator.describe()` returns."""

    coding: Coding
    objectives: tuple[Objective, ...]
    constraints: tuple[str, ...] = ()  # names; see Results.constraints
    measures: tuple[Measure, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What N genomes came to."""

    objectives: np.ndarray  # [N, M] float64, each in its own sense
    constraints: np.ndarray | None = None  # [N, C] float64: above 0 is violated, by so much; at most 0 holds
    measures: np.ndarray | None = None  # [N, B] float64
    genomes: Genomes | None = None  # what evaluating made of the genomes (trained weights); None: unchanged
    cost: np.ndarray | None = None  # [N] float64, what it took in the evaluator's own unit (env steps)


class Evaluator(ABC):
    """A problem. Instances are made anew in every worker, from `_target_` and plain values."""

    @abstractmethod
    def describe(self) -> Description:
        """Coding, objectives, constraints; the same at every call."""

    def initialize(self, n: int, rng: np.random.Generator) -> Genomes:
        """n first genomes; uniform in the coding unless overridden."""
        return self.describe().coding.sample(n, rng)

    @abstractmethod
    def evaluate(self, genomes: Genomes, seeds: np.ndarray) -> Results:
        """Results of N genomes; `seeds` [N] int64 is each one's own source of randomness.

        The same genome and seed give the same results. Whatever it raises marks the genomes failed.
        """

    def front(self) -> np.ndarray | None:
        """Points [K, M] of the true Pareto front, in the objectives' own senses; None where unknown."""
        return None

    def optimum(self) -> float | None:
        """The best value of the single objective; None where unknown."""
        return None
