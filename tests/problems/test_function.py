"""A user's function as a problem: what it may return, what is refused, and how it is found."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamarckian_cli.ec.coding import Categorical, Integer, Permutation
from lamarckian_cli.errors import ConfigError, EvaluatorError, MissingPackage
from lamarckian_cli.problems.check import check_evaluator
from lamarckian_cli.problems.evaluator import Results
from lamarckian_cli.problems.function import Function

SOURCE = """
import numpy as np

CONSTANT = 3

def number(x):
    return sum(v * v for v in x)

def pair(x):
    return [x[0], np.float32(1.0 - x[0])]

def constrained(x):
    return x[0], [x[1] - 0.5, 0.5 - x[1]]

def batched(x):
    return x.sum(axis=1)

def batched_pair(x):
    return x[:, :2], x[:, 2:]

def noisy(x, seed):
    return np.random.default_rng(seed).random()

def sometimes(x):
    return float("nan") if x[0] > 0.5 else x[0]

def greedy(x):
    x[:] = 9.0
    return 1.0

def words(x):
    return "much"

def nothing(x):
    pass

def three(x):
    return [1.0, 2.0, 3.0]

def ragged(x):
    return [[1.0], 2.0]

def complexes(x):
    return 1j

def nan_constraint(x):
    return 1.0, [float("nan")]

def fails(x):
    raise KeyError("lost")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "user_functions.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "user_functions", raising=False)
    return "user_functions"


@pytest.fixture
def problem(module: str) -> Callable[..., Function]:
    def make(name: str, **changes: Any) -> Function:
        usual = {"low": 0.0, "high": 1.0, "dim": 3}
        return Function(function=f"{module}.{name}", **{**usual, **changes})  # type: ignore[arg-type]

    return make


def evaluated(problem: Function, n: int = 5) -> tuple[np.ndarray, Results]:
    x = problem.initialize(n, np.random.default_rng(0))["x"]
    return x, problem.evaluate({"x": x}, np.arange(n))


def test_a_number(problem: Callable[..., Function]) -> None:
    made = problem("number", optimum=0.0)
    check_evaluator(made)
    x, results = evaluated(made)
    np.testing.assert_allclose(results.objectives[:, 0], (x**2).sum(1))
    assert results.constraints is None
    assert made.optimum() == 0.0


def test_several_objectives_with_their_senses(problem: Callable[..., Function]) -> None:
    made = problem("pair", senses=["min", "max"])
    check_evaluator(made)
    assert [o.sense for o in made.describe().objectives] == ["min", "max"]
    x, results = evaluated(made)
    np.testing.assert_allclose(results.objectives, np.stack([x[:, 0], 1.0 - x[:, 0]], axis=1), rtol=1e-6)


def test_constraints(problem: Callable[..., Function]) -> None:
    made = problem("constrained", constraints=2)
    check_evaluator(made)
    x, results = evaluated(made)
    np.testing.assert_allclose(results.constraints, np.stack([x[:, 1] - 0.5, 0.5 - x[:, 1]], axis=1))


def test_batches(problem: Callable[..., Function]) -> None:
    check_evaluator(problem("batched", batch=True))
    made = problem("batched_pair", batch=True, senses=["min", "min"], constraints=1)
    check_evaluator(made)
    x, results = evaluated(made)
    np.testing.assert_array_equal(results.objectives, x[:, :2])
    np.testing.assert_array_equal(results.constraints, x[:, 2:])


def test_randomness_comes_by_the_seed(problem: Callable[..., Function]) -> None:
    made = problem("noisy")
    check_evaluator(made)  # the same seed gives the same number
    _, results = evaluated(made)
    expected = [np.random.default_rng(seed).random() for seed in range(5)]
    np.testing.assert_array_equal(results.objectives[:, 0], expected)


def test_nan_marks_that_solution_alone(problem: Callable[..., Function]) -> None:
    x, results = evaluated(problem("sometimes"), 20)
    np.testing.assert_array_equal(np.isnan(results.objectives[:, 0]), x[:, 0] > 0.5)
    assert 0 < check_evaluator(problem("sometimes")).failed < 16


