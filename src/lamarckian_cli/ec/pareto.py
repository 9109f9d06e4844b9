"""Pareto tools: non-dominated sorting under constraints, crowding, NSGA-II's survivors. All minimised.

`objectives` is float64 [N, M]; `violation` [N] is what constraints are exceeded by, in sum: 0
is feasible. Constrained domination is Deb's (Deb et al. 2002, section VI): feasible comes before
infeasible, infeasible are compared by violation alone, feasible by Pareto dominance.

Infinite objectives are ordinary values here. NaN anywhere in an individual means that its
evaluation failed: it counts as infinitely bad in every objective and in violation.
"""

from __future__ import annotations

import moocore
import numpy as np

HUGE = 4e307  # differences of finite values up to this one are finite


def ranks(objectives: np.ndarray, violation: np.ndarray | None = None) -> np.ndarray:
    """Non-dominated ranks [N] int64: 0 is dominated by nobody, k by some of rank k - 1.

    Individuals with equal results have equal ranks.
    """
    objectives, violation = _comparable(objectives, violation)
    if violation is None:
        return _sorted_out(objectives)
    feasible = violation <= 0
    rank = np.empty(len(objectives), np.int64)
    rank[feasible] = _sorted_out(objectives[feasible])
    _, order = np.unique(violation[~feasible], return_inverse=True)
    rank[~feasible] = order + (rank[feasible].max() + 1 if feasible.any() else 0)
    return rank


def nondominated(objectives: np.ndarray, violation: np.ndarray | None = None) -> np.ndarray:
    """Whether nobody dominates each, bool [N]: those of rank 0, faster. Equals are all kept."""
    objectives, violation = _comparable(objectives, violation)
    if violation is None:
        return _kept(objectives)
    feasible = violation <= 0
    if feasible.any():
        feasible[feasible] = _kept(objectives[feasible])
        return feasible
    least: np.ndarray = violation == violation.min()
    return least


def crowding(objectives: np.ndarray) -> np.ndarray:
    """Crowding distances [N] of one front (Deb et al. 2002, section III-B); see `crowding_by_rank`."""
    return crowding_by_rank(objectives, np.zeros(len(objectives), np.int64))


