"""A user's own function as a problem: problem=function problem.function=my_module.f

The function takes one solution [D] and returns a number, or a sequence of numbers where
there are several objectives; with constraints it returns the pair (objectives, constraints).
With `batch` it takes [N, D] and returns a row for each. One that has a parameter
`seed` (`seeds` with `batch`) is handed its source of randomness by that name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, NoReturn

import numpy as np

from lamarckian_cli.ec.coding import Categorical, Coding, Genomes, Integer, Part, Permutation, Real
from lamarckian_cli.errors import EvaluatorError, require
from lamarckian_cli.problems.evaluator import Description, Evaluator, Objective, Results, Sense
from lamarckian_cli.problems.formula import PART
from lamarckian_cli.problems.locate import locate_function

Kind = Literal["real", "integer", "categorical", "permutation"]


class Function(Evaluator):
    """`low`, `high`, `choices` are one number for all, or one for each; `dim` None is as many as they are.

    NaN as an objective marks that solution failed. What else is wrong with a returned value raises
    EvaluatorError, which names the function.
    """

    def __init__(
        self,
        *,
        function: str,
        dim: int | None = None,
        coding: Kind = "real",
        low: float | Sequence[float] | None = None,
        high: float | Sequence[float] | None = None,
        choices: int | Sequence[int] | None = None,
        senses: Sequence[Sense] = ("min",),
        constraints: int = 0,
        batch: bool = False,
        optimum: float | None = None,
    ) -> None:
        require(
            len(senses) >= 1, "problem.senses", list(senses), "it must name min or max for each objective"
        )
        require(constraints >= 0, "problem.constraints", constraints, "it must be at least 0")
        known = optimum is None or len(senses) == 1
        require(
            known, "problem.optimum", optimum, "it is for one objective; leave it out where there are more"
        )
        self.path = function
        self.function = locate_function(function)
        self.batch = batch
        self._optimum = optimum
        self._seed_name = _seed_name(self.function, "seeds" if batch else "seed")
        self._description = Description(
            coding=Coding({PART: _part(coding, dim, low, high, choices)}),
            objectives=tuple(Objective(name=f"f{i + 1}", sense=sense) for i, sense in enumerate(senses)),
            constraints=tuple(f"g{i + 1}" for i in range(constraints)),
        )

    def describe(self) -> Description:
        return self._description

    def evaluate(self, genomes: Genomes, seeds: np.ndarray) -> Results:
        x = genomes[PART]
        if self.batch:
            objectives, constraints = self._call(x.copy(), seeds.copy(), (len(x),))
        else:
            rows = [self._call(row.copy(), int(seed), ()) for row, seed in zip(x, seeds, strict=True)]
            objectives = np.stack([row[0] for row in rows])
            constraints = np.stack([row[1] for row in rows])
        return Results(
            objectives=objectives, constraints=constraints if self._description.constraints else None
        )

    def optimum(self) -> float | None:
        """What the configuration says."""
        return self._optimum

    def _call(
        self, x: np.ndarray, seed: int | np.ndarray, rows: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Objectives [*rows, M] and constraints [*rows, C] of what the function returns."""
        value = self.function(x, **{self._seed_name: seed}) if self._seed_name else self.function(x)
        m, c = len(self._description.objectives), len(self._description.constraints)
        if not c:
            return self._numbers(value, (*rows, m), "its result"), np.zeros((*rows, 0))
        if not isinstance(value, tuple | list) or len(value) != 2:
            self._refuse(
                f"it returned {_shown(value)}; with problem.constraints={c} "
                "it must return the pair (objectives, constraints)"
            )
        constraints = self._numbers(value[1], (*rows, c), "the second of its pair")
        if np.isnan(constraints).any():
            self._refuse(
                "its constraints have NaN; they must be numbers, and NaN marks failure as an objective"
            )
        return self._numbers(value[0], (*rows, m), "the first of its pair"), constraints

    def _numbers(self, value: Any, shape: tuple[int, ...], what: str) -> np.ndarray:
        """`value` as float64 of `shape`; one number a row may come without an axis of its own."""
        try:
            array = np.asarray(value)
        except ValueError:  # rows of unequal length
            self._refuse(f"{what} is {_shown(value)}, expected {_expected(shape)}")
        if array.dtype.kind not in "biuf":
            self._refuse(f"{what} is {_shown(value)}, expected {_expected(shape)}")
        if shape[-1] == 1 and array.shape == shape[:-1]:
            array = array[..., None]
        if array.shape != shape:
            self._refuse(
                f"{what} is {_shown(value)} of shape {list(array.shape)}, expected {_expected(shape)}"
            )
        return array.astype(np.float64)

    def _refuse(self, what: str) -> NoReturn:
        raise EvaluatorError(f"problem.function is {self.path!r}: {what}")


def _part(
    coding: Kind,
    dim: int | None,
    low: float | Sequence[float] | None,
    high: float | Sequence[float] | None,
    choices: int | Sequence[int] | None,
) -> Part:
    """The coding of `dim` numbers, after keys that the kind needs or cannot have were looked at."""
    given = {"low": low, "high": high, "choices": choices}
    used = {"permutation": (), "categorical": ("choices",)}.get(coding, ("low", "high"))
    for name, value in given.items():
        if name in used:
            require(value is not None, f"problem.{name}", value, f"problem.coding={coding} needs it")
        else:
            remedy = f"problem.coding={coding} does not take it; leave it out"
            require(value is None, f"problem.{name}", value, remedy)
    size = _size(dim, {name: given[name] for name in used})
    if coding == "permutation":
        return Permutation(size=size)
    if coding == "categorical":
        sizes = np.broadcast_to(np.asarray(choices, np.int64), (size,)).copy()
        require(bool((sizes >= 1).all()), "problem.choices", choices, "each must be at least 1")
        return Categorical(sizes=sizes)
    lows, highs = (np.broadcast_to(np.asarray(bound, np.float64), (size,)).copy() for bound in (low, high))
    require(bool((lows <= highs).all()), "problem.low", low, f"it must not be above problem.high, {high!r}")
    if coding == "real":
        return Real(low=lows, high=highs)
    for name, bound in (("low", lows), ("high", highs)):
        whole = bool((bound == np.round(bound)).all())
        require(whole, f"problem.{name}", given[name], "problem.coding=integer needs whole numbers")
    return Integer(low=lows.astype(np.int64), high=highs.astype(np.int64))


def _size(dim: int | None, given: dict[str, Any]) -> int:
    """D, which `dim` says, or the length of what is given for each number."""
    lengths = {name: len(value) for name, value in given.items() if isinstance(value, Sequence)}
    if dim is None:
        remedy = "say how many numbers a solution has, such as problem.dim=10"
        require(bool(lengths), "problem.dim", dim, remedy)
        dim = next(iter(lengths.values()))
    require(dim >= 1, "problem.dim", dim, "it must be at least 1")
    for name, length in lengths.items():
        remedy = f"it has {length} values, and a solution {dim} numbers: give one for each, or one for all"
        require(length == dim, f"problem.{name}", list(given[name]), remedy)
    return dim


def _seed_name(function: Callable[..., Any], name: str) -> str:
    """`name` where the function has a parameter of that name, else nothing."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # some functions in C do not say
        return ""
    return name if name in parameters else ""


def _expected(shape: tuple[int, ...]) -> str:
    if len(shape) == 1:
        return "a number" if shape == (1,) else f"{shape[0]} numbers"
    return f"an array {list(shape)}" + (f" or {list(shape[:-1])}" if shape[-1] == 1 else "")


def _shown(value: Any) -> str:
    """The value, cut short, so that the message stays a line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
