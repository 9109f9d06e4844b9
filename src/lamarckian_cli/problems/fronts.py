"""Points of true Pareto fronts, as indicators use them: about a thousand each, evenly in the parameter.

IGD depends on the reference set, so figures compare only where the set is the same: 1000
points for a curve, 990 for three objectives of DTLZ1 to DTLZ4 (Das and Dennis, 43
partitions), 1024 for DTLZ7.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from lamarckian_cli.ec.reference import das_dennis, two_layers
from lamarckian_cli.seeding import stream

POINTS = 1000
# Where ZDT3's curve is not dominated, as intervals of f1.
ZDT3_PIECES = (
    (0.0, 0.0830015349),
    (0.1822287280, 0.2577623634),
    (0.4093136748, 0.4538821041),
    (0.6183967944, 0.6525117038),
    (0.8233317983, 0.8518328654),
)
ZDT6_F1_LEAST = 0.2807753191  # of 1 - exp(-4 x) sin(6 pi x) ** 6 on [0, 1]
# Where DTLZ7's is not, for each objective but the last.
DTLZ7_PIECES = ((0.0, 0.2514118360), (0.6316265307, 0.8594008566))
DTLZ7_POINTS = 1024
LATTICE_POINTS = 1000  # at most


def root() -> np.ndarray:
    """f2 = 1 - sqrt(f1) of ZDT1 and ZDT4, [1000, 2]."""
    f1 = np.linspace(0.0, 1.0, POINTS)
    return np.column_stack([f1, 1.0 - np.sqrt(f1)])


def square(f1_least: float = 0.0) -> np.ndarray:
    """f2 = 1 - f1 ** 2 of ZDT2 and, from its least f1 on, ZDT6, [1000, 2]."""
    f1 = np.linspace(f1_least, 1.0, POINTS)
    return np.column_stack([f1, 1.0 - f1**2])


def zdt3() -> np.ndarray:
    """Five pieces of 200 points each, [1000, 2]."""
    f1 = np.concatenate([np.linspace(a, b, POINTS // len(ZDT3_PIECES)) for a, b in ZDT3_PIECES])
    return np.column_stack([f1, 1.0 - np.sqrt(f1) - f1 * np.sin(10.0 * np.pi * f1)])


def simplex(objectives: int) -> np.ndarray:
    """Sum 0.5, of DTLZ1, [K, M]."""
    return 0.5 * lattice(objectives)


def sphere(objectives: int) -> np.ndarray:
    """Norm 1, of DTLZ2 to DTLZ4, [K, M]: the lattice, each point moved along its ray."""
    points = lattice(objectives)
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def curve(objectives: int) -> np.ndarray:
    """DTLZ5's and DTLZ6's with two or three objectives, [1000, M]."""
    angle = np.linspace(0.0, np.pi / 2, POINTS)
    if objectives == 2:
        return np.column_stack([np.cos(angle), np.sin(angle)])
    half = np.cos(angle) / np.sqrt(2.0)
    return np.column_stack([half, half, np.sin(angle)])


def dtlz7(objectives: int) -> np.ndarray:
    """All objectives but the last, each in its two pieces, and the last that follows, [K, M].

    The last is a sum of one term for each other objective, so a point is on the front exactly
    when each of these is on the front of its own term. Up to four objectives they make a grid
    of at most 1024 points; a grid in more dimensions is too coarse, so there it is 1024 points of a
    fixed draw.
    """
    axes = objectives - 1
    if axes <= 3:
        each = int(DTLZ7_POINTS ** (1.0 / axes) + 1e-9) // 2
        axis = np.concatenate([np.linspace(a, b, each) for a, b in DTLZ7_PIECES])
        first = np.array(list(itertools.product(axis, repeat=axes)))
    else:
        rng = stream(0, "dtlz7", objectives)
        pieces = np.array(DTLZ7_PIECES)[rng.integers(0, 2, (DTLZ7_POINTS, axes))]
        first = rng.uniform(pieces[..., 0], pieces[..., 1])
    last = objectives - (first / 2.0 * (1.0 + np.sin(3.0 * np.pi * first))).sum(1)
    return np.column_stack([first, 2.0 * last])


def lattice(objectives: int) -> np.ndarray:
    """Das and Dennis's points of the unit simplex, [K, M]: the finest of at most a thousand.

    With fewer partitions than objectives every point lies on the edge, so a second layer, half
    as large, is put inside (Deb and Jain, IEEE TEC 18(4), 2014, section IV-A).
    """
    partitions = 1
    while math.comb(partitions + objectives, objectives - 1) <= LATTICE_POINTS:
        partitions += 1
    points = das_dennis(objectives, partitions)
    if partitions >= objectives:
        return points
    while partitions > 1 and 2 * math.comb(partitions + objectives - 1, objectives - 1) > LATTICE_POINTS:
        partitions -= 1
    return two_layers(objectives, partitions, partitions)
