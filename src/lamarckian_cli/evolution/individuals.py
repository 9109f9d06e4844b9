"""Records of individuals: unknown ones, who is better, some put in the place of others, and their state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from lamarckian_cli.ec.coding import Coding, Genomes
from lamarckian_cli.evolution.strategy import Individuals, Task

_ARRAYS = tuple(f.name for f in fields(Individuals) if f.name != "genomes")


def unknown(task: Task, n: int) -> Individuals:
    """n places for individuals that nothing is known of: without id, as bad as one that failed."""
    return Individuals(
        ids=np.full(n, -1, np.int64),
        genomes=blank(task.coding, n),
        parents=np.full((n, 2), -1, np.int64),
        born=np.zeros(n, np.int64),
        objectives=np.full((n, task.objectives), np.inf),
        violation=np.full(n, np.inf),
        measures=np.zeros((n, len(task.measures))),
    )


def blank(coding: Coding, n: int) -> Genomes:
    """Arrays for n genomes; what stands in them follows no coding yet."""
    return {name: np.zeros((n, part.size), part.dtype) for name, part in coding.parts.items()}


def put(people: Individuals, places: np.ndarray, others: Individuals) -> None:
    """Write `others` over those at `places` [N] of `people`, whose arrays must be the caller's own."""
    for name in _ARRAYS:
        getattr(people, name)[places] = getattr(others, name)
    for name, values in people.genomes.items():
        values[places] = others.genomes[name]


def best_first(people: Individuals) -> np.ndarray:
    """Their order [N] by Deb's rules (2000): less violation first, then the objective, then the older.

    NaN counts as the worst, so whoever failed comes last whatever was made of it.
    """
    return np.lexsort((people.ids, people.objectives[:, 0], people.violation))


def better(one: Individuals, other: Individuals) -> np.ndarray:
    """Whether each of one [N] beats its counterpart of other [N] by Deb's rules (2000); equals do not."""
    less = one.violation < other.violation
    same = one.violation == other.violation
    return less | (same & (one.objectives[:, 0] < other.objectives[:, 0]))


def failed(people: Individuals) -> np.ndarray:
    """[N] bool: who came to nothing that can be compared."""
    return ~(np.isfinite(people.objectives).all(axis=1) & np.isfinite(people.violation))


def living(people: Individuals) -> Individuals:
    """Who came to something, best first; all where nobody did."""
    good = ~failed(people)
    if good.any():
        people = people.take(good)
    return people.take(best_first(people))


def penalised(people: Individuals) -> np.ndarray | None:
    """One finite number [N] for objective and constraints, for methods that know no constraints (Deb 2000).

    Feasible ones have their objective, infeasible ones the worst feasible objective and their
    violation; who failed is as bad as the worst. None where nobody came to anything.
    """
    counted = ~failed(people)
    if not counted.any():
        return None
    feasible = counted & (people.violation <= 0)
    values = people.objectives[:, 0].copy()
    worst = values[feasible].max() if feasible.any() else 0.0
    infeasible = counted & ~feasible
    values[infeasible] = worst + people.violation[infeasible]
    values[~counted] = values[counted].max()
    return values


def as_state(people: Individuals) -> dict[str, Any]:
    """What `from_state` makes them of again: copies, so that later changes do not reach them."""
    state: dict[str, Any] = {name: getattr(people, name).copy() for name in _ARRAYS}
    state["genomes"] = {name: values.copy() for name, values in people.genomes.items()}
    return state


def from_state(state: Mapping[str, Any]) -> Individuals:
    """The individuals of `as_state`, in arrays of their own."""
    arrays = {name: np.array(state[name]) for name in _ARRAYS}
    return Individuals(
        genomes={name: np.array(values) for name, values in state["genomes"].items()}, **arrays
    )
