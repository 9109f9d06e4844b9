"""Indicators against their formulas, point by point, and against published examples."""

import itertools
import math

import numpy as np
import pytest

from lamarckian_cli.ec import indicators

rng = np.random.default_rng(0)
FRONTS = {m: rng.random((30, m)) for m in (1, 2, 3, 5)}
POINTS = {m: rng.random((12, m)) * 1.5 for m in (1, 2, 3, 5)}


def volume_by_inclusion_and_exclusion(points, reference):
    """Of the union of the boxes between each point and the reference."""
    total = 0.0
    for k in range(1, len(points) + 1):
        for some in itertools.combinations(points, k):
            edges = [max(0.0, r - max(p[m] for p in some)) for m, r in enumerate(reference)]
            total -= (-1) ** k * math.prod(edges)
    return total


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_hypervolume_is_the_volume_of_the_union(m):
    reference = np.linspace(1.0, 1.2, m)  # some points are beyond it
    expected = volume_by_inclusion_and_exclusion(POINTS[m].tolist(), reference.tolist())
    assert indicators.hypervolume(POINTS[m], reference) == pytest.approx(expected, rel=1e-9)
    if m > 1:
        estimate = indicators.hypervolume_estimate(POINTS[m], reference)
        assert estimate == pytest.approx(expected, rel=0.02)
        assert estimate == indicators.hypervolume_estimate(POINTS[m], reference)


def test_hypervolume_of_points_that_do_not_count():
    points = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, -5.0], [np.nan, 0.0], [-np.inf, 0.0], [0.5, np.inf]])
    assert indicators.hypervolume(points, np.array([2.0, 2.0])) == pytest.approx(3.0)
    assert indicators.hypervolume(points[2:], np.array([2.0, 2.0])) == 0.0
    assert indicators.hypervolume_estimate(points[2:], np.array([2.0, 2.0])) == 0.0


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_distances_are_those_of_the_formulas(m):
    points, front = POINTS[m].tolist(), FRONTS[m].tolist()
    igd = sum(min(math.dist(z, p) for p in points) for z in front) / len(front)
    gd = sum(min(math.dist(z, p) for z in front) for p in points) / len(points)
    plus = 0.0
    for z in front:
        worse = [math.hypot(*(max(a - b, 0.0) for a, b in zip(p, z, strict=True))) for p in points]
        plus += min(worse) / len(front)
    assert indicators.igd(POINTS[m], FRONTS[m]) == pytest.approx(igd, rel=1e-12)
    assert indicators.gd(POINTS[m], FRONTS[m]) == pytest.approx(gd, rel=1e-12)
    assert indicators.igd_plus(POINTS[m], FRONTS[m]) == pytest.approx(plus, rel=1e-12)


def test_igd_plus_of_ishibuchis_example():
    # Ishibuchi et al. 2015, example 4: A is better than B, IGD says otherwise, IGD+ does not.
    front = np.array([[10, 0], [6, 1], [2, 2], [1, 6], [0, 10]], float)
    a, b = np.array([[4, 2], [3, 3], [2, 4]], float), np.array([[8, 2], [4, 4], [2, 8]], float)
    assert [indicators.igd(a, front), indicators.igd(b, front)] == pytest.approx([3.707, 2.591], abs=5e-4)
    assert [indicators.igd_plus(a, front), indicators.igd_plus(b, front)] == pytest.approx(
        [1.483, 2.260], abs=5e-4
    )


def test_spread_of_two_objectives_is_debs():
    front = np.array([[x, 1 - x] for x in np.linspace(0, 1, 101)])
    rng = np.random.default_rng(1)
    assert indicators.spread(rng.permutation(front[::10]), front) == pytest.approx(0, abs=1e-12)
    # Neighbours at 0.2, 0.2, 0.4 of the curve's length √2, and 0.1 missing at each end.
    points = front[[10, 30, 50, 90]]
    mean = 0.8 / 3
    uneven = abs(0.2 - mean) * 2 + abs(0.4 - mean)
    assert indicators.spread(points, front) == pytest.approx((0.2 + uneven) / (0.2 + 3 * mean))


@pytest.mark.parametrize("m", [3, 5])
def test_spread_of_more_objectives_is_zhous(m):
    points, front = POINTS[m].tolist(), FRONTS[m].tolist()
    extremes = [max(front, key=lambda z: z[k]) for k in range(m)]
    missed = sum(min(math.dist(e, p) for p in points) for e in extremes)
    near = [min(math.dist(p, q) for q in points if q is not p) for p in points]
    mean = sum(near) / len(near)
    expected = (missed + sum(abs(d - mean) for d in near)) / (missed + len(points) * mean)
    assert indicators.spread(POINTS[m], FRONTS[m]) == pytest.approx(expected, rel=1e-12)


def test_large_sets_are_taken_in_pieces(monkeypatch):
    whole = indicators.spread(FRONTS[3], FRONTS[3])
    monkeypatch.setattr(indicators, "ROWS", 7)
    assert indicators.spread(FRONTS[3], FRONTS[3]) == whole


@pytest.mark.parametrize("m", [2, 3])
def test_failed_points_are_left_out_and_none_at_all_is_infinitely_bad(m):
    failed = np.full((2, m), np.nan)
    failed[1] = np.inf
    for indicator in (indicators.igd, indicators.igd_plus, indicators.gd, indicators.spread):
        both = np.concatenate((failed, POINTS[m]))
        assert indicator(both, FRONTS[m]) == indicator(POINTS[m], FRONTS[m])
        assert indicator(failed, FRONTS[m]) == math.inf
        assert math.isfinite(indicator(POINTS[m][:1], FRONTS[m]))


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"shape \[12, 3\] and the front or reference \[30, 2\]"):
        indicators.igd(POINTS[3], FRONTS[2])
    with pytest.raises(ValueError, match="front or reference"):
        indicators.hypervolume(POINTS[3], np.ones(2))
