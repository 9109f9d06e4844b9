"""`check_evaluator` accepts a sound evaluator and refuses broken ones by naming the fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lamarckian_cli.ec.coding import Coding, Permutation, bounds
from lamarckian_cli.errors import EvaluatorError
from lamarckian_cli.problems.check import check_evaluator
from lamarckian_cli.problems.evaluator import Description, Evaluator, Measure, Objective, Results

CODING = Coding({"x": bounds(0.0, 1.0, 2), "order": Permutation(size=3)})


class Sound(Evaluator):
    """An evaluator with everything in it; tests break one part each. f1 is x0, f2 is 1 - x0."""

    description = Description(
        coding=CODING,
        objectives=(Objective(name="f1"), Objective(name="f2", sense="max")),
        constraints=("c",),
        measures=(Measure(name="b", low=0.0, high=1.0),),
    )

    def describe(self) -> Any:
        return self.description

    def results(self, x: np.ndarray, genomes: dict[str, np.ndarray], seeds: np.ndarray) -> Any:
        return Results(
            objectives=np.stack([x[:, 0], x[:, 0]], axis=1),
            constraints=x[:, 1:] - 2.0,
            measures=x[:, 1:].copy(),
            genomes={"x": x * 0.5, "order": genomes["order"][:, ::-1].copy()},
            cost=(seeds % 7).astype(float),
        )

    def evaluate(self, genomes: dict[str, np.ndarray], seeds: np.ndarray) -> Any:
        return self.results(genomes["x"], genomes, seeds)

    def front(self) -> Any:
        return np.array([[0.0, 0.0], [1.0, 1.0]])


def changed(**arrays: Any) -> type[Sound]:
    """One whose results have other arrays: functions of x [N, 2], or what they are instead."""

    class Changed(Sound):
        def results(self, x: np.ndarray, genomes: Any, seeds: np.ndarray) -> Any:
            results = super().results(x, genomes, seeds)
            return replace(results, **{n: v(x) if callable(v) else v for n, v in arrays.items()})

    return Changed


def described(**fields: Any) -> type[Sound]:
    class Changed(Sound):
        description = replace(Sound.description, **fields)

    return Changed


class Alone(Evaluator):
    """One objective, x0."""

    best: Any = 0.0

    def describe(self) -> Description:
        return Description(coding=Coding({"x": bounds(0.0, 1.0, 2)}), objectives=(Objective(name="f"),))

    def evaluate(self, genomes: dict[str, np.ndarray], seeds: np.ndarray) -> Results:
        return Results(objectives=genomes["x"][:, :1].copy())

    def optimum(self) -> Any:
        return self.best


def test_sound_ones_pass() -> None:
    report = check_evaluator(Sound(), genomes=5)
    assert (report.genomes, report.evaluations, report.failed) == (10, 30, 0)
    check_evaluator(Alone())


def test_who_failed_is_counted() -> None:
    half = lambda x: np.where(x[:, :1] > 0.5, np.nan, x)  # noqa: E731
    assert 0 < check_evaluator(changed(objectives=half)(), genomes=20).failed < 40


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (described(objectives=()), "one Objective at least"),
        (described(objectives=(Objective(name="a", sense="up"),)), "has sense 'up'"),  # type: ignore[arg-type]
        (
            described(objectives=(Objective(name="a"), Objective(name="a"))),
            r"objectives are named \['a', 'a'\]",
        ),
        (described(constraints=("",)), "constraints are named"),
        (described(measures=(Measure(name="b", low=1.0, high=1.0),)), "low below high"),
        (described(coding={"x": 3}), "its coding is a dict, expected a Coding"),
        (described(constraints=()), "constraints: there are some, expected None"),
        (
            changed(objectives=lambda x: x[:, :1]),
            r"objectives: it is float64 \[16, 1\], expected float64 \[16, 2\]",
        ),
        (changed(objectives=lambda x: x.astype(np.float32)), "objectives: it is float32"),
        (changed(objectives=lambda x: x.tolist()), "objectives: it is list"),
        (changed(objectives=lambda x: x / 0.0), "objectives: some are infinite"),
        (changed(objectives=lambda x: x * np.nan), "every genome failed"),
        (changed(constraints=None), "constraints: there are none"),
        (changed(constraints=lambda x: x[:, 1:] * np.nan), "constraints: some are not finite"),
        (changed(measures=None), "measures: there are none"),
        (changed(cost=lambda x: np.full(len(x), -1.0)), "cost: the least is -1.0"),
        (changed(cost=lambda x: np.zeros((len(x), 1))), r"cost: it is float64 \[\d+, 1\]"),
        (changed(genomes=lambda x: {"x": x}), r"gave the parts \['x'\]"),
        (
            changed(genomes=lambda x: {"x": x + 2, "order": np.tile([0, 1, 2], (len(x), 1))}),
            "outside of its coding",
        ),
        (changed(objectives=lambda x: x - x.mean(0)), "by itself .* gave"),
    ],
)
def test_broken_ones_are_refused(broken: type[Sound], message: str) -> None:
    with pytest.raises(EvaluatorError, match=message), np.errstate(divide="ignore", invalid="ignore"):
        check_evaluator(broken())


def test_results_that_change_from_call_to_call() -> None:
    calls = iter(range(1000))
    with pytest.raises(EvaluatorError, match="a second time, objectives: the same genome and seed gave"):
        check_evaluator(changed(objectives=lambda x: x + next(calls))())


def test_genomes_that_are_written_into() -> None:
    class Greedy(Sound):
        def evaluate(self, genomes: dict[str, np.ndarray], seeds: np.ndarray) -> Any:
            genomes["x"] *= 0.5
            return super().evaluate(genomes, seeds)

    with pytest.raises(EvaluatorError, match="it changed part 'x' of what it was handed"):
        check_evaluator(Greedy())


def test_first_genomes_that_are_drawn_from_elsewhere() -> None:
    class Unseeded(Alone):
        def initialize(self, n: int, rng: np.random.Generator) -> Any:
            return super().initialize(n, np.random.default_rng())

    class Few(Alone):
        def initialize(self, n: int, rng: np.random.Generator) -> Any:
            return super().initialize(n - 1, rng)

    class Outside(Alone):
        def initialize(self, n: int, rng: np.random.Generator) -> Any:
            return {"x": np.full((n, 2), 3.0)}

    for broken, message in (
        (Unseeded, "other genomes"),
        (Few, "gave 7 genomes"),
        (Outside, "outside of its"),
    ):
        with pytest.raises(EvaluatorError, match=message):
            check_evaluator(broken())


def test_a_description_that_changes() -> None:
    class Moving(Alone):
        calls = 0

        def describe(self) -> Description:
            self.calls += 1
            part = bounds(0.0, 1.0 if self.calls < 4 else 2.0, 2)
            return Description(coding=Coding({"x": part}), objectives=(Objective(name="f"),))

    with pytest.raises(EvaluatorError, match="changed between two calls"):
        check_evaluator(Moving())


def test_fronts_that_are_none() -> None:
    for points, message in (
        (np.array([[0.5, 0.5], [1.0, 0.4]]), r"point 1, .* is dominated by another"),
        (np.array([[1.0, 0.0]]), r"is dominated by a genome's objectives"),
        (np.zeros((3, 1)), r"front\(\): it is float64 \[3, 1\]"),
        (np.zeros((0, 2)), "expected at least one"),
    ):

        class Wrong(Sound):
            def front(self, points: np.ndarray = points) -> Any:
                return points

        with pytest.raises(EvaluatorError, match=message):
            check_evaluator(Wrong())


def test_optima_that_are_none() -> None:
    for best, message in (
        (0.9, "a genome reached"),
        (float("inf"), "expected a finite number"),
        ("0", "finite"),
    ):

        class Wrong(Alone):
            pass

        Wrong.best = best
        with pytest.raises(EvaluatorError, match=message):
            check_evaluator(Wrong())

    class Several(Sound):
        def optimum(self) -> Any:
            return 0.0

    with pytest.raises(EvaluatorError, match="expected None, for there are 2 objectives"):
        check_evaluator(Several())


def test_what_it_raises_is_named() -> None:
    class Raises(Alone):
        def evaluate(self, genomes: Any, seeds: Any) -> Any:
            raise KeyError("lost")

    with pytest.raises(EvaluatorError, match=r"Raises, evaluate\(\) of 16: it raised KeyError: 'lost'"):
        check_evaluator(Raises())
