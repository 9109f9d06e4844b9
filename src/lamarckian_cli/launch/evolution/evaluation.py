"""One evaluation, wherever it happens: seeds, the evaluator's results checked, and what it raises kept."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lamarckian_cli.ec.coding import Genomes, count, take
from lamarckian_cli.errors import EvaluatorError, LamarckError
from lamarckian_cli.evolution.strategy import Candidates
from lamarckian_cli.problems.evaluator import Description, Evaluator, Results
from lamarckian_cli.seeding import derive_seed

NOT_A_USERS = ("site-packages", "lamarckian_cli", sysconfig.get_path("stdlib"), "<frozen")  # parts of paths
_STEP, _FIRST, _SECOND = (np.uint64(v) for v in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why candidates have no results."""

    error: str  # one line, with file and line of the user's own code
    trace: str = ""  # the whole of it, where there is one


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Candidates that were evaluated together, with their results or why there are none."""

    candidates: Candidates
    results: Results | None
    failure: Failure | None = None
    worker: int = 0
    seconds: float = 0.0  # for all of them
    attempts: int = 1


def evaluation_seeds(job_seed: int, ids: np.ndarray) -> np.ndarray:
    """[N] int64: each candidate's own seed, which follows from job seed and id alone.

    SplitMix64 (Steele, Lea, Flood 2014) over all ids at once: hashing them one by one would
    take longer than evaluating a formula.
    """
    base = np.uint64(derive_seed(job_seed, ("evaluation",)))
    z = base + (ids.astype(np.uint64) + np.uint64(1)) * _STEP
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)


def evaluate(
    evaluator: Evaluator, description: Description, genomes: Genomes, seeds: np.ndarray, *, retries: int = 0
) -> list[tuple[slice, Results | Failure]]:
    """Results of N genomes, or why there are none, for slices of them in order.

    Normally that is one slice. Where the batch raises, its genomes are evaluated one by one, so
    that only those fail that have to; one that raises is tried `retries` times again. NaN as an
    objective fails its own genome alone. Interrupts pass through.
    """
    number = count(genomes)
    try:
        results = _checked(evaluator.evaluate(genomes, seeds), description, number)
    except (Exception, SystemExit) as error:
        if number > 1:
            return _each(evaluator, description, genomes, seeds, max(0, retries - 1))
        if retries > 0:
            return evaluate(evaluator, description, genomes, seeds, retries=retries - 1)
        return [(slice(0, 1), failure_of(error))]
    bad = np.isnan(results.objectives)
    if not bad.any():
        return [(slice(0, number), results)]
    return [(slice(i, i + 1), _row(results, i, description)) for i in range(number)]


def failure_of(error: BaseException) -> Failure:
    """An exception in one line, with its place in the user's own code, and its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [f for f in frames if not any(part in f.filename for part in NOT_A_USERS)] or list(frames)[-1:]
    place = f" ({users[-1].filename}, line {users[-1].lineno})" if users else ""
    name = "" if isinstance(error, LamarckError) else f"{type(error).__name__}: "
    return Failure(
        error=" ".join(f"{name}{error}".split()) + ("" if isinstance(error, LamarckError) else place),
        trace="".join(traceback.format_exception(error)),
    )


def _each(
    evaluator: Evaluator, description: Description, genomes: Genomes, seeds: np.ndarray, retries: int
) -> list[tuple[slice, Results | Failure]]:
    """Every genome on its own."""
    found: list[tuple[slice, Results | Failure]] = []
    for i in range(len(seeds)):
        at = slice(i, i + 1)
        [(_, results)] = evaluate(evaluator, description, take(genomes, at), seeds[at], retries=retries)
        found.append((at, results))
    return found


def _row(results: Results, row: int, description: Description) -> Results | Failure:
    """Of one genome: a Failure where an objective is NaN."""
    bad = np.isnan(results.objectives[row])
    if bad.any():
        return Failure(error=f"objective {description.objectives[int(bad.argmax())].name!r} is nan")
    at = slice(row, row + 1)
    return Results(
        objectives=results.objectives[at],
        constraints=None if results.constraints is None else results.constraints[at],
        measures=None if results.measures is None else results.measures[at],
        genomes=None if results.genomes is None else take(results.genomes, at),
        cost=None if results.cost is None else results.cost[at],
    )


class BadResults(EvaluatorError):
    """An evaluator that gives something else than results of its genomes."""


def _checked(results: Results, description: Description, number: int) -> Results:
    """The results as float64, if they are what the evaluator described; BadResults where they are not.

    Objectives may be NaN, which is how an evaluator says that a genome failed.
    """
    if not isinstance(results, Results):
        raise BadResults(f"evaluate() gave a {type(results).__name__}; it must give Results")
    objectives = _array(results.objectives, "objectives", [o.name for o in description.objectives], number)
    constraints = measures = None
    if description.constraints:
        constraints = _array(results.constraints, "constraints", description.constraints, number)
    if description.measures:
        measures = _array(results.measures, "measures", [m.name for m in description.measures], number)
    cost = None if results.cost is None else np.asarray(results.cost, np.float64)
    if cost is not None and cost.shape != (number,):
        raise BadResults(f"evaluate() gave cost as {list(cost.shape)}; it must be [{number}]")
    if results.genomes is not None:
        description.coding.check(results.genomes, "evaluate()")
        if count(results.genomes) != number:
            raise BadResults(f"evaluate() gave {count(results.genomes)} genomes for {number}")
    return Results(
        objectives=objectives, constraints=constraints, measures=measures, genomes=results.genomes, cost=cost
    )


def _array(values: np.ndarray | None, what: str, names: Sequence[str], number: int) -> np.ndarray:
    """[N, len(names)] float64 without NaN."""
    if values is None:
        raise BadResults(f"evaluate() gave no {what}; describe() names {', '.join(names)}")
    array = np.asarray(values, np.float64)
    if array.shape != (number, len(names)):
        raise BadResults(
            f"evaluate() gave {what} as {list(array.shape)}; it must be [{number}, {len(names)}]"
        )
    if what != "objectives" and np.isnan(array).any():
        column = int(np.isnan(array).any(axis=0).argmax())
        raise BadResults(f"evaluate() gave {what} with nan as {names[column]!r}; give a number, or raise")
    return array
