"""Problems with constraints: BNH, OSY and TNK of two objectives, G01 and G06 of one.

Sources: Binh and Korn (1997); Osyczka and Kundu, Structural Optimization 10 (1995); Tanaka,
Watanabe, Furukawa, Tanino (1995); for the fronts Deb, "Multi-Objective Optimization Using
Evolutionary Algorithms" (2001), section 8.3. G01 and G06: Liang et al., definitions for the CEC
2006 session on constrained real-parameter optimization. Constraints keep their published scale.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lamarckian_cli.ec.coding import Real
from lamarckian_cli.ec.pareto import nondominated
from lamarckian_cli.problems.formula import Formula, minimised
from lamarckian_cli.problems.fronts import POINTS


class BNH(Formula):
    """Two circles; the constraints hardly bear on the front."""

    def __init__(self) -> None:
        super().__init__(_box([0, 0], [5, 3]), minimised(2), ("inside circle", "outside circle"))

    def values(self, x: np.ndarray) -> np.ndarray:
        return np.stack([4.0 * (x**2).sum(1), ((x - 5.0) ** 2).sum(1)], axis=1)

    def excess(self, x: np.ndarray) -> np.ndarray:
        x1, x2 = x.T
        inside = (x1 - 5.0) ** 2 + x2**2 - 25.0
        outside = 7.7 - (x1 - 8.0) ** 2 - (x2 + 3.0) ** 2
        return np.stack([inside, outside], axis=1)

    def front(self) -> np.ndarray:
        """x1 = x2 up to 3, from there on x2 = 3."""
        x1 = np.linspace(0.0, 5.0, POINTS)
        return self.values(np.stack([x1, np.minimum(x1, 3.0)], axis=1))


class OSY(Formula):
    """Six numbers, six constraints; the front has five pieces, each on other constraints."""

    def __init__(self) -> None:
        names = ("c1", "c2", "c3", "c4", "c5", "c6")
        super().__init__(_box([0, 0, 1, 0, 1, 0], [10, 10, 5, 6, 5, 10]), minimised(2), names)

    def values(self, x: np.ndarray) -> np.ndarray:
        squares = (x - np.array([2.0, 2.0, 1.0, 4.0, 1.0, 0.0])) ** 2
        f1 = -(squares[:, :5] @ np.array([25.0, 1.0, 1.0, 1.0, 1.0]))
        return np.stack([f1, (x**2).sum(1)], axis=1)

    def excess(self, x: np.ndarray) -> np.ndarray:
        x1, x2, x3, x4, x5, x6 = x.T
        return np.stack(
            [
                2.0 - x1 - x2,
                x1 + x2 - 6.0,
                x2 - x1 - 2.0,
                x1 - 3.0 * x2 - 2.0,
                (x3 - 3.0) ** 2 + x4 - 4.0,
                4.0 - (x5 - 3.0) ** 2 - x6,
            ],
            axis=1,
        )

    def front(self) -> np.ndarray:
        """Deb's five pieces, each a line in x with x4 = x6 = 0; the dominated ends are cut off."""
        one, each = np.ones(POINTS // 5), POINTS // 5
        x3, x1 = np.linspace(1.0, 5.0, each), np.linspace(2.0, 5.0, each)
        start = np.linspace(0.0, 1.0, each)
        pieces = [
            [5 * one, one, x3, 5 * one],
            [5 * one, one, x3, one],
            [x1, (x1 - 2.0) / 3.0, one, one],
            [0 * one, 2 * one, x3, one],
            [start, 2.0 - start, one, one],
        ]
        x = np.concatenate([np.stack([a, b, c, 0 * one, e, 0 * one], axis=1) for a, b, c, e in pieces])
        x = x[(self.excess(x) <= 1e-9).all(1)]
        return _cleaned(self.values(x))


class TNK(Formula):
    """The objectives are the numbers themselves; the front is the edge of the feasible region, in pieces."""

    def __init__(self) -> None:
        super().__init__(_box([0, 0], [np.pi, np.pi]), minimised(2), ("waves", "circle"))

    def values(self, x: np.ndarray) -> np.ndarray:
        return x.copy()

    def excess(self, x: np.ndarray) -> np.ndarray:
        x1, x2 = x.T
        # arctan(x1 / x2) with the limit at x2 = 0; at the origin any value does.
        waves = 1.0 + 0.1 * np.cos(16.0 * np.arctan2(x1, x2)) - x1**2 - x2**2
        circle = (x1 - 0.5) ** 2 + (x2 - 0.5) ** 2 - 0.5
        return np.stack([waves, circle], axis=1)

    def front(self) -> np.ndarray:
        """What is left of the wavy edge, in polar coordinates, by the circle and by dominance."""
        angle = np.linspace(0.0, np.pi / 2, 4 * POINTS)
        radius = np.sqrt(1.0 + 0.1 * np.cos(16.0 * angle))
        x = np.abs(np.stack([radius * np.sin(angle), radius * np.cos(angle)], axis=1))
        return _cleaned(x[self.excess(x)[:, 1] <= 0.0])


class G01(Formula):
    """Thirteen numbers and nine linear constraints, six of them active at the optimum, -15."""

    def __init__(self) -> None:
        high = [1] * 9 + [100] * 3 + [1]
        super().__init__(_box([0] * 13, high), minimised(1), tuple(f"g{i}" for i in range(1, 10)))

    def values(self, x: np.ndarray) -> np.ndarray:
        first = x[:, :4]
        f = 5.0 * first.sum(1) - 5.0 * (first**2).sum(1) - x[:, 4:].sum(1)
        return f[:, None]

    def excess(self, x: np.ndarray) -> np.ndarray:
        x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, _ = x.T
        return np.stack(
            [
                2.0 * x1 + 2.0 * x2 + x10 + x11 - 10.0,
                2.0 * x1 + 2.0 * x3 + x10 + x12 - 10.0,
                2.0 * x2 + 2.0 * x3 + x11 + x12 - 10.0,
                x10 - 8.0 * x1,
                x11 - 8.0 * x2,
                x12 - 8.0 * x3,
                x10 - 2.0 * x4 - x5,
                x11 - 2.0 * x6 - x7,
                x12 - 2.0 * x8 - x9,
            ],
            axis=1,
        )

    def optimum(self) -> float:
        return -15.0


class G06(Formula):
    """Two numbers in a sliver between two circles; the optimum is where they cross."""

    def __init__(self) -> None:
        super().__init__(_box([13, 0], [100, 100]), minimised(1), ("outside", "inside"))

    def values(self, x: np.ndarray) -> np.ndarray:
        return ((x[:, 0] - 10.0) ** 3 + (x[:, 1] - 20.0) ** 3)[:, None]

    def excess(self, x: np.ndarray) -> np.ndarray:
        x1, x2 = x.T
        outside = 100.0 - (x1 - 5.0) ** 2 - (x2 - 5.0) ** 2
        inside = (x1 - 6.0) ** 2 + (x2 - 5.0) ** 2 - 82.81
        return np.stack([outside, inside], axis=1)

    def optimum(self) -> float:
        """Both circles at once: x1 = 14.095, x2 = 5 - sqrt(100 - 9.095 ** 2)."""
        return float(self.values(np.array([[14.095, 5.0 - np.sqrt(100.0 - 9.095**2)]]))[0, 0])


def _box(low: Sequence[float], high: Sequence[float]) -> Real:
    return Real(low=np.array(low, np.float64), high=np.array(high, np.float64))


def _cleaned(points: np.ndarray) -> np.ndarray:
    """Those of [K, 2] that no other dominates, each once, by the first objective."""
    points = np.unique(points, axis=0)
    return points[nondominated(points)]
