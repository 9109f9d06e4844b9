"""NSGA-III's tools (Deb & Jain 2014): reference directions, normalisation, association, niching.

The numbers of algorithms and equations are the paper's. All objectives are minimised.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from lamarckian_cli.ec.pareto import finite, ranks

AXIS_WEIGHT = 1e-6  # of the other objectives where an extreme point is sought (section IV-B)
NARROW = 1e-12  # a range below this share of the ideal value is rounding, nothing to divide by
FAR = 1e100  # how far normalised objectives reach; their squares must be finite


@dataclass(frozen=True, slots=True)
class Scale:
    """What objectives are measured by; it goes from generation to generation."""

    ideal: np.ndarray  # [M] the least of each objective that was ever seen
    extremes: np.ndarray  # [M, M] row m is the point that is the best for axis m
    nadir: np.ndarray  # [M] where 1 is: the intercepts of the plane through the extremes, or a stand-in

    def __call__(self, objectives: np.ndarray) -> np.ndarray:
        """Objectives [N, M] in units of the front: ideal to nadir is 0 to 1 (equation 4)."""
        with np.errstate(over="ignore"):
            measured: np.ndarray = (objectives - self.ideal) / (self.nadir - self.ideal)
        return measured.clip(-FAR, FAR)


def das_dennis(objectives: int, partitions: int) -> np.ndarray:
    """Directions [C(M + p - 1, p), M]: all that sum to 1 in steps of 1/p (Das & Dennis 1998)."""
    if objectives < 1 or partitions < 1:
        raise ValueError(f"{objectives} objectives in {partitions} partitions; both must be at least 1")
    # Bars among stars: where M - 1 bars stand in p + M - 1 places says what each objective gets.
    places = partitions + objectives - 1
    bars = np.array([*itertools.combinations(range(places), objectives - 1)], np.int64)
    bars = bars.reshape(math.comb(places, partitions), objectives - 1)
    edges = np.pad(bars, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, places)))
    return (np.diff(edges, axis=1) - 1) / partitions


def two_layers(objectives: int, outer: int, inner: int) -> np.ndarray:
    """Directions of `outer` partitions and, half way to the centre, of `inner` ones (section IV-A's end).

    For many objectives, where one layer would have either all its directions on the boundary
    or far too many of them. The paper takes 3 and 2 for eight objectives.
    """
    inside = das_dennis(objectives, inner) / 2 + 1 / (2 * objectives)
    return np.concatenate((das_dennis(objectives, outer), inside))


def rescale(objectives: np.ndarray, front: np.ndarray, before: Scale | None) -> Scale:
    """The scale after seeing objectives [N, M], finite, with `front` [N] bool the first front (Algorithm 2).

    Extreme points minimise the achievement scalarising function (equation 5) among the front
    and the extremes of `before`. The plane through them says where each objective ends, though no
    further than the worst of all. Where they make no plane, or it ends below the ideal point,
    the front's worst stands in; where that is no range, the worst of all; else a range is made up.
    """
    ideal = objectives.min(axis=0) if before is None else np.minimum(before.ideal, objectives.min(axis=0))
    candidates = objectives[front]
    if before is not None:
        candidates = np.concatenate((before.extremes, candidates))
    extremes = candidates[_achievement(candidates - ideal).argmin(axis=0)]
    worst = objectives.max(axis=0)
    narrow = ideal + NARROW * np.abs(ideal)
    nadir = np.minimum(_intercepts(extremes - ideal) + ideal, worst)
    if not np.all(nadir > narrow):  # also where they are NaN
        nadir = objectives[front].max(axis=0)
    nadir = np.where(nadir > narrow, nadir, worst)
    return Scale(ideal, extremes, np.where(nadir > narrow, nadir, ideal + np.maximum(1, np.abs(ideal))))


def associate(normalised: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The direction [N] nearest to each of normalised [N, M], and the distance [N] (Algorithm 3).

    Distances are perpendicular, to the line from the origin along each of directions [K, M].
    """
    unit = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    along = normalised @ unit.T
    nearest = np.abs(along).argmax(
        axis=1
    )  # the longest leg of a right triangle, so the other is the shortest
    foot = along[np.arange(len(nearest)), nearest, None] * unit[nearest]
    return nearest, np.linalg.norm(normalised - foot, axis=1)


def niche(
    nearest: np.ndarray, distance: np.ndarray, taken: np.ndarray, n: int, rng: np.random.Generator
) -> np.ndarray:
    """Indices [n] of those of the last front that are let in (Algorithm 4); all where they are fewer.

    Again and again a direction with the fewest members lets one in: the nearest where it had
    none, else any of its candidates. Since a direction's candidates enter one a turn, the
    turn of each can be told at once: members already taken + its place in the direction's queue.

    Args:
        nearest, distance: [L] of the last front, from `associate`.
        taken: [K] how many members each direction has already.
    """
    drawn = rng.random(len(nearest))
    by_distance = np.lexsort((drawn, distance, nearest))
    directions, starts, lengths = np.unique(nearest[by_distance], return_index=True, return_counts=True)
    drawn[by_distance[starts[taken[directions] == 0]]] = -1  # before everybody else of that direction
    queue = np.lexsort((drawn, nearest))
    turn = np.arange(len(queue)) - np.repeat(starts - taken[directions], lengths)
    chosen: np.ndarray = queue[np.lexsort((rng.random(len(queue)), turn))[:n]]
    return chosen


def survivors_nsga3(
    objectives: np.ndarray,
    violation: np.ndarray | None,
    n: int,
    directions: np.ndarray,
    before: Scale | None,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, Scale | None]:
    """The n that NSGA-III keeps: whole fronts, and of the last those of directions with few members.

    Algorithm 1, with constrained domination (Jain & Deb 2014). Objectives are measured by feasible
    individuals alone while there are any; while there are none, no scale is carried on.

    Args:
        objectives, violation: [N, M] and [N] as in `pareto`.
        directions: [K, M].
        before: what the generation before returned; None at first.

    Returns:
        index [n] int64, sorted by rank; rank [n] int64; the scale.
    """
    rank = ranks(objectives, violation)
    index = np.argsort(rank, kind="stable")
    n = min(n, len(index))
    if n == 0:
        return index[:0], rank[:0], before
    index = index[: np.searchsorted(rank[index], rank[index[n - 1]], side="right")]
    rank = rank[index]
    values = finite(objectives[index])
    usable = np.isfinite(objectives[index]).all(axis=1)
    if violation is not None:
        usable &= violation[index] <= 0
    if usable.any():
        scale = after = rescale(values[usable], rank[usable] == rank[usable].min(), before)
    else:
        scale, after = rescale(values, rank == 0, None), None
    last = rank == rank[-1]
    if len(index) > n:
        nearest, distance = associate(scale(values), directions)
        taken = np.bincount(nearest[~last], minlength=len(directions))
        inside = int(np.count_nonzero(~last))
        chosen = inside + niche(nearest[last], distance[last], taken, n - inside, rng)
        keep = np.concatenate((np.arange(inside), np.sort(chosen)))
        index, rank = index[keep], rank[keep]
    return index, rank, after


def _achievement(translated: np.ndarray) -> np.ndarray:
    """The achievement scalarising function [N, M] of translated [N, M] towards each axis (equation 5).

    Times the weight of the other axes, so that large objectives do not overflow.
    """
    weights = np.ones((translated.shape[1],) * 2)
    np.fill_diagonal(weights, AXIS_WEIGHT)
    reached: np.ndarray = (translated[:, None, :] * weights).max(axis=2)
    return reached


def _intercepts(extremes: np.ndarray) -> np.ndarray:
    """Where the plane through the rows of extremes [M, M] meets the axes [M]; NaN without such a plane."""
    try:
        normal = np.linalg.solve(extremes, np.ones(len(extremes)))
    except np.linalg.LinAlgError:
        return np.full(len(extremes), np.nan)
    with np.errstate(divide="ignore", over="ignore"):
        return 1 / normal
