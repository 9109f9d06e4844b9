"""NSGA-III's tools against the paper's counts, planes found by hand, and niching step by step."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymoo.util.ref_dirs import get_reference_directions
from scipy import stats

from lamarckian_cli.ec import pareto, reference

exact = settings(deadline=None, derandomize=True, max_examples=150)
ENOUGH = 0.001


def rows(points):
    return sorted(map(tuple, np.round(points, 12).tolist()))


# Deb & Jain 2014, table I, and the corners.
@pytest.mark.parametrize(
    ("objectives", "partitions", "count"), [(3, 12, 91), (5, 6, 210), (1, 7, 1), (2, 99, 100)]
)
def test_das_dennis_has_the_papers_counts(objectives, partitions, count):
    directions = reference.das_dennis(objectives, partitions)
    assert directions.shape == (count, objectives)
    assert count == math.comb(objectives + partitions - 1, partitions)
    np.testing.assert_allclose(directions.sum(axis=1), 1)
    steps = directions * partitions
    np.testing.assert_allclose(steps, steps.round(), atol=1e-9)
    assert directions.min() >= 0
    assert len(set(rows(directions))) == count


def test_das_dennis_is_pymoos():
    theirs = get_reference_directions("das-dennis", 4, n_partitions=5)
    assert rows(reference.das_dennis(4, 5)) == rows(theirs)


@pytest.mark.parametrize(
    ("objectives", "outer", "inner", "count"), [(8, 3, 2, 156), (10, 3, 2, 275), (15, 2, 1, 135)]
)
def test_two_layers_have_the_papers_counts(objectives, outer, inner, count):
    directions = reference.two_layers(objectives, outer, inner)
    assert directions.shape == (count, objectives)
    np.testing.assert_allclose(directions.sum(axis=1), 1)
    inside = directions[math.comb(objectives + outer - 1, outer) :]
    assert inside.min() == pytest.approx(1 / (2 * objectives))  # half way from the boundary to the centre


@pytest.mark.parametrize(("objectives", "partitions"), [(0, 3), (3, 0)])
def test_directions_of_nothing_are_refused(objectives, partitions):
    with pytest.raises(ValueError, match="must be at least 1"):
        reference.das_dennis(objectives, partitions)


# --- normalisation ----------------------------------------------------------------------


def all_of(points):
    return np.ones(len(points), bool)


def test_a_front_on_a_plane_is_measured_by_its_intercepts():
    ideal, width = np.array([-3.0, 10.0, 0.5]), np.array([2.0, 100.0, 1e-3])
    shares = reference.das_dennis(3, 8)  # includes the corners: each axis has its end
    front = ideal + shares * width
    scale = reference.rescale(front, all_of(front), None)
    np.testing.assert_allclose(scale.ideal, ideal)
    np.testing.assert_allclose(scale.nadir, ideal + width)
    np.testing.assert_allclose(scale(front), shares, atol=1e-9)


def test_the_plane_goes_beyond_the_front_where_its_corners_are_missing_but_not_beyond_what_is_there():
    # Extremes (0.8, 0.1), (0.1, 0.8) after taking off the ideal (0, 0): the line x + y = 0.9.
    front = np.array([[0.0, 0.95], [0.95, 0.0], [0.1, 0.8], [0.8, 0.1]])[2:]
    before = reference.Scale(np.zeros(2), front, np.ones(2))
    beaten = np.array([[5.0, 0.85], [0.85, 7.0]])
    points = np.concatenate((front, beaten))
    scale = reference.rescale(points, np.array([True, True, False, False]), before)
    np.testing.assert_allclose(scale.nadir, [0.9, 0.9])
    scale = reference.rescale(front, all_of(front), before)
    np.testing.assert_allclose(scale.nadir, [0.8, 0.8])


def test_extremes_and_ideal_are_remembered():
    first = np.array([[0.0, 4.0], [4.0, 0.0]])
    scale = reference.rescale(first, all_of(first), None)
    later = np.array([[1.0, 2.0], [2.0, 1.0], [5.0, 5.0]])
    scale = reference.rescale(later, np.array([True, True, False]), scale)
    np.testing.assert_allclose(scale.ideal, [0, 0])
    np.testing.assert_allclose(rows(scale.extremes), [(0, 4), (4, 0)])
    np.testing.assert_allclose(scale.nadir, [4, 4])


@pytest.mark.parametrize(
    ("front", "nadir"),
    [
        ([[1.0, 2.0]], [2.0, 4.0]),  # one point: no range at all, so the value's own size
        ([[1.0, 2.0], [1.0, 2.0]], [2.0, 4.0]),  # a point and its copy
        ([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]], [1.0, 1.0]),  # a proper line
        ([[0.0, 0.0, 3.0], [0.0, 2.0, 0.0]], [1.0, 2.0, 3.0]),  # the two ends of a line make no plane
    ],
)
def test_degenerate_fronts_have_a_scale(front, nadir):
    front = np.array(front)
    scale = reference.rescale(front, all_of(front), None)
    np.testing.assert_allclose(scale.nadir, nadir)
    assert np.isfinite(scale(front)).all()


def test_a_plane_that_meets_an_axis_below_the_ideal_point_is_not_used():
    # Each point is an extreme, and their plane meets the axes at 20/3, 6 and -60.
    front = np.array([[7.0, 0.0, 3.0], [0.0, 6.0, 0.0], [3.0, 4.0, 7.0]])
    np.testing.assert_allclose(1 / np.linalg.solve(front, np.ones(3)), [20 / 3, 6, -60])
    points = np.concatenate((front, [[20.0, 30.0, 40.0]]))
    scale = reference.rescale(points, np.array([True, True, True, False]), None)
    assert rows(scale.extremes) == rows(front)
    np.testing.assert_allclose(scale.nadir, [7, 6, 7])  # the front's worst, not the worst of all


def test_where_even_the_front_has_no_range_the_worst_of_all_stands_in():
    points = np.array([[1.0, 2.0], [4.0, 2.0], [3.0, 8.0]])
    scale = reference.rescale(points, np.array([True, False, False]), None)
    np.testing.assert_allclose(scale.nadir, [4, 8])


# --- association and niching --------------------------------------------------------------


def test_association_is_by_perpendicular_distance():
    rng = np.random.default_rng(0)
    points, directions = rng.random((40, 3)), reference.das_dennis(3, 4)
    nearest, distance = reference.associate(points, directions)
    for point, direction, length in zip(points, nearest, distance, strict=True):
        each = [np.linalg.norm(point - w * (w @ point) / (w @ w)) for w in directions]
        assert length == pytest.approx(min(each), abs=1e-12)
        assert each[direction] == pytest.approx(min(each), abs=1e-12)


def niche_by_hand(queues, taken, n, odds, chosen, outcomes):
    """Algorithm 4 over all its random choices: how likely each set of members is."""
    open_ones = [j for j in queues if queues[j]]
    if n == 0 or not open_ones:
        outcomes[frozenset(chosen)] += odds
        return
    fewest = min(taken[j] for j in open_ones)
    directions = [j for j in open_ones if taken[j] == fewest]
    for j in directions:
        members = sorted(queues[j], key=lambda member: member[1])
        options = members[:1] if taken[j] == 0 else members
        for member in options:
            rest = {**queues, j: [m for m in queues[j] if m != member]}
            more = {**taken, j: taken[j] + 1}
            share = odds / len(directions) / len(options)
            niche_by_hand(rest, more, n - 1, share, [*chosen, member[0]], outcomes)


@pytest.mark.parametrize("n", [1, 3, 4, 7])
def test_niching_lets_in_each_set_as_often_as_the_procedure(n):
    nearest = np.array([0, 0, 0, 2, 2, 3, 4])
    distance = np.array([0.3, 0.1, 0.2, 0.5, 0.4, 0.9, 0.0])
    taken = np.array([0, 5, 1, 0, 2])
    queues = {j: [(i, distance[i]) for i in np.flatnonzero(nearest == j).tolist()] for j in range(5)}
    expected: Counter = Counter()
    niche_by_hand(queues, dict(enumerate(taken.tolist())), n, 1.0, [], expected)
    rng, times = np.random.default_rng(n), 4000
    drawn = [reference.niche(nearest, distance, taken, n, rng) for _ in range(times)]
    found = Counter(frozenset(index.tolist()) for index in drawn)
    assert all(len(set(index.tolist())) == n for index in drawn)
    assert set(found) <= set(expected)
    if len(expected) > 1:
        likely = np.array([*expected.values()])
        assert stats.chisquare([found[s] for s in expected], times * likely / likely.sum()).pvalue > ENOUGH


# --- survival --------------------------------------------------------------------------------


values = st.sampled_from([0.0, 1.0, 2.0, 0.5, 1e-12, 1e300, np.inf, -np.inf, np.nan])
exceeded = st.sampled_from([0.0, 0.0, 0.5, 2.0, np.inf, np.nan])


@exact
@given(st.data())
def test_survivors_are_whole_fronts_and_some_of_the_last(data):
    count, m, n = data.draw(st.integers(0, 12)), data.draw(st.integers(1, 4)), data.draw(st.integers(0, 13))
    flat = data.draw(st.lists(values, min_size=count * m, max_size=count * m))
    objectives = np.array(flat, float).reshape(count, m)
    violation = data.draw(st.none() | st.lists(exceeded, min_size=count, max_size=count).map(np.array))
    directions, rng, scale = reference.das_dennis(m, 3), np.random.default_rng(0), None
    ranks = pareto.ranks(objectives, violation)
    for _ in range(2):  # also with a scale from before
        index, rank, scale = reference.survivors_nsga3(objectives, violation, n, directions, scale, rng)
        assert len(set(index.tolist())) == len(index) == min(n, count)
        assert rank.tolist() == ranks[index].tolist() == sorted(ranks.tolist())[:n]
        if scale is not None:
            assert (scale.nadir > scale.ideal).all()


def test_survivors_cover_the_directions():
    # One point near each of 15 directions, and a crowd of twenty near the first.
    rng = np.random.default_rng(1)
    directions = reference.das_dennis(3, 4)
    spread_out = directions + rng.normal(0, 1e-3, directions.shape) * [1, -1, 0]
    crowd = (
        directions[:1]
        + rng.normal(0, 1e-4, (20, 1)) * [1.0, -1.0, 0.0]
        + rng.normal(0, 1e-4, (20, 1)) * [0, 1, -1]
    )
    points = np.abs(np.concatenate((crowd, spread_out)))
    points /= points.sum(axis=1, keepdims=True)  # all on the plane: nobody dominates
    assert (pareto.ranks(points) == 0).all()
    index, _, scale = reference.survivors_nsga3(points, None, 15, directions, None, rng)
    nearest, _ = reference.associate(scale(points[index]), directions)
    assert sorted(nearest.tolist()) == list(range(15))


def test_who_is_infeasible_does_not_set_the_scale():
    directions, rng = reference.das_dennis(2, 4), np.random.default_rng(2)
    objectives = np.array([[0.0, 1.0], [1.0, 0.0], [-50.0, -50.0], [np.nan, 0.0]])
    violation = np.array([0.0, 0.0, 3.0, 0.0])
    index, _, scale = reference.survivors_nsga3(objectives, violation, 3, directions, None, rng)
    assert index.tolist() == [0, 1, 2]
    np.testing.assert_allclose(scale.ideal, [0, 0])
    np.testing.assert_allclose(scale.nadir, [1, 1])
    nobody = np.full(4, 1.0)
    assert reference.survivors_nsga3(objectives, nobody, 2, directions, scale, rng)[2] is None
