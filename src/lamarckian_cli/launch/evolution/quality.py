"""How good a population is, in numbers that mean the same throughout a run and between runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamarckian_cli.ec import indicators, pareto
from lamarckian_cli.errors import ConfigError, require
from lamarckian_cli.evolution.strategy import Individuals
from lamarckian_cli.launch.evolution.collector import signs
from lamarckian_cli.launch.evolution.history import History
from lamarckian_cli.problems.evaluator import Description

MARGIN = 0.1
"""The hypervolume's reference point lies so far behind the worst point, as a share of the front's range."""

MOST_OBJECTIVES = 6
"""Beyond it an exact hypervolume takes seconds to minutes, and is estimated."""


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """What a set of points is worth; None where it cannot be told."""

    best: float | None = None  # of a single objective, in its own sense
    hypervolume: float | None = None
    igd: float | None = None
    front_size: int = 0


class Quality:
    """Indicators of sets of points that are to be minimised.

    The hypervolume's reference point is the one that was given; else it lies behind the
    problem's known front; else behind the first feasible points of the run, and stays there.
    Beyond `MOST_OBJECTIVES` the hypervolume is an estimate.
    """

    def __init__(
        self,
        description: Description,
        front: np.ndarray | None,
        reference: Sequence[float] | None = None,
        optimum: float | None = None,
    ) -> None:
        """`front` [K, M] and `reference` [M] are in the objectives' own senses."""
        self.signs = signs(description)
        self.single = len(self.signs) == 1
        self.optimum = optimum if self.single else None
        self.front = None if front is None or self.single else front * self.signs
        self.reference: np.ndarray | None = None  # [M], minimised
        if reference is not None:
            require(
                len(reference) == len(self.signs),
                "evo.reference",
                list(reference),
                f"the problem has {len(self.signs)} objectives; give a number for each, or null",
            )
            if self.single:
                raise ConfigError(
                    f"evo.reference is {list(reference)}; it is for several objectives: leave it out"
                )
            self.reference = np.asarray(reference, np.float64) * self.signs
        elif self.front is not None:
            self.reference = _behind(self.front)

    def of(self, points: np.ndarray) -> Numbers:
        """Of points [N, M] that are feasible, dominated ones among them or not."""
        points = points[np.isfinite(points).all(axis=1)]
        if not len(points):
            return Numbers()
        if self.single:
            return Numbers(best=float(points.min() * self.signs[0]), front_size=1)
        front = points[pareto.nondominated(points)]
        if self.reference is None:
            self.reference = _behind(points)
        exact = len(self.signs) <= MOST_OBJECTIVES
        hypervolume = indicators.hypervolume if exact else indicators.hypervolume_estimate
        return Numbers(
            hypervolume=hypervolume(front, self.reference),
            igd=None if self.front is None else indicators.igd(front, self.front),
            front_size=len(front),
        )

    def distances(self, points: np.ndarray) -> dict[str, float]:
        """IGD+, GD and spread of feasible points [N, M] against the known front; none without one."""
        points = points[np.isfinite(points).all(axis=1)]
        if self.front is None or not len(points):
            return {}
        front = points[pareto.nondominated(points)]
        return {
            "igd_plus": indicators.igd_plus(front, self.front),
            "gd": indicators.gd(front, self.front),
            "spread": indicators.spread(front, self.front),
        }

    def curve(self, history: History) -> list[tuple[int, Numbers]]:
        """Evaluations and what the snapshot taken then is worth."""
        return [
            (evaluations, self.of(points))
            for evaluations, points in zip(history.evaluations, history.objectives, strict=True)
        ]


def feasible_front(people: Individuals) -> Individuals:
    """Those whom no other dominates; where nobody is feasible, those who violate the least.

    Of a single objective it is the best alone, the earliest of equals.
    """
    if not len(people):
        return people
    if people.objectives.shape[1] == 1:
        return people.take(np.lexsort((people.ids, people.objectives[:, 0], people.violation))[:1])
    return people.take(pareto.nondominated(people.objectives, people.violation))


def front_document(people: Individuals, description: Description) -> dict[str, Any]:
    """What `lamarck front` needs of a front, for a checkpoint: nothing of it asks the evaluator again."""
    return {
        "objectives": people.objectives * signs(description),
        "violation": people.violation,
        "genomes": people.genomes,
        "ids": people.ids,
        "sense": [objective.sense for objective in description.objectives],
        "names": [objective.name for objective in description.objectives],
    }


def _behind(points: np.ndarray) -> np.ndarray:
    """[M]: the worst of every objective and a tenth of the range beyond it."""
    best, worst = points.min(axis=0), points.max(axis=0)
    # A front of one value in an objective (DTLZ5 has none) still needs some volume behind it.
    span = np.where(worst > best, worst - best, np.maximum(np.abs(worst), 1.0))
    reference: np.ndarray = worst + MARGIN * span
    return reference
