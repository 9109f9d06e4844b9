"""`check_evaluator()`: does a problem keep the promises of the Evaluator interface?

It draws first genomes and random ones of the coding, evaluates them together, once more, and
each by itself, and raises EvaluatorError at the first promise broken: shapes and dtypes,
the same results for the same genome and seed, genomes left as they were handed over, a front and an
optimum that nothing beats.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from lamarckian_cli.ec.coding import Coding, Genomes, count, join, take
from lamarckian_cli.errors import ConfigError, EvaluatorError, require
from lamarckian_cli.problems.evaluator import Description, Evaluator, Measure, Objective, Results
from lamarckian_cli.seeding import derive_seed, stream

SLACK = 1e-9  # relative: sums of a batch and of a single row may differ in their last bits
FRONT_SLACK = 1e-7  # relative: fronts come from tables of ten digits or so
ARRAYS = ("objectives", "constraints", "measures", "cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What was evaluated when nothing was found."""

    genomes: int
    evaluations: int
    failed: int  # genomes with NaN as an objective


def check_evaluator(evaluator: Evaluator, *, genomes: int = 8, seed: int = 0) -> CheckReport:
    """Evaluate `genomes` first genomes and as many random ones, each three times over.

    Raises EvaluatorError that names the class, the call, what was expected and what came.
    """
    require(genomes >= 1, "genomes", genomes, "it must be at least 1")
    return _Check(evaluator).run(genomes, seed)


