"""A problem that is a formula of one array: what nearly all numerical test problems are."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from lamarckian_cli.ec.coding import Coding, Genomes, Part
from lamarckian_cli.problems.evaluator import Description, Evaluator, Measure, Objective, Results

PART = "x"
"""The name of the one part of the genome."""


class Formula(Evaluator):
    """Objectives, and constraints where there are any, of the part `x`; draws nothing and keeps nothing."""

    def __init__(
        self,
        part: Part,
        objectives: tuple[Objective, ...],
        constraints: tuple[str, ...] = (),
        measures: tuple[Measure, ...] = (),
    ) -> None:
        self._description = Description(
            coding=Coding({PART: part}), objectives=objectives, constraints=constraints, measures=measures
        )

    def describe(self) -> Description:
        return self._description

    def evaluate(self, genomes: Genomes, seeds: np.ndarray) -> Results:
        x = genomes[PART]
        return Results(objectives=self.values(x), constraints=self.excess(x), measures=self.behaviour(x))

    @abstractmethod
    def values(self, x: np.ndarray) -> np.ndarray:
        """Objectives [N, M] float64 of x [N, D]."""

    def excess(self, x: np.ndarray) -> np.ndarray | None:
        """Constraints [N, C] float64 of x [N, D]: above 0 is violated, by so much; None without any."""
        return None

    def behaviour(self, x: np.ndarray) -> np.ndarray | None:
        """Measures [N, B] float64 of x [N, D]; None without any."""
        return None


def minimised(count: int) -> tuple[Objective, ...]:
    """Objectives f1, f2, ..., all to be minimised."""
    return tuple(Objective(name=f"f{i + 1}") for i in range(count))
