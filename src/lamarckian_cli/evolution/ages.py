"""What members of population based training came to at each training age, so that equals are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lamarckian_cli.evolution.strategy import Individuals


class Ages:
    """A member's age is how many evaluations its weights have been through, in whichever members."""

    def __init__(self, n: int) -> None:
        self._age = np.zeros(n, np.int64)
        self._reports: dict[
            int, dict[int, tuple[float, float]]
        ] = {}  # age -> member -> (violation, objective)

    def report(self, members: np.ndarray, results: Individuals) -> None:
        """Members [K] came back a step older, with these results; who failed is not compared."""
        for row, member in enumerate(members.tolist()):
            violation, objective = float(results.violation[row]), float(results.objectives[row, 0])
            self._age[member] += 1
            if np.isfinite(violation) and np.isfinite(objective):
                self._reports.setdefault(int(self._age[member]), {})[member] = (violation, objective)
        youngest = int(self._age.min())
        self._reports = {age: some for age, some in self._reports.items() if age >= youngest}

    def standing(self, member: int) -> tuple[np.ndarray, int]:
        """All who reported at the member's age, best first, equals by number, and its place among them."""
        reports = self._reports[int(self._age[member])]
        rivals = sorted(reports, key=lambda m: (*reports[m], m))
        return np.array(rivals), rivals.index(member)

    def of(self, member: int) -> int:
        return int(self._age[member])

    def reached(self, member: int, other: int) -> bool:
        """Whether the member's weights are at least as old as the other's."""
        return bool(self._age[member] >= self._age[other])

    def copy(self, member: int, donor: int) -> None:
        self._age[member] = self._age[donor]

    def start(self, member: int) -> None:
        """The member begins with fresh weights."""
        self._age[member] = 0

    def state(self) -> dict[str, Any]:
        rows = [
            [age, member, *merit]
            for age, reports in self._reports.items()
            for member, merit in reports.items()
        ]
        return {"age": self._age.copy(), "reports": np.array(rows, np.float64).reshape(-1, 4)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._age = np.array(state["age"])
        self._reports = {}
        for age, member, violation, objective in state["reports"].tolist():
            self._reports.setdefault(int(age), {})[int(member)] = (violation, objective)
