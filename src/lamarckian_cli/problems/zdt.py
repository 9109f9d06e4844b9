"""ZDT1 to ZDT6: two objectives, g the distance to the front and h the shape of it.

Source: Zitzler, Deb, Thiele, "Comparison of Multiobjective Evolutionary Algorithms: Empirical
Results", Evolutionary Computation 8(2), 2000, test functions T1 to T6. On each front g is least.
"""

from __future__ import annotations

import numpy as np

from lamarckian_cli.ec.coding import Categorical, Real
from lamarckian_cli.errors import require
from lamarckian_cli.problems import fronts
from lamarckian_cli.problems.formula import Formula, minimised


class _ZDT(Formula):
    """f1 and g * h(f1, g) of real numbers."""

    def __init__(self, dim: int, low: float = 0.0, high: float = 1.0) -> None:
        require(dim >= 2, "problem.dim", dim, "it must be at least 2: one number for f1, the others for g")
        lows, highs = np.full(dim, low), np.full(dim, high)
        lows[0], highs[0] = 0.0, 1.0
        super().__init__(Real(low=lows, high=highs), minimised(2))

    def linear_g(self, x: np.ndarray) -> np.ndarray:
        """g of ZDT1 to ZDT3, [N]: 1 + 9 times the mean of the other numbers."""
        return 1.0 + np.add.reduce(x[:, 1:], axis=1) * (9.0 / (x.shape[1] - 1))


class ZDT1(_ZDT):
    """A convex front."""

    def __init__(self, *, dim: int = 30) -> None:
        super().__init__(dim)

    def values(self, x: np.ndarray) -> np.ndarray:
        f1, g = x[:, 0], self.linear_g(x)
        return _pair(f1, g * (1.0 - np.sqrt(f1 / g)))

    def front(self) -> np.ndarray:
        return fronts.root()


class ZDT2(_ZDT):
    """A front that is not convex."""

    def __init__(self, *, dim: int = 30) -> None:
        super().__init__(dim)

    def values(self, x: np.ndarray) -> np.ndarray:
        f1, g = x[:, 0], self.linear_g(x)
        return _pair(f1, g * (1.0 - (f1 / g) ** 2))

    def front(self) -> np.ndarray:
        return fronts.square()


class ZDT3(_ZDT):
    """A front in five pieces."""

    def __init__(self, *, dim: int = 30) -> None:
        super().__init__(dim)

    def values(self, x: np.ndarray) -> np.ndarray:
        f1, g = x[:, 0], self.linear_g(x)
        ratio = f1 / g
        return _pair(f1, g * (1.0 - np.sqrt(ratio) - ratio * np.sin(10.0 * np.pi * f1)))

    def front(self) -> np.ndarray:
        return fronts.zdt3()


class ZDT4(_ZDT):
    """21 ** (dim - 1) local fronts; all numbers but the first are within [-5, 5]."""

    def __init__(self, *, dim: int = 10) -> None:
        super().__init__(dim, -5.0, 5.0)

    def values(self, x: np.ndarray) -> np.ndarray:
        f1, y = x[:, 0], x[:, 1:]
        g = 1.0 + 10.0 * y.shape[1] + np.add.reduce(y * y - 10.0 * np.cos(4.0 * np.pi * y), axis=1)
        return _pair(f1, g * (1.0 - np.sqrt(f1 / g)))

    def front(self) -> np.ndarray:
        return fronts.root()


class ZDT5(Formula):
    """Bits: one string of 30 and `strings` of 5; f1 counts the ones of the first, g misleads to all zeros."""

    def __init__(self, *, strings: int = 10) -> None:
        require(strings >= 1, "problem.strings", strings, "it must be at least 1 (10 as published)")
        self.strings = strings
        super().__init__(Categorical(sizes=np.full(30 + 5 * strings, 2)), minimised(2))

    def values(self, x: np.ndarray) -> np.ndarray:
        f1 = 1.0 + x[:, :30].sum(1)
        ones = x[:, 30:].reshape(len(x), self.strings, 5).sum(2)
        g = np.where(ones < 5, 2.0 + ones, 1.0).sum(1)
        return _pair(f1, g / f1)

    def front(self) -> np.ndarray:
        f1 = np.arange(1.0, 32.0)
        return _pair(f1, self.strings / f1)


class ZDT6(_ZDT):
    """Not convex, and its solutions lie thin toward the front and unevenly along it."""

    def __init__(self, *, dim: int = 10) -> None:
        super().__init__(dim)

    def values(self, x: np.ndarray) -> np.ndarray:
        x1 = x[:, 0]
        f1 = 1.0 - np.exp(-4.0 * x1) * np.sin(6.0 * np.pi * x1) ** 6
        g = 1.0 + 9.0 * (np.add.reduce(x[:, 1:], axis=1) / (x.shape[1] - 1)) ** 0.25
        return _pair(f1, g * (1.0 - (f1 / g) ** 2))

    def front(self) -> np.ndarray:
        return fronts.square(fronts.ZDT6_F1_LEAST)


def _pair(f1: np.ndarray, f2: np.ndarray) -> np.ndarray:
    """[N, 2]; several times quicker than `column_stack` at a hundred rows."""
    objectives = np.empty((len(f1), 2))
    objectives[:, 0] = f1
    objectives[:, 1] = f2
    return objectives