def crowding_by_rank(objectives: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Crowding distances [N] of every front at once; a front is those who share their rank [N].

    In each objective the points of a front stand in order, ties as they come in the array. A
    point gets the distance between its two neighbours divided by the front's range, summed over
    the objectives; the two at the ends get infinity. An objective in which the whole front
    agrees adds nothing. Points that are the same in every objective count once: the first has
    the distance, its copies have 0. A front of one point has infinity. Infinite objectives
    count as the greatest (least) finite one of all fronts; see `finite`.
    """
    values = finite(objectives).T
    order = _order(values, ranks)
    copies = _copies(values, ranks, order[0])
    if copies is None:
        return _distances(values, ranks, order)
    distance = np.zeros(len(ranks))
    single = np.flatnonzero(~copies)
    values, ranks = values[:, single], ranks[single]
    distance[single] = _distances(values, ranks, _order(values, ranks))
    return distance


def survivors_nsga2(
    objectives: np.ndarray, violation: np.ndarray | None, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The n that NSGA-II keeps: whole fronts, and of the last the least crowded (Deb et al. 2002, III-C).

    Returns:
        index [n] int64, rank [n] int64 and crowding distance [n], sorted by rank, then by
        crowding distance (greatest first), then as in the arrays given. Distances are those
        within the whole front. With fewer than n individuals all of them survive.
    """
    rank = ranks(objectives, violation)
    index = np.arange(len(rank))
    if 0 < n < len(rank):
        index = np.flatnonzero(rank <= np.partition(rank, n - 1)[n - 1])
        rank, objectives = rank[index], objectives[index]
    distance = crowding_by_rank(objectives, rank)
    best = np.lexsort((-distance, rank))[:n]
    return index[best], rank[best], distance[best]


def finite(objectives: np.ndarray) -> np.ndarray:
    """Objectives [N, M] to calculate with: none is infinite, NaN or beyond HUGE.

    Infinite ones (and NaN) are put at the ends of their objective's finite range, at 0 without one.
    """
    if np.abs(objectives).max(initial=0) <= HUGE:  # not so with NaN
        return objectives
    good = np.isfinite(objectives)
    values = np.clip(np.where(good, objectives, 0.0), -HUGE, HUGE)
    least = np.where(good, values, np.inf).min(axis=0)
    most = np.where(good, values, -np.inf).max(axis=0)
    ends = np.where(objectives == -np.inf, least, most)
    return np.where(good, values, np.where(np.isfinite(ends), ends, 0.0))


def _comparable(objectives: np.ndarray, violation: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Finite objectives in the same order, and the violation, None where all are feasible."""
    if not np.isfinite(objectives).all():
        # moocore is right about finite numbers alone: infinite ones give it wrong ranks, or end the process.
        failed = np.isnan(objectives).any(axis=1)
        objectives = _places(np.where(failed[:, None], np.inf, objectives))
        if violation is not None:
            violation = np.where(failed, np.inf, violation)
    if violation is None:
        return objectives, None
    if (violation <= 0).all():
        return objectives, None
    return objectives, np.where(np.isnan(violation), np.inf, violation)


def _places(objectives: np.ndarray) -> np.ndarray:
    """float64 [N, M]: which place each value has among those of its column, equal ones the same."""
    columns = [np.unique(column, return_inverse=True)[1] for column in objectives.T]
    return np.stack(columns, axis=1).astype(np.float64)


def _sorted_out(objectives: np.ndarray) -> np.ndarray:
    """Ranks [N] int64 by Pareto dominance alone; finite objectives."""
    rank: np.ndarray = moocore.pareto_rank(objectives).astype(np.int64)
    return rank


def _kept(objectives: np.ndarray) -> np.ndarray:
    """Which of finite objectives nobody dominates, bool [N]."""
    kept: np.ndarray = moocore.is_nondominated(objectives, keep_weakly=True)
    return kept


def _order(values: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Indices [M, N] that sort each objective of [M, N] within fronts, the fronts by rank."""
    order = values.argsort(axis=1, kind="stable")
    if len(ranks) and ranks.min() != ranks.max():
        by_rank = ranks[order].argsort(axis=1, kind="stable")
        order = order[np.arange(len(order))[:, None], by_rank]
    return order


def _copies(values: np.ndarray, ranks: np.ndarray, order: np.ndarray) -> np.ndarray | None:
    """Which points [N] repeat an earlier one of their front; None where nobody does.

    `order` [N] sorts by rank and the first objective: unless two agree in that, nobody repeats.
    """
    first, rank = values[0, order], ranks[order]
    ties = first[1:] == first[:-1]
    ties &= rank[1:] == rank[:-1]
    if not ties.any():
        return None
    order = np.lexsort((*values, ranks))
    rows = np.concatenate((values, ranks[None]))[:, order]
    copies = np.zeros(len(ranks), bool)
    copies[order[1:]] = (rows[:, 1:] == rows[:, :-1]).all(axis=0)
    return copies


def _distances(values: np.ndarray, ranks: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Crowding distances [N] of points without copies; finite values [M, N], `order` [M, N] of `_order`."""
    objectives, n = values.shape
    if n == 0:
        return np.zeros(0)
    ordered = values[np.arange(objectives)[:, None], order]
    rank = ranks[order[0]]
    starts = np.flatnonzero(np.concatenate(([True], rank[1:] != rank[:-1])))
    ends = np.append(starts[1:], n) - 1
    span = ordered[:, ends] - ordered[:, starts]  # [M, fronts]
    agree = span == 0
    span[agree] = 1
    gaps = np.empty((objectives, n))
    np.subtract(ordered[:, 2:], ordered[:, :-2], out=gaps[:, 1:-1])
    gaps[:, starts] = gaps[:, ends] = 0
    gaps /= np.repeat(span, ends - starts + 1, axis=1)
    gaps[:, starts] = gaps[:, ends] = np.where(agree & (starts != ends), 0, np.inf)
    distance = np.zeros(n)
    for places, gap in zip(order, gaps, strict=True):
        distance[places] += gap
    return distance
