"""Problems for quality diversity: an objective, and measures of the behaviour that an archive covers.

Sources: the arm of Cully, Clune, Tarapore, Mouret, "Robots that can adapt like animals",
Nature 521 (2015), in the usual form with the variance of the angles as objective; the linear
projection of Fontaine, Togelius, Nikolaidis, Hoover, "Covariance Matrix Adaptation for the Rapid
Illumination of Behavior Space", GECCO 2020.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from lamarckian_cli.ec.coding import bounds
from lamarckian_cli.errors import require
from lamarckian_cli.problems.evaluator import Measure
from lamarckian_cli.problems.formula import Formula, minimised

VALID = 5.12  # numbers beyond it count less and less in the projection
SHIFT = 0.4 * VALID  # where the functions have their optimum, so that it is off the middle of the archive


class Arm(Formula):
    """A planar arm of `joints` equal links, one long in all: reach every place, with even angles."""

    def __init__(self, *, joints: int = 12) -> None:
        require(joints >= 2, "problem.joints", joints, "it must be at least 2")
        tip = tuple(Measure(name=name, low=-1.0, high=1.0) for name in ("x", "y"))
        super().__init__(bounds(-np.pi, np.pi, joints), minimised(1), measures=tip)

    def values(self, x: np.ndarray) -> np.ndarray:
        """Variance of the angles, each counted from the link before, in radians squared."""
        return np.var(x, axis=1)[:, None]

    def behaviour(self, x: np.ndarray) -> np.ndarray:
        """The tip."""
        direction = np.cumsum(x, axis=1)
        return np.stack([np.cos(direction).mean(1), np.sin(direction).mean(1)], axis=1)

    def optimum(self) -> float:
        return 0.0


class Projection(Formula):
    """Sphere or Rastrigin; the measures are sums of either half of the numbers.

    Most solutions crowd in the middle of the archive, for sums of many numbers do. Numbers are
    bounded at twice the valid range; the paper leaves them unbounded.
    """

    def __init__(self, *, function: Literal["sphere", "rastrigin"] = "sphere", dim: int = 20) -> None:
        require(dim >= 2, "problem.dim", dim, "it must be at least 2: one number for each measure")
        self.function = function
        self.half = dim // 2
        sizes = (self.half, dim - self.half)
        measures = tuple(
            Measure(name=f"sum{i + 1}", low=-VALID * size, high=VALID * size) for i, size in enumerate(sizes)
        )
        super().__init__(bounds(-2.0 * VALID, 2.0 * VALID, dim), minimised(1), measures=measures)

    def values(self, x: np.ndarray) -> np.ndarray:
        x = x - SHIFT
        squares = (x * x).sum(1)
        if self.function == "rastrigin":
            squares += (10.0 - 10.0 * np.cos(2.0 * np.pi * x)).sum(1)
        return squares[:, None]

    def behaviour(self, x: np.ndarray) -> np.ndarray:
        """Sums of both halves; a number v beyond 5.12 counts 5.12 / v."""
        counted = x.copy()
        far = np.abs(x) > VALID
        counted[far] = VALID / x[far]
        return np.stack([counted[:, : self.half].sum(1), counted[:, self.half :].sum(1)], axis=1)

    def optimum(self) -> float:
        return 0.0
