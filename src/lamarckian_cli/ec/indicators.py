"""Quality indicators of a set of objectives [N, M] float64, all minimised: one number each.

They take the points as they are, dominated ones included; filter with `pareto.nondominated`
first where the front alone is meant. Points with a NaN or infinite objective (failed ones) are
left out. `front` [K, M] are points of the true front. Distances are Euclidean, nothing is
normalised.
"""

from __future__ import annotations

import math

import moocore
import numpy as np

ROWS = 1024  # of a distance matrix at a time, so that its memory stays small


def hypervolume(objectives: np.ndarray, reference: np.ndarray) -> float:
    """The volume that is dominated and lies below `reference` [M] (Zitzler & Thiele 1998), exactly.

    Seconds for 100 points of eight objectives and minutes for ten: there, `hypervolume_estimate`.
    """
    points = _finite(objectives, np.atleast_2d(reference))
    return float(moocore.hypervolume(points, ref=reference)) if len(points) else 0.0


def hypervolume_estimate(objectives: np.ndarray, reference: np.ndarray, *, samples: int = 2**15) -> float:
    """The hypervolume by deterministic quasi-random directions, to about 1 % with ten objectives.

    The method is moocore's (Deng & Zhang 2019); the same points give the same number.
    """
    points = _finite(objectives, np.atleast_2d(reference))
    return float(moocore.hv_approx(points, ref=reference, nsamples=samples)) if len(points) else 0.0


def igd(objectives: np.ndarray, front: np.ndarray) -> float:
    """Inverted generational distance: the mean, over the front, of the distance to the nearest point.

    Coello Coello & Reyes Sierra 2004. Infinite without any point.
    """
    points = _finite(objectives, front)
    return float(moocore.igd(points, ref=front)) if len(points) else math.inf


def igd_plus(objectives: np.ndarray, front: np.ndarray) -> float:
    """IGD+ (Ishibuchi et al. 2015): as IGD, but only objectives that are worse than the front's count.

    So that better points never give a worse number. Infinite without any point.
    """
    points = _finite(objectives, front)
    return float(moocore.igd_plus(points, ref=front)) if len(points) else math.inf


def gd(objectives: np.ndarray, front: np.ndarray) -> float:
    """Generational distance: the mean, over the points, of the distance to the nearest of the front.

    The mean (p = 1) of Van Veldhuizen & Lamont's (1998) distances. Infinite without any point.
    """
    points = _finite(objectives, front)
    return float(moocore.igd(front, ref=points)) if len(points) else math.inf


def spread(objectives: np.ndarray, front: np.ndarray) -> float:
    """How unevenly the points lie along the front: Δ; 0 is even and reaches the ends.

    With two objectives it is Deb's (Deb et al. 2002, section V-A), d_i between neighbours on the
    curve and d_f, d_l from the front's ends to the nearest points at the ends of the set:

        Δ = (d_f + d_l + Σ |d_i - d̄|) / (d_f + d_l + (N - 1) d̄)

    Else its generalisation (Zhou et al. 2006), d_i from each point to its nearest other, and e_m
    from the front's M extreme points (the greatest value of each objective) to the nearest point:

        Δ = (Σ e_m + Σ |d_i - d̄|) / (Σ e_m + N d̄)

    Infinite without any point; 1 for a single one.
    """
    points = _finite(objectives, front)
    if not len(points):
        return math.inf
    if points.shape[1] == 2:
        points = points[np.lexsort(points.T[::-1])]
        ends = front[np.lexsort(front.T[::-1])][[0, -1]]
        missed = np.linalg.norm(ends - points[[0, -1]], axis=1).sum()
        gaps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    else:
        missed = _nearest(front[front.argmax(axis=0)], points).sum()
        gaps = _nearest(points, points, others_only=True)
    uneven = np.abs(gaps - gaps.mean()).sum() if len(gaps) else 0.0
    whole = missed + gaps.sum()
    return float((missed + uneven) / whole) if whole > 0 else 1.0


def _finite(objectives: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Points without NaN and infinity; a ValueError where they do not have the other's objectives."""
    if objectives.ndim != 2 or other.ndim != 2 or objectives.shape[1] != other.shape[1] or not len(other):
        raise ValueError(
            f"points have shape {list(objectives.shape)} and the front or reference {list(other.shape)}; "
            "both must be [any, M], with the same M, and the front not empty"
        )
    kept: np.ndarray = objectives[np.isfinite(objectives).all(axis=1)]
    return kept


def _nearest(points: np.ndarray, others: np.ndarray, *, others_only: bool = False) -> np.ndarray:
    """Distances [N] from each of `points` [N, M] to the nearest of `others` [K, M]; empty for one alone.

    With `others_only` both are the same set, and no point counts as its own neighbour.
    """
    if others_only and len(points) < 2:
        return np.zeros(0)
    nearest = np.empty(len(points))
    for start in range(0, len(points), ROWS):
        some = points[start : start + ROWS]
        squares = np.zeros((len(some), len(others)))
        for mine, theirs in zip(some.T, others.T, strict=True):
            squares += np.square(mine[:, None] - theirs)
        if others_only:
            squares[np.arange(len(some)), np.arange(start, start + len(some))] = np.inf
        nearest[start : start + ROWS] = np.sqrt(squares.min(axis=1))
    return nearest
