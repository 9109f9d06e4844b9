"""The usual functions of one objective; the least value of each is 0, at the same number everywhere.

Sources: Hansen, Finck, Ros, Auger, "Real-Parameter Black-Box Optimization Benchmarking" (2009)
for the first four and their box [-5, 5], here neither shifted nor rotated; Jamil and Yang, "A
Literature Survey of Benchmark Functions" (2013) for the others.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from lamarckian_cli.ec.coding import bounds
from lamarckian_cli.errors import require
from lamarckian_cli.problems.formula import Formula, minimised

SCHWEFEL_AT = 420.96874635998199  # where x sin(sqrt x) is greatest below 500 ...
SCHWEFEL_MOST = 418.98288727243369  # ... and how great
SCHWEFEL_LIMIT = 500.0  # beyond it there are greater ones


class _Single(Formula):
    """`dim` numbers, each within [low, high]; None is the usual box."""

    BOX: ClassVar[tuple[float, float]] = (-5.0, 5.0)
    LEAST_DIM: ClassVar[int] = 1
    AT: ClassVar[float] = 0.0  # every number of the best solution

    def __init__(self, *, dim: int = 10, low: float | None = None, high: float | None = None) -> None:
        require(dim >= self.LEAST_DIM, "problem.dim", dim, f"it must be at least {self.LEAST_DIM}")
        low = self.BOX[0] if low is None else low
        high = self.BOX[1] if high is None else high
        require(low < high, "problem.low", low, f"it must be below problem.high, {high:g}")
        self.low, self.high = low, high
        super().__init__(bounds(low, high, dim), minimised(1))

    def optimum(self) -> float | None:
        """0; None where the box leaves the best solution out."""
        return 0.0 if self.low <= self.AT <= self.high else None


class Sphere(_Single):
    """Sum of squares."""

    def values(self, x: np.ndarray) -> np.ndarray:
        return _column(np.add.reduce(x * x, axis=1))


class Ellipsoid(_Single):
    """Axes of a condition number of a million."""

    LEAST_DIM = 2

    def values(self, x: np.ndarray) -> np.ndarray:
        return _column((x * x) @ np.logspace(0.0, 6.0, x.shape[1]))


class Rosenbrock(_Single):
    """A bent valley; from four numbers on it has a local minimum besides."""

    LEAST_DIM = 2
    AT = 1.0

    def values(self, x: np.ndarray) -> np.ndarray:
        here, following = x[:, :-1], x[:, 1:]
        return _column(np.add.reduce(100.0 * (following - here * here) ** 2 + (1.0 - here) ** 2, axis=1))


class Rastrigin(_Single):
    """A bowl with a local minimum at every point of whole numbers."""

    def values(self, x: np.ndarray) -> np.ndarray:
        return _column(10.0 * x.shape[1] + np.add.reduce(x * x - 10.0 * np.cos(2.0 * np.pi * x), axis=1))


class Ackley(_Single):
    """Nearly flat but for the hole in the middle, with ripples everywhere."""

    BOX = (-32.768, 32.768)

    def values(self, x: np.ndarray) -> np.ndarray:
        far = np.exp(-0.2 * np.sqrt(np.mean(x * x, axis=1)))
        ripples = np.exp(np.mean(np.cos(2.0 * np.pi * x), axis=1))
        return _column(20.0 - 20.0 * far + np.e - ripples)


class Griewank(_Single):
    """A bowl with ripples that fade as the numbers get many."""

    BOX = (-600.0, 600.0)

    def values(self, x: np.ndarray) -> np.ndarray:
        waves = np.prod(np.cos(x / np.sqrt(np.arange(1, x.shape[1] + 1))), axis=1)
        return _column(1.0 + np.add.reduce(x * x, axis=1) / 4000.0 - waves)


class Schwefel(_Single):
    """The best solution lies far from the next best, near a corner of the box."""

    BOX = (-SCHWEFEL_LIMIT, SCHWEFEL_LIMIT)
    AT = SCHWEFEL_AT

    def values(self, x: np.ndarray) -> np.ndarray:
        return _column(np.add.reduce(SCHWEFEL_MOST - x * np.sin(np.sqrt(np.abs(x))), axis=1))

    def optimum(self) -> float | None:
        """0 (to rounding); None where the box leaves it out, or reaches to where the function falls below."""
        within = self.low >= -SCHWEFEL_LIMIT and self.high <= SCHWEFEL_LIMIT
        return super().optimum() if within else None


class Levy(_Single):
    """Waves whose height grows with the distance."""

    BOX = (-10.0, 10.0)
    AT = 1.0

    def values(self, x: np.ndarray) -> np.ndarray:
        w = 1.0 + (x - 1.0) / 4.0
        first = np.sin(np.pi * w[:, 0]) ** 2
        inner = (w[:, :-1] - 1.0) ** 2 * (1.0 + 10.0 * np.sin(np.pi * w[:, :-1] + 1.0) ** 2)
        last = (w[:, -1] - 1.0) ** 2 * (1.0 + np.sin(2.0 * np.pi * w[:, -1]) ** 2)
        return _column(first + np.add.reduce(inner, axis=1) + last)


class Zakharov(_Single):
    """A plate: one valley without local minima, steep to the fourth power."""

    BOX = (-5.0, 10.0)

    def values(self, x: np.ndarray) -> np.ndarray:
        tilt = x @ (0.5 * np.arange(1, x.shape[1] + 1))
        return _column(np.add.reduce(x * x, axis=1) + tilt**2 + tilt**4)


def _column(values: np.ndarray) -> np.ndarray:
    return values[:, None]
