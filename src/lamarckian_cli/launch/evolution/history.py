"""How the population came along: a limited number of snapshots of its objectives, for curves.

Indicators are worked out of them when somebody looks, so that a generation costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lamarckian_cli.ec import pareto

if TYPE_CHECKING:
    from lamarckian_cli.launch.evolution.collector import Collector

MOST = 100
"""Snapshots that are kept; beyond it every other one is dropped, and they are taken half as often."""


class History:
    """Snapshots by number of evaluations, evenly spread over the run so far."""

    def __init__(self, *, single: bool) -> None:
        self.single = single  # of one objective the best so far is enough
        self.evaluations: list[int] = []
        self.objectives: list[np.ndarray] = []  # each [K, M], minimised: feasible, not dominated; K may be 0
        self._stride, self._skipped = 1, 0

    def add(self, evaluations: int, collector: Collector) -> None:
        """A generation has ended, after so many evaluations."""
        self._skipped += 1
        if self._skipped >= self._stride:
            self._skipped = 0
            self._keep(evaluations, collector)

    def close(self, evaluations: int, collector: Collector) -> None:
        """The last snapshot: where the run ends, or is looked at."""
        if not self.evaluations or self.evaluations[-1] != evaluations:
            self._keep(evaluations, collector)

    def state(self) -> dict[str, Any]:
        return {
            "evaluations": list(self.evaluations),
            "objectives": [front_of(points) for points in self.objectives],
            "stride": [self._stride, self._skipped],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.evaluations, self.objectives = list(state["evaluations"]), list(state["objectives"])
        self._stride, self._skipped = state["stride"]

    def _keep(self, evaluations: int, collector: Collector) -> None:
        if self.single:
            best = collector.best
            feasible = best is not None and best.violation[0] <= 0
            points = best.objectives if best is not None and feasible else np.zeros((0, 1))
        else:
            population = collector.strategy.population()
            feasible_rows = population.violation <= 0
            points = population.objectives
            points = points.copy() if feasible_rows.all() else points[feasible_rows]
        self.evaluations.append(evaluations)
        self.objectives.append(points)
        if len(self.evaluations) >= MOST:  # the newest is among those that stay
            self.evaluations, self.objectives = self.evaluations[1::2], self.objectives[1::2]
            self._stride *= 2


def front_of(points: np.ndarray) -> np.ndarray:
    """The points [K, M] that no other dominates."""
    return points[pareto.nondominated(points)] if len(points) else points
