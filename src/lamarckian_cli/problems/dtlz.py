"""DTLZ1 to DTLZ7: any number of objectives M; the first M - 1 numbers P place a point, the last k give g.

Source: Deb, Thiele, Laumanns, Zitzler, "Scalable Test Problems for Evolutionary Multiobjective
Optimization", TIK report 112 (2001) and its chapter of 2005. k as published there: 5 for DTLZ1,
10 for DTLZ2 to DTLZ6, 20 for DTLZ7. On each front g is least.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from lamarckian_cli.ec.coding import bounds
from lamarckian_cli.errors import require
from lamarckian_cli.problems import fronts
from lamarckian_cli.problems.formula import Formula, minimised

HALF_PI = 0.5 * np.pi


class _DTLZ(Formula):
    """All numbers are within [0, 1]; `dim` is M - 1 + k, and None is that with the published k."""

    K: ClassVar[int] = 10

    def __init__(self, *, objectives: int = 3, dim: int | None = None) -> None:
        require(objectives >= 2, "problem.objectives", objectives, "it must be at least 2 (3 is usual)")
        self.m = objectives
        size = objectives - 1 + self.K if dim is None else dim
        remedy = f"it must be at least problem.objectives, {objectives}, or null for the published {self.K}"
        require(size >= objectives, "problem.dim", dim, f"{remedy} numbers beside the first ones")
        super().__init__(bounds(0.0, 1.0, size), minimised(objectives))

    def split(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """P [N, M - 1] and Q [N, k]."""
        return x[:, : self.m - 1], x[:, self.m - 1 :]


class DTLZ1(_DTLZ):
    """A flat front behind 11 ** k - 1 local ones."""

    K = 5

    def values(self, x: np.ndarray) -> np.ndarray:
        p, q = self.split(x)
        return _chain(0.5 * (1.0 + _rugged(q)), p, 1.0 - p)

    def front(self) -> np.ndarray:
        return fronts.simplex(self.m)


class DTLZ2(_DTLZ):
    """The unit sphere's positive part."""

    def values(self, x: np.ndarray) -> np.ndarray:
        p, q = self.split(x)
        return _sphere(1.0 + _smooth(q), p * HALF_PI)

    def front(self) -> np.ndarray:
        return fronts.sphere(self.m)


class DTLZ3(_DTLZ):
    """DTLZ2's front behind 3 ** k - 1 local ones."""

    def values(self, x: np.ndarray) -> np.ndarray:
        p, q = self.split(x)
        return _sphere(1.0 + _rugged(q), p * HALF_PI)

    def front(self) -> np.ndarray:
        return fronts.sphere(self.m)


class DTLZ4(_DTLZ):
    """DTLZ2 with most solutions near the edges of the front (alpha 100)."""

    def values(self, x: np.ndarray) -> np.ndarray:
        p, q = self.split(x)
        return _sphere(1.0 + _smooth(q), p**100.0 * HALF_PI)

    def front(self) -> np.ndarray:
        return fronts.sphere(self.m)


class DTLZ5(_DTLZ):
    """A front that is a curve; with four objectives or more it is another than was meant, see `front`."""

    def values(self, x: np.ndarray) -> np.ndarray:
        p, q = self.split(x)
        return _curved(p, _smooth(q))

    def front(self) -> np.ndarray | None:
        """None from four objectives on: solutions off the curve are not dominated there (Huband, Hingston,
        Barone, While, IEEE TEC 10(5), 2006, section VI), and nobody has the true front in closed form."""
        return fronts.curve(self.m) if self.m <= 3 else None


class DTLZ6(_DTLZ):
    """DTLZ5's front, hard to come near."""

    def values(self, x: np.ndarray) -> np.ndarray:
        p, q = self.split(x)
        return _curved(p, np.add.reduce(q**0.1, axis=1))

    def front(self) -> np.ndarray | None:
        """As of DTLZ5."""
        return fronts.curve(self.m) if self.m <= 3 else None


class DTLZ7(_DTLZ):
    """A front in 2 ** (M - 1) pieces."""

    K = 20

    def values(self, x: np.ndarray) -> np.ndarray:
        p, q = self.split(x)
        g = 1.0 + np.add.reduce(q, axis=1) * (9.0 / q.shape[1])
        h = self.m - np.add.reduce(p * (1.0 + np.sin(3.0 * np.pi * p)), axis=1) / (1.0 + g)
        objectives = np.empty((len(x), self.m))
        objectives[:, :-1] = p
        objectives[:, -1] = (1.0 + g) * h
        return objectives

    def front(self) -> np.ndarray:
        return fronts.dtlz7(self.m)


def _smooth(q: np.ndarray) -> np.ndarray:
    """g of DTLZ2, [N]: the squared distance of Q from 0.5."""
    q = q - 0.5
    return np.add.reduce(q * q, axis=1)


def _rugged(q: np.ndarray) -> np.ndarray:
    """g of DTLZ1, [N]: 100 times Rastrigin's function of Q around 0.5."""
    q = q - 0.5
    return 100.0 * (q.shape[1] + np.add.reduce(q * q - np.cos(20.0 * np.pi * q), axis=1))


def _curved(p: np.ndarray, g: np.ndarray) -> np.ndarray:
    """[N, M] of DTLZ5: all angles but the first tend to 45 degrees as g does to 0."""
    angles = p * HALF_PI
    angles[:, 1:] = (1.0 + 2.0 * g[:, None] * p[:, 1:]) * (0.5 * HALF_PI / (1.0 + g))[:, None]
    return _sphere(1.0 + g, angles)


def _sphere(radius: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """[N, M] on spheres of `radius` [N], at `angles` [N, M - 1]."""
    return _chain(radius, np.cos(angles), np.sin(angles))


def _chain(scale: np.ndarray, factors: np.ndarray, lasts: np.ndarray) -> np.ndarray:
    """[N, M] of scale [N], factors and lasts [N, M - 1].

    Objective M - j is scale * factors[0] * ... * factors[j - 1] * lasts[j]; the first has no last.
    """
    m = factors.shape[1] + 1
    objectives = np.empty((len(scale), m))
    for j in range(m - 1):
        np.multiply(scale, lasts[:, j], out=objectives[:, m - 1 - j])
        scale = scale * factors[:, j]
    objectives[:, 0] = scale
    return objectives
