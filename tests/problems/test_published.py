"""Values of each formula: against its definition, written out for one solution, and against pymoo's."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from pymoo.problems import get_problem

from lamarckian_cli.problems import constrained, dtlz, single, zdt
from lamarckian_cli.problems.formula import Formula

RNG_SEED = 11
Point = Sequence[float]


def solutions(problem: Formula, n: int = 40) -> np.ndarray:
    """Random ones, and the corners of all low and all high."""
    part = problem.describe().coding.parts["x"]
    rng = np.random.default_rng(RNG_SEED)
    return np.concatenate([part.sample(n, rng), part.low[None], part.high[None]])  # type: ignore[union-attr]


# --- definitions, one solution at a time ------------------------------------------------


def zdt_slow(number: int, x: Point) -> list[float]:
    n, f1 = len(x), x[0]
    if number == 4:
        g = 1 + 10 * (n - 1) + sum(v**2 - 10 * math.cos(4 * math.pi * v) for v in x[1:])
    elif number == 6:
        f1 = 1 - math.exp(-4 * x[0]) * math.sin(6 * math.pi * x[0]) ** 6
        g = 1 + 9 * (sum(x[1:]) / (n - 1)) ** 0.25
    else:
        g = 1 + 9 / (n - 1) * sum(x[1:])
    shapes: dict[int, Callable[[], float]] = {
        1: lambda: 1 - math.sqrt(f1 / g),
        2: lambda: 1 - (f1 / g) ** 2,
        3: lambda: 1 - math.sqrt(f1 / g) - f1 / g * math.sin(10 * math.pi * f1),
        4: lambda: 1 - math.sqrt(f1 / g),
        6: lambda: 1 - (f1 / g) ** 2,
    }
    return [f1, g * shapes[number]()]


def dtlz_slow(number: int, x: Point, m: int) -> list[float]:
    xm = x[m - 1 :]
    k = len(xm)
    rugged = 100 * (k + sum((v - 0.5) ** 2 - math.cos(20 * math.pi * (v - 0.5)) for v in xm))
    smooth = sum((v - 0.5) ** 2 for v in xm)
    if number == 1:
        f = []
        for i in range(m):
            value = 0.5 * (1 + rugged) * math.prod(x[: m - 1 - i])
            f.append(value * (1 - x[m - 1 - i]) if i else value)
        return f
    if number == 7:
        g = 1 + 9 / k * sum(xm)
        h = m - sum(v / (1 + g) * (1 + math.sin(3 * math.pi * v)) for v in x[: m - 1])
        return [*x[: m - 1], (1 + g) * h]
    g = {3: rugged, 6: sum(v**0.1 for v in xm)}.get(number, smooth)
    theta = [v**100 if number == 4 else v for v in x[: m - 1]]
    if number in (5, 6):
        theta = [theta[0], *((1 + 2 * g * v) / (2 * (1 + g)) for v in theta[1:])]
    f = []
    for i in range(m):
        value = (1 + g) * math.prod(math.cos(v * math.pi / 2) for v in theta[: m - 1 - i])
        f.append(value * math.sin(theta[m - 1 - i] * math.pi / 2) if i else value)
    return f


def levy_slow(x: Point) -> float:
    w = [1 + (v - 1) / 4 for v in x]
    middle = sum((v - 1) ** 2 * (1 + 10 * math.sin(math.pi * v + 1) ** 2) for v in w[:-1])
    return (
        math.sin(math.pi * w[0]) ** 2 + middle + (w[-1] - 1) ** 2 * (1 + math.sin(2 * math.pi * w[-1]) ** 2)
    )


SINGLE: dict[str, Callable[[Point], float]] = {
    "Sphere": lambda x: sum(v**2 for v in x),
    "Ellipsoid": lambda x: sum(10 ** (6 * i / (len(x) - 1)) * v**2 for i, v in enumerate(x)),
    "Rosenbrock": lambda x: sum(100 * (b - a**2) ** 2 + (1 - a) ** 2 for a, b in itertools.pairwise(x)),
    "Rastrigin": lambda x: 10 * len(x) + sum(v**2 - 10 * math.cos(2 * math.pi * v) for v in x),
    "Ackley": lambda x: (
        -20 * math.exp(-0.2 * math.sqrt(sum(v**2 for v in x) / len(x)))
        - math.exp(sum(math.cos(2 * math.pi * v) for v in x) / len(x))
        + 20
        + math.e
    ),
    "Griewank": lambda x: (
        1 + sum(v**2 for v in x) / 4000 - math.prod(math.cos(v / math.sqrt(i)) for i, v in enumerate(x, 1))
    ),
    "Schwefel": lambda x: 418.98288727243369 * len(x) - sum(v * math.sin(math.sqrt(abs(v))) for v in x),
    "Levy": levy_slow,
    "Zakharov": lambda x: (
        sum(v**2 for v in x)
        + sum(0.5 * i * v for i, v in enumerate(x, 1)) ** 2
        + sum(0.5 * i * v for i, v in enumerate(x, 1)) ** 4
    ),
}


# --- the tests --------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2, 3, 4, 6])
def test_zdt(number: int) -> None:
    problem = getattr(zdt, f"ZDT{number}")()
    x = solutions(problem)
    np.testing.assert_allclose(
        problem.values(x), [zdt_slow(number, row) for row in x], rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(problem.values(x), get_problem(f"zdt{number}").evaluate(x), rtol=1e-12)


def test_zdt5() -> None:
    problem = zdt.ZDT5()
    x = problem.initialize(50, np.random.default_rng(RNG_SEED))["x"]
    x = np.concatenate([x, np.zeros((1, 80), int), np.ones((1, 80), int)])
    oracle = get_problem("zdt5", normalize=False)
    np.testing.assert_allclose(problem.values(x), oracle.evaluate(x.astype(bool)), rtol=1e-15)
    # By hand: one bit in each of the first three strings, the others all ones, and three ones of thirty.
    by_hand = np.zeros(80, int)
    by_hand[[0, 7, 29, 30, 35, 40]] = 1
    by_hand[45:] = 1
    np.testing.assert_array_equal(problem.values(by_hand[None]), [[4.0, (3 * 3 + 7 * 1) / 4.0]])


@pytest.mark.parametrize("m", [2, 3, 5])
@pytest.mark.parametrize("number", range(1, 8))
def test_dtlz(number: int, m: int) -> None:
    problem = getattr(dtlz, f"DTLZ{number}")(objectives=m)
    x = solutions(problem)
    expected = [dtlz_slow(number, row, m) for row in x]
    np.testing.assert_allclose(problem.values(x), expected, rtol=1e-12, atol=1e-12)
    oracle = get_problem(f"dtlz{number}", n_var=x.shape[1], n_obj=m)
    np.testing.assert_allclose(problem.values(x), oracle.evaluate(x), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("number", "k"), [(1, 5), (2, 10), (3, 10), (4, 10), (5, 10), (6, 10), (7, 20)])
def test_dtlz_has_as_many_numbers_as_published(number: int, k: int) -> None:
    for m in (2, 3, 8):
        assert getattr(dtlz, f"DTLZ{number}")(objectives=m).describe().coding.size == m - 1 + k


@pytest.mark.parametrize("name", SINGLE)
@pytest.mark.parametrize("dim", [2, 10])
def test_single(name: str, dim: int) -> None:
    problem = getattr(single, name)(dim=dim)
    x = solutions(problem)
    np.testing.assert_allclose(problem.values(x)[:, 0], [SINGLE[name](row) for row in x], rtol=1e-12)
    best = np.full((1, dim), problem.AT)
    assert problem.values(best)[0, 0] == pytest.approx(problem.optimum(), abs=1e-10)
    near = best + np.random.default_rng(0).normal(0.0, 1e-3, (200, dim))
    assert problem.values(near).min() > problem.optimum()


@pytest.mark.parametrize(
    "name", ["Ackley", "Griewank", "Rastrigin", "Rosenbrock", "Schwefel", "Sphere", "Zakharov"]
)
def test_single_against_pymoo(name: str) -> None:
    problem = getattr(single, name)(dim=6)
    x = solutions(problem)
    # pymoo's Sphere lies around 0.5, and its Schwefel has fewer digits.
    oracle = get_problem(name.lower(), n_var=6).evaluate(x + 0.5 if name == "Sphere" else x)
    tolerance = 1e-3 if name == "Schwefel" else 1e-11
    np.testing.assert_allclose(problem.values(x), oracle, rtol=1e-11, atol=tolerance)


def test_an_optimum_outside_of_the_box_is_not_claimed() -> None:
    assert single.Sphere(low=1.0, high=2.0).optimum() is None
    assert single.Sphere(low=0.0, high=2.0).optimum() == 0.0
    assert single.Schwefel(low=-600.0, high=600.0).optimum() is None  # there are better ones near -555
    assert single.Schwefel(low=-600.0, high=600.0).values(np.full((1, 10), -555.2)).item() < -1.0


@pytest.mark.parametrize("name", ["bnh", "osy", "tnk", "g1", "g6"])
def test_constrained_against_pymoo(name: str) -> None:
    problem = getattr(constrained, {"g1": "G01", "g6": "G06"}.get(name, name.upper()))()
    x = solutions(problem, 300)
    # pymoo writes infinity for a constraint of TNK at x2 = 0, and divides some constraints by a constant.
    x = x[1:] if name != "tnk" else x[(x[:, 1] > 0)]
    oracle = get_problem(name)
    values, excess = oracle.evaluate(x, return_values_of=["F", "G"])
    np.testing.assert_allclose(problem.values(x), values, rtol=1e-12)
    ours = problem.excess(x)
    scale = np.array(SCALES.get(name, 1.0))
    np.testing.assert_allclose(ours / scale, excess, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("problem", "x", "value", "active"),
    [
        (constrained.G01(), [1.0] * 9 + [3.0] * 3 + [1.0], -15.0, 6),
        (constrained.G06(), [14.095, 0.8429607892154796], -6961.81387558, 2),
    ],
    ids=["G01", "G06"],
)
def test_the_published_optimum(problem: Formula, x: Point, value: float, active: int) -> None:
    """Solution and value as the definitions for CEC 2006 list them, and how many constraints hold just so."""
    at = np.array([x])
    assert problem.values(at).item() == pytest.approx(value, rel=1e-10)
    assert problem.optimum() == pytest.approx(value, rel=1e-10)
    excess = problem.excess(at)
    assert excess is not None
    assert (excess <= 1e-9).all()
    assert (np.abs(excess) <= 1e-9).sum() == active


SCALES = {"bnh": [25.0, 7.7], "osy": [2.0, 6.0, 2.0, 2.0, 4.0, 4.0], "tnk": [1.0, 0.5]}
