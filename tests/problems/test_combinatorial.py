"""Knapsack and tours: exact bests against going through all solutions; files of cities."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from lamarckian_cli.errors import ConfigError
from lamarckian_cli.problems.knapsack import Knapsack
from lamarckian_cli.problems.tsp import TSP

FIVE = """NAME : five
TYPE: TSP
DIMENSION : 5
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0.0 0.0
2 3.0 4.0
3 1.0 1.0
4 2.5 0
5 1.2e1 5.0
EOF
"""


def all_loads(problem: Knapsack, copies: int) -> np.ndarray:
    """Values, added up one thing at a time, of every load that fits, [L, M]."""
    fit = []
    for load in itertools.product(range(copies + 1), repeat=len(problem.weights)):
        weight = sum(n * int(w) for n, w in zip(load, problem.weights, strict=True))
        if weight <= problem.capacity:
            fit.append([sum(n * int(v) for n, v in zip(load, row, strict=True)) for row in problem.worth.T])
    return np.array(fit, float)


@pytest.mark.parametrize("instance", [0, 1, 2])
@pytest.mark.parametrize(("items", "copies"), [(12, 1), (6, 3), (5, 4)])
def test_knapsack_optimum_is_the_best_of_all_loads(items: int, copies: int, instance: int) -> None:
    problem = Knapsack(items=items, copies=copies, instance=instance)
    assert problem.optimum() == all_loads(problem, copies).max()
    assert problem.front() is None


@pytest.mark.parametrize("instance", [0, 1, 2])
@pytest.mark.parametrize(("items", "copies"), [(9, 1), (5, 2)])
def test_knapsack_front_is_what_no_load_dominates(items: int, copies: int, instance: int) -> None:
    problem = Knapsack(items=items, copies=copies, objectives=2, instance=instance)
    fit = np.unique(all_loads(problem, copies), axis=0)
    best = [p for p in fit if not any((q >= p).all() and (q > p).any() for q in fit)]
    np.testing.assert_array_equal(problem.front(), best)
    assert problem.optimum() is None


def test_knapsack_results_are_value_and_weight_above_capacity() -> None:
    problem = Knapsack(items=3)
    loads = np.array([[0, 0, 0], [1, 0, 1], [1, 1, 1]])
    w, v = problem.weights, problem.worth[:, 0]
    np.testing.assert_array_equal(problem.values(loads)[:, 0], [0, v[0] + v[2], v.sum()])
    expected = [-problem.capacity, w[0] + w[2] - problem.capacity, w.sum() - problem.capacity]
    np.testing.assert_array_equal(problem.excess(loads)[:, 0], expected)


def test_a_knapsack_is_that_of_its_seed() -> None:
    assert np.array_equal(Knapsack(instance=4).weights, Knapsack(instance=4).weights)
    assert not np.array_equal(Knapsack(instance=4).weights, Knapsack(instance=5).weights)


def test_a_front_of_too_many_loads_is_not_begun() -> None:
    assert Knapsack(items=51, objectives=2).front() is None
    assert Knapsack(items=26, copies=2, objectives=2).front() is None


def tour_slow(problem: TSP, tour: tuple[int, ...]) -> float:
    return sum(float(problem.distances[a, b]) for a, b in zip(tour, (*tour[1:], tour[0]), strict=True))


@pytest.mark.parametrize("cities", [3, 4, 8])
def test_optimum_of_few_cities_is_the_shortest_of_all_tours(cities: int) -> None:
    problem = TSP(cities=cities, instance=cities)
    tours = [(0, *rest) for rest in itertools.permutations(range(1, cities))]
    lengths = [tour_slow(problem, tour) for tour in tours]
    np.testing.assert_allclose(problem.values(np.array(tours))[:, 0], lengths, rtol=1e-13)
    assert problem.optimum() == pytest.approx(min(lengths), rel=1e-13)


def test_optimum_of_a_circle_is_the_way_around() -> None:
    few = TSP(cities=8, layout="circle")
    tours = np.array([(0, *rest) for rest in itertools.permutations(range(1, 8))])
    assert few.values(tours).min() == pytest.approx(few.optimum(), rel=1e-13)
    assert few.values(np.arange(8)[None]).item() > few.optimum() + 0.1, "the first tour is the best one"
    assert TSP(cities=1000, layout="circle").optimum() == pytest.approx(2 * np.pi, rel=1e-5)
    assert TSP(cities=50).optimum() is None
    assert TSP(cities=50, known=5.5).optimum() == 5.5


def test_cities_of_tsplib_have_rounded_distances(tmp_path: Path) -> None:
    path = tmp_path / "five.tsp"
    path.write_text(FIVE)
    # 5 as it is, 1.41 down, 2.5 up (as TSPLIB has it), 13 as it is.
    np.testing.assert_array_equal(TSP(file=str(path)).distances[0], [0.0, 5.0, 1.0, 3.0, 13.0])


def test_cities_of_two_columns_have_true_distances(tmp_path: Path) -> None:
    path = tmp_path / "cities.csv"
    path.write_text("0, 0\n0.3, 0.4\n\n0 0.8\n")
    np.testing.assert_allclose(TSP(file=str(path)).distances, [[0, 0.5, 0.8], [0.5, 0, 0.5], [0.8, 0.5, 0]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 0\n1 1\n", "it has 2 cities, and 3 are the least"),
        ("0 0\n1 x\n2 2\n", r"line 2 is '1 x', expected two coordinates"),
        ("0 0\n1\n2 2\n", "line 2 is '1', expected two coordinates"),
        ("0 0\n1 nan\n2 2\n", "line 2"),
        (FIVE.replace("EUC_2D", "GEO"), "its EDGE_WEIGHT_TYPE is GEO, and only EUC_2D can be read"),
        (FIVE.replace("3 1.0 1.0", "3 1.0"), "line 8 .* expected a number and two coordinates"),
    ],
)
def test_a_bad_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "cities"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        TSP(file=str(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"problem\.file is '.*none\.tsp'; it cannot be read"):
        TSP(file=str(tmp_path / "none.tsp"))
