"""True fronts: solutions reach the points, no search beats them, and sets are those that figures use."""

from __future__ import annotations

import numpy as np
import pytest
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.optimize import minimize
from pymoo.problems import get_problem
from scipy.spatial import cKDTree

from lamarckian_cli.problems import constrained, dtlz, fronts, zdt
from lamarckian_cli.problems.formula import Formula


def dominating(points: np.ndarray, front: np.ndarray, slack: float) -> int:
    """How many of `points` are better than some point of the front by more than `slack` in each objective."""
    return int((points[:, None] < front - slack).all(2).any(1).sum())


def gap(from_points: np.ndarray, to_points: np.ndarray) -> float:
    """The greatest distance of one of the first to the nearest of the second."""
    return float(cKDTree(to_points).query(from_points)[0].max())


@pytest.mark.parametrize(
    ("problem", "points"),
    [
        *((getattr(zdt, f"ZDT{i}")(), 1000) for i in (1, 2, 3, 4, 6)),
        (zdt.ZDT5(), 31),
        *((getattr(dtlz, f"DTLZ{i}")(), 990) for i in (1, 2, 3, 4)),
        (dtlz.DTLZ5(), 1000),
        (dtlz.DTLZ6(), 1000),
        (dtlz.DTLZ7(), 1024),
        (dtlz.DTLZ7(objectives=2), 1024),
        (dtlz.DTLZ7(objectives=6), 1024),
        (dtlz.DTLZ2(objectives=2), 1000),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, Formula) else None,
)
def test_sets_have_the_size_that_figures_are_compared_at(problem: Formula, points: int) -> None:
    front = problem.front()
    assert front is not None
    assert front.shape == (points, len(problem.describe().objectives))
    assert len(np.unique(front, axis=0)) == points


@pytest.mark.parametrize("number", [1, 2, 3, 4, 6])
def test_zdt_fronts_are_what_the_least_g_gives(number: int) -> None:
    problem = getattr(zdt, f"ZDT{number}")()
    x = np.zeros((60_001, 30 if number < 4 else 10))  # g is least where all others are 0
    x[:, 0] = np.linspace(0.0, 1.0, len(x))
    reached = problem.values(x)
    assert gap(problem.front(), reached) < 1e-3
    assert dominating(reached[::20], problem.front(), 1e-8) == 0
    assert gap(get_problem(f"zdt{number}").pareto_front(), problem.front()) < 5e-3


def test_zdt5_front_is_all_ones_but_for_the_first_string() -> None:
    problem = zdt.ZDT5()
    x = np.ones((31, 80), int)
    x[:, :30] = np.tri(31, 30, -1)
    np.testing.assert_allclose(
        np.sort(problem.values(x), axis=0), np.sort(problem.front(), axis=0), rtol=1e-15
    )


@pytest.mark.parametrize("m", [2, 3, 5, 8, 10])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_dtlz_fronts_fulfil_their_equation(number: int, m: int) -> None:
    front = getattr(dtlz, f"DTLZ{number}")(objectives=m).front()
    assert (front >= 0.0).all()
    size = front.sum(1) if number == 1 else np.linalg.norm(front, axis=1)
    np.testing.assert_allclose(size, 0.5 if number == 1 else 1.0, rtol=1e-12)
    assert (front > 1e-12).all(1).any(), "no point inside, so that only the edge would count"
    assert len(front) <= 1000


def test_dtlz_front_is_reached_where_g_is_0() -> None:
    rng = np.random.default_rng(3)
    for number, best in ((1, 0.5), (2, 0.5), (3, 0.5), (5, 0.5), (6, 0.0), (7, 0.0)):
        problem = getattr(dtlz, f"DTLZ{number}")()
        x = rng.random((20_000, problem.describe().coding.size))
        x[:, 2:] = best
        reached = problem.values(x)
        assert gap(problem.front(), reached) < 0.05, number
        assert dominating(reached[:2000], problem.front(), 1e-8) == 0, number


def test_dtlz7_front_is_what_is_left_of_a_grid() -> None:
    problem = dtlz.DTLZ7(objectives=2)
    x = np.zeros((40_001, 21))
    x[:, 0] = np.linspace(0.0, 1.0, len(x))
    reached = problem.values(x)
    best_so_far = np.minimum.accumulate(reached[:, 1])  # f1 ascends, so a point stays where f2 falls
    left = reached[np.r_[True, reached[1:, 1] < best_so_far[:-1]]]
    assert gap(left, problem.front()) < 2e-3
    assert gap(problem.front(), left) < 2e-3


def test_the_curve_is_not_claimed_where_it_is_wrong() -> None:
    assert dtlz.DTLZ5(objectives=4).front() is None
    assert dtlz.DTLZ6(objectives=4).front() is None


def test_the_lattice_is_the_finest_of_at_most_a_thousand_points() -> None:
    assert len(fronts.lattice(3)) == 990  # 43 partitions; 44 give 1035
    assert len(fronts.lattice(4)) == 969  # 16; 17 give 1140
    for m in (2, 3, 5, 8, 15, 30):
        lattice = fronts.lattice(m)
        assert len(lattice) <= 1000
        np.testing.assert_allclose(lattice.sum(1), 1.0, rtol=1e-12)
        assert len(np.unique(lattice.round(12), axis=0)) == len(lattice)


@pytest.mark.parametrize("name", ["BNH", "OSY", "TNK"])
def test_constrained_fronts_stand_against_a_search(name: str) -> None:
    """pymoo's NSGA-II on pymoo's problem: what it finds is on the front, all along it, and never better."""
    front = getattr(constrained, name)().front()
    span = front.max(0) - front.min(0)
    found = minimize(get_problem(name.lower()), NSGA2(pop_size=100), ("n_gen", 150), seed=1).F
    assert dominating(found / span, front / span, 1e-6) == 0
    assert cKDTree(front / span).query(found / span)[0].mean() < 0.01
    assert cKDTree(found / span).query(front / span)[0].mean() < 0.02


def test_constrained_fronts_end_where_they_do() -> None:
    # OSY by hand: x = (5, 1, 5, 0, 5, 0) and (1, 1, 1, 0, 1, 0) are its ends.
    for name, low, high in (
        ("BNH", [0.0, 4.0], [136.0, 50.0]),
        ("OSY", [-274.0, 4.0], [-42.0, 76.0]),
        # TNK's circle cuts its wavy edge off near the axes.
        ("TNK", [0.0417, 0.0417], [1.0384, 1.0384]),
    ):
        front = getattr(constrained, name)().front()
        np.testing.assert_allclose([front.min(0), front.max(0)], [low, high], atol=1e-3)


def test_bnh_front_against_pymoo() -> None:
    front, theirs = constrained.BNH().front(), get_problem("bnh").pareto_front()
    assert gap(theirs, front) < 0.5  # of values up to 136
    assert gap(front, theirs) < 3.0