class _Check:
    """One evaluator under check."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.name = type(evaluator).__name__

    def run(self, n: int, seed: int) -> CheckReport:
        if not isinstance(self.evaluator, Evaluator):
            self._fault("it", "is no Evaluator; derive its class from it")
        self.description = self._guard(self.evaluator.describe, "describe()")
        self._check_description()
        first = self._first(n, seed)
        genomes = join([first, self.description.coding.sample(n, stream(seed, "check", "random"))])
        seeds = np.array([derive_seed(seed, ("check", i)) for i in range(2 * n)], np.int64)
        results = self._evaluate(genomes, seeds)
        self._compare(results, self._evaluate(genomes, seeds), np.arange(2 * n), "a second time")
        for index in range(2 * n):
            row = np.array([index])
            alone = self._evaluate(take(genomes, row), seeds[row])
            self._compare(results, alone, row, f"by itself (genome {index} of {2 * n})")
        if not _same(self._guard(self.evaluator.describe, "describe()"), self.description):
            self._fault("describe()", "it changed between two calls")
        self._check_best(results)
        failed = int(np.isnan(results.objectives).any(1).sum())
        return CheckReport(genomes=2 * n, evaluations=6 * n, failed=failed)

    # ----------------------------------------------------------------- what it says of itself

    def _check_description(self) -> None:
        where, found = "describe()", self.description
        if not isinstance(found, Description):
            self._fault(where, f"it returned {type(found).__name__}, expected a Description")
        if not isinstance(found.coding, Coding):
            self._fault(where, f"its coding is a {type(found.coding).__name__}, expected a Coding")
        if not found.objectives or not all(isinstance(o, Objective) for o in found.objectives):
            self._fault(where, f"its objectives are {found.objectives!r}, expected one Objective at least")
        for objective in found.objectives:
            if objective.sense not in ("min", "max"):
                self._fault(
                    where, f"objective {objective.name!r} has sense {objective.sense!r}, expected min or max"
                )
        if not all(isinstance(m, Measure) and m.low < m.high for m in found.measures):
            self._fault(where, f"its measures are {found.measures!r}, expected Measures with low below high")
        for what, names in (
            ("objectives", [o.name for o in found.objectives]),
            ("constraints", list(found.constraints)),
            ("measures", [m.name for m in found.measures]),
        ):
            if len(set(names)) < len(names) or not all(isinstance(n, str) and n for n in names):
                self._fault(where, f"its {what} are named {names}, expected a name of its own for each")

    def _first(self, n: int, seed: int) -> Genomes:
        """What `initialize()` draws, which follows the coding and the generator."""
        drawn = [
            self._guard(
                lambda: self.evaluator.initialize(n, stream(seed, "check", "first")), f"initialize({n})"
            )
            for _ in range(2)
        ]
        for genomes in drawn:
            self._check_genomes(genomes, n, f"initialize({n})")
        if not all(np.array_equal(drawn[0][name], drawn[1][name]) for name in drawn[0]):
            self._fault(
                f"initialize({n})", "it gave other genomes from the same generator; draw from `rng` alone"
            )
        return drawn[0]

    def _check_genomes(self, genomes: Any, n: int, where: str) -> None:
        if not isinstance(genomes, dict) or not all(isinstance(v, np.ndarray) for v in genomes.values()):
            self._fault(where, f"the genomes are {type(genomes).__name__}, expected a dict of arrays")
        try:
            self.description.coding.check(genomes, f"{self.name}, {where}")
        except ConfigError as error:
            raise EvaluatorError(str(error)) from error
        if count(genomes) != n:
            self._fault(where, f"it gave {count(genomes)} genomes, expected {n}")

    # ----------------------------------------------------------------- what it makes of genomes

    def _evaluate(self, genomes: Genomes, seeds: np.ndarray) -> Results:
        n = len(seeds)
        where = f"evaluate() of {n}"
        handed = {name: values.copy() for name, values in genomes.items()}
        results = self._guard(lambda: self.evaluator.evaluate(handed, seeds.copy()), where)
        if not isinstance(results, Results):
            self._fault(where, f"it returned {type(results).__name__}, expected Results")
        for name, values in genomes.items():
            if not np.array_equal(handed[name], values):
                self._fault(
                    where, f"it changed part {name!r} of what it was handed; return Results.genomes instead"
                )
        found = self.description
        self._check_array(results.objectives, (n, len(found.objectives)), f"{where}, objectives")
        if np.isinf(results.objectives).any():
            self._fault(
                f"{where}, objectives", "some are infinite, expected finite numbers, or NaN for who failed"
            )
        if np.isnan(results.objectives).any(1).all() and n > 1:
            self._fault(f"{where}, objectives", "all are NaN: every genome failed")
        self._check_optional(results.constraints, (n, len(found.constraints)), f"{where}, constraints")
        self._check_optional(results.measures, (n, len(found.measures)), f"{where}, measures")
        if results.cost is not None:
            self._check_optional(results.cost, (n,), f"{where}, cost")
            if (results.cost < 0).any():
                self._fault(f"{where}, cost", f"the least is {results.cost.min()}, expected at least 0")
        if results.genomes is not None:
            self._check_genomes(results.genomes, n, f"{where}, Results.genomes")
        return results

    def _check_array(self, values: Any, shape: tuple[int, ...], where: str) -> None:
        if not isinstance(values, np.ndarray) or values.dtype != np.float64 or values.shape != shape:
            actual = (
                f"{values.dtype} {list(values.shape)}"
                if isinstance(values, np.ndarray)
                else type(values).__name__
            )
            self._fault(where, f"it is {actual}, expected float64 {list(shape)}")

    def _check_optional(self, values: Any, shape: tuple[int, ...], where: str) -> None:
        """An array that is there exactly where the description has something of the kind."""
        if values is None and shape[-1] and len(shape) > 1:
            self._fault(where, f"there are none, expected float64 {list(shape)}, for describe() names them")
        if values is None:
            return
        if not shape[-1] and len(shape) > 1:
            self._fault(where, "there are some, expected None, for describe() names none")
        self._check_array(values, shape, where)
        if not np.isfinite(values).all():
            self._fault(where, "some are not finite")

    def _compare(self, whole: Results, part: Results, rows: np.ndarray, when: str) -> None:
        """`part` must be the `rows` of `whole`."""
        where = f"evaluate() {when}"
        for name in ARRAYS:
            expected, actual = getattr(whole, name), getattr(part, name)
            if (expected is None) != (actual is None):
                self._fault(where, f"{name} are there one time and not the other")
            if expected is not None:
                self._compare_arrays(expected[rows], actual, f"{where}, {name}")
        if (whole.genomes is None) != (part.genomes is None):
            self._fault(where, "genomes are there one time and not the other")
        if whole.genomes is not None and part.genomes is not None:
            for name, values in take(whole.genomes, rows).items():
                self._compare_arrays(values, part.genomes[name], f"{where}, part {name!r} of Results.genomes")

    def _compare_arrays(self, expected: np.ndarray, actual: np.ndarray, where: str) -> None:
        if not np.allclose(actual, expected, rtol=SLACK, atol=SLACK, equal_nan=True):
            row = int(np.argmin(np.isclose(actual, expected, rtol=SLACK, atol=SLACK, equal_nan=True).min(-1)))
            self._fault(
                where,
                f"the same genome and seed gave {np.atleast_1d(actual[row])} instead of "
                f"{np.atleast_1d(expected[row])}; draw from `seeds` alone, and keep nothing between calls",
            )

    # ----------------------------------------------------------------- what it says is best

    def _check_best(self, results: Results) -> None:
        signs = np.array([1.0 if o.sense == "min" else -1.0 for o in self.description.objectives])
        found = results.objectives * signs
        fine = ~np.isnan(found).any(1)
        if results.constraints is not None:
            fine &= (results.constraints <= 0.0).all(1)
        found = found[fine]
        front = self._guard(self.evaluator.front, "front()")
        if front is not None:
            self._check_front(front, signs, found)
        best = self._guard(self.evaluator.optimum, "optimum()")
        if best is None:
            return
        if len(signs) > 1:
            self._fault("optimum()", f"it is {best!r}, expected None, for there are {len(signs)} objectives")
        if isinstance(best, bool) or not isinstance(best, float | int) or not math.isfinite(best):
            self._fault("optimum()", f"it is {best!r}, expected a finite number or None")
        if len(found) and found.min() < best * signs[0] - SLACK * (1.0 + abs(best)):
            self._fault("optimum()", f"it is {best}, but a genome reached {found.min() * signs[0]}")

    def _check_front(self, front: Any, signs: np.ndarray, found: np.ndarray) -> None:
        rows = len(front) if isinstance(front, np.ndarray) and front.ndim == 2 else 1
        self._check_array(front, (rows, len(signs)), "front()")
        if not rows or not np.isfinite(front).all():
            self._fault("front()", f"it has {rows} points, expected at least one, and finite numbers")
        turned = front * signs
        for what, others in (("another of its points", turned), ("a genome's objectives", found)):
            for index, point in enumerate(turned):
                # In every objective: where a front is in pieces, one begins level with the end of another.
                beats = (others < point - FRONT_SLACK * (1.0 + np.abs(point))).all(1)
                if beats.any():
                    by = others[int(np.argmax(beats))] * signs
                    self._fault("front()", f"point {index}, {front[index]}, is dominated by {what}, {by}")

    def _guard(self, call: Callable[[], Any], where: str) -> Any:
        """Call into the evaluator; what it raises becomes an EvaluatorError."""
        try:
            return call()
        except Exception as error:
            raise EvaluatorError(
                f"{self.name}, {where}: it raised {type(error).__name__}: {error}"
            ) from error

    def _fault(self, where: str, what: str) -> NoReturn:
        raise EvaluatorError(f"{self.name}, {where}: {what}")


def _same(one: Any, two: Any) -> bool:
    """Whether two descriptions say the same; they hold arrays, which `==` does not compare to a bool."""
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, two))
    if isinstance(one, Coding):
        return list(one.parts) == list(two.parts) and all(
            _same(p, two.parts[n]) for n, p in one.parts.items()
        )
    if hasattr(one, "__dataclass_fields__"):
        return type(one) is type(two) and all(
            _same(getattr(one, name), getattr(two, name)) for name in one.__dataclass_fields__
        )
    return bool(one == two)
