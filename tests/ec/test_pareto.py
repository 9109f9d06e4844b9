"""Sorting, crowding and survival against their definitions, written out pair by pair and point by point."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamarckian_cli.ec import pareto

exact = settings(deadline=None, derandomize=True, max_examples=150)

HIGHEST = np.finfo(float).max
# Few distinct values, for ties and duplicates; failures, infinities and signed zeros among them.
values = st.sampled_from([0.0, -0.0, 1.0, 2.0, 3.0, 1e-300, HIGHEST, -HIGHEST, np.inf, -np.inf, np.nan])
ordinary = st.sampled_from([0.0, 1.0, 2.0, 3.0, 0.25])
exceeded = st.sampled_from([0.0, 0.0, -1.0, 1e-9, 0.5, 2.0, np.inf, np.nan])


@st.composite
def populations(draw, value=values):
    """Objectives [N, M], N from 0, and a violation [N] or None."""
    n, m = draw(st.integers(0, 14)), draw(st.integers(1, 5))
    objectives = np.array(draw(st.lists(value, min_size=n * m, max_size=n * m)), float).reshape(n, m)
    violation = draw(st.none() | st.lists(exceeded, min_size=n, max_size=n))
    return objectives, None if violation is None else np.array(violation, float)


def dominates(one, other):
    """Deb's constrained domination; one and other are (objectives, violation), failed ones all infinite."""
    (f, v), (g, w) = one, other
    if v <= 0 and w <= 0:
        return all(a <= b for a, b in zip(f, g, strict=True)) and any(
            a < b for a, b in zip(f, g, strict=True)
        )
    return w > 0 and v < w


def judged(objectives, violation):
    """Each individual as (objectives, violation); NaN makes it infinitely bad."""
    people = []
    for i, row in enumerate(objectives.tolist()):
        v = 0.0 if violation is None else float(violation[i])
        if any(math.isnan(x) for x in row):
            row, v = [math.inf] * len(row), v if violation is None else math.inf
        people.append((row, math.inf if math.isnan(v) else v))
    return people


def fronts_by_definition(objectives, violation):
    """Ranks by taking off, again and again, those whom nobody that is left dominates."""
    people = judged(objectives, violation)
    rank, left, k = [0] * len(people), set(range(len(people))), 0
    while left:
        front = {i for i in left if not any(dominates(people[j], people[i]) for j in left)}
        for i in front:
            rank[i] = k
        left, k = left - front, k + 1
    return rank


@exact
@given(populations())
def test_ranks_and_nondominated_are_those_of_the_definition(population):
    objectives, violation = population
    expected = fronts_by_definition(objectives, violation)
    given_objectives = objectives.copy()
    actual = pareto.ranks(objectives, violation)
    assert actual.dtype == np.int64
    assert actual.tolist() == expected
    assert pareto.nondominated(objectives, violation).tolist() == [r == 0 for r in expected]
    np.testing.assert_array_equal(objectives, given_objectives)


@pytest.mark.parametrize("objectives", [2, 3, 6])
def test_ranks_of_many_points(objectives):
    points = np.random.default_rng(objectives).random((300, objectives)).round(2)
    assert pareto.ranks(points).tolist() == fronts_by_definition(points, None)


def test_who_failed_is_behind_everybody():
    objectives = np.array([[5.0, 5.0], [np.nan, 0.0], [np.inf, 1e9], [0.0, 0.0]])
    assert pareto.ranks(objectives).tolist() == [1, 3, 2, 0]
    violation = np.array([3.0, 0.0, 0.0, 7.0])
    assert pareto.ranks(objectives, violation).tolist() == [1, 3, 0, 2]


def crowding_by_definition(front):
    """One front, a list of points: neighbours in each objective, copies aside."""
    firsts = [i for i, p in enumerate(front) if p not in front[:i]]
    distance = [0.0] * len(front)
    if len(firsts) == 1:
        distance[firsts[0]] = math.inf
        return distance
    for m in range(len(front[0])):
        order = sorted(firsts, key=lambda i: front[i][m])  # Python's sort leaves ties in their order
        span = front[order[-1]][m] - front[order[0]][m]
        if span == 0:
            continue
        distance[order[0]] = distance[order[-1]] = math.inf
        for before, here, after in zip(order, order[1:], order[2:], strict=False):
            distance[here] += (front[after][m] - front[before][m]) / span
    return distance


@exact
@given(populations(ordinary))
def test_crowding_is_that_of_the_definition_in_every_front(population):
    objectives, violation = population
    rank = pareto.ranks(objectives, violation)
    actual = pareto.crowding_by_rank(objectives, rank)
    assert actual.shape == (len(objectives),)
    for k in set(rank.tolist()):
        members = np.flatnonzero(rank == k)
        expected = crowding_by_definition(objectives[members].tolist())
        np.testing.assert_allclose(actual[members], expected, rtol=1e-12)
        np.testing.assert_allclose(pareto.crowding(objectives[members]), expected, rtol=1e-12)


def test_crowding_of_a_front_by_hand():
    # In f1 the neighbours of the third are 1 and 4 of a range of 4, in f2 0 and 3 of a range of 5.
    front = np.array([[0.0, 5.0], [1.0, 3.0], [2.0, 2.0], [4.0, 0.0]])
    np.testing.assert_allclose(pareto.crowding(front), [np.inf, 2 / 4 + 3 / 5, 3 / 4 + 3 / 5, np.inf])
    twice = pareto.crowding(front[[0, 1, 2, 2, 3, 0]])
    np.testing.assert_allclose(twice, [np.inf, 1.1, 1.35, 0, np.inf, 0])


@exact
@given(populations(), st.integers(0, 16))
def test_crowding_is_never_nan_and_survivors_are_those_of_nsga2(population, n):
    objectives, violation = population
    index, rank, distance = pareto.survivors_nsga2(objectives, violation, n)
    everybody = pareto.ranks(objectives, violation)
    crowded = pareto.crowding_by_rank(objectives, everybody)
    assert not np.isnan(crowded).any()
    order = sorted(range(len(everybody)), key=lambda i: (everybody[i], -crowded[i], i))
    assert sorted(index.tolist()) == sorted(set(index.tolist()))
    assert rank.tolist() == everybody[index].tolist()
    if np.isfinite(objectives).all():
        assert index.tolist() == order[:n]
        np.testing.assert_array_equal(distance, crowded[index])
    else:  # what stands in for infinity depends on who is looked at, and so does the order in a front
        assert len(index) == min(n, len(everybody))
        assert rank.tolist() == sorted(everybody.tolist())[:n]


def test_sorting_many_fronts_at_once_is_sorting_each():
    rng = np.random.default_rng(3)
    points = rng.random((400, 3)).round(1)
    index, rank, distance = pareto.survivors_nsga2(points, None, 250)
    everybody = np.array(fronts_by_definition(points, None))
    for k in range(rank.max()):
        members = np.flatnonzero(everybody == k)
        assert sorted(index[rank == k]) == members.tolist()
        whole = dict(zip(members, crowding_by_definition(points[members].tolist()), strict=True))
        np.testing.assert_allclose(distance[rank == k], [whole[i] for i in index[rank == k]], rtol=1e-12)
    last = np.flatnonzero(everybody == rank.max())
    by_room = sorted(crowding_by_definition(points[last].tolist()), reverse=True)
    np.testing.assert_allclose(
        distance[rank == rank.max()], by_room[: (rank == rank.max()).sum()], rtol=1e-12
    )