def test_the_function_may_write_into_what_it_gets(problem: Callable[..., Function]) -> None:
    check_evaluator(problem("greedy"))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"coding": "integer", "low": -2, "high": [3, 4, 5]}, Integer),
        ({"coding": "categorical", "low": None, "high": None, "choices": [2, 3, 4]}, Categorical),
        ({"coding": "permutation", "low": None, "high": None}, Permutation),
    ],
)
def test_other_codings(problem: Callable[..., Function], changes: dict[str, Any], part: type) -> None:
    made = problem("number", **changes)
    assert isinstance(made.describe().coding.parts["x"], part)
    check_evaluator(made)


def test_the_number_of_numbers_follows_from_lists(problem: Callable[..., Function]) -> None:
    assert problem("number", dim=None, low=[0, 0], high=1.0).describe().coding.size == 2
    made = problem("number", dim=None, coding="categorical", low=None, high=None, choices=[2, 2, 5, 2])
    assert made.describe().coding.size == 4


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("words", {}, "its result is 'much', expected a number"),
        ("nothing", {}, "its result is None, expected a number"),
        ("complexes", {}, r"its result is 1j, expected a number"),
        (
            "three",
            {"senses": ["min", "min"]},
            r"its result is \[1.0, 2.0, 3.0\] of shape \[3\], expected 2 numbers",
        ),
        ("ragged", {"senses": ["min", "min"]}, r"its result is \[\[1.0\], 2.0\], expected 2 numbers"),
        ("number", {"senses": ["min", "min"]}, r"of shape \[\], expected 2 numbers"),
        ("number", {"constraints": 1}, r"problem\.constraints=1 it must return the pair"),
        (
            "constrained",
            {"constraints": 1},
            r"the second of its pair is .* of shape \[2\], expected a number",
        ),
        ("nan_constraint", {"constraints": 1}, "its constraints have NaN"),
        ("number", {"batch": True}, r"of shape \[3\], expected an array \[5, 1\] or \[5\]"),
    ],
)
def test_what_it_cannot_return(
    problem: Callable[..., Function], name: str, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(EvaluatorError, match=message) as caught:
        evaluated(problem(name, **changes))
    assert f"problem.function is 'user_functions.{name}'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_it_raises_is_left_as_it_is(problem: Callable[..., Function]) -> None:
    with pytest.raises(KeyError, match="lost"):
        evaluated(problem("fails"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": None}, r"problem\.dim is null; say how many numbers"),
        ({"dim": 0}, r"problem\.dim is 0; it must be at least 1"),
        ({"low": None}, r"problem\.low is null; problem\.coding=real needs it"),
        ({"low": [0.0, 0.0]}, r"problem\.low is \[0.0, 0.0\]; it has 2 values, and a solution 3 numbers"),
        ({"low": 2.0}, r"problem\.low is 2.0; it must not be above problem.high, 1.0"),
        ({"choices": 2}, r"problem\.choices is 2; problem\.coding=real does not take it"),
        (
            {"coding": "integer", "low": 0.5},
            r"problem\.low is 0.5; problem\.coding=integer needs whole numbers",
        ),
        (
            {"coding": "permutation", "high": None},
            r"problem\.low is 0.0; problem\.coding=permutation does not",
        ),
        ({"senses": []}, r"problem\.senses is \[\]; it must name min or max"),
        ({"constraints": -1}, r"problem\.constraints is -1"),
        ({"senses": ["min", "min"], "optimum": 0.0}, r"problem\.optimum is 0.0; it is for one objective"),
    ],
)
def test_keys_that_cannot_be(problem: Callable[..., Function], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        problem("number", **changes)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("number", r"problem\.function is 'number'; write module and function"),
        ("no_such_module.f", "there is no module no_such_module here"),
        ("user_functions.numbr", "has no function of that name; did you mean number?"),
        ("user_functions.CONSTANT", "that is a int, not a function"),
    ],
)
@pytest.mark.usefixtures("module")
def test_paths_that_lead_nowhere(path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Function(function=path, low=0.0, high=1.0, dim=2)


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("def f(x:\n", ConfigError, r"broken\.py, line 1"),
        ("import sys\nsys.exit(3)\n", ConfigError, r"module broken calls sys.exit\(3\)"),
        ("1 / 0\n", ConfigError, "importing broken raised ZeroDivisionError: division by zero"),
        ("import no_such_package\n", MissingPackage, "it needs the package no_such_package"),
    ],
)
def test_modules_that_cannot_be_imported(
    source: str, error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    with pytest.raises(error, match=message):
        Function(function="broken.f", low=0.0, high=1.0, dim=2)
