"""Who descends from whom in an evolution of agents, and how much their weights have learned from."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, MOST_OF_AN_ERROR = 80, 400  # characters of a line, and of an error


@dataclass(frozen=True, slots=True, kw_only=True)
class Individual:
    """One stretch of training."""

    number: int
    parent: int | None  # whose weights it went on with; None: nobody's
    start: float  # env steps that those had learned from
    end: float  # and its own, in the end
    member: int
    scores: tuple[float | None, ...]  # one an objective, in its own sense; none where it failed
    genome: Mapping[str, Any]
    error: str  # empty where it did not fail

    def score(self, objective: int) -> float | None:
        return self.scores[objective] if objective < len(self.scores) else None

    def is_number(self, key: str) -> bool:
        """Whether its value of `key` can stand on an axis of numbers; also where it has none."""
        value = self.genome.get(key, 0)
        return isinstance(value, int | float) and not isinstance(value, bool)

    def words(self, objectives: Sequence[str]) -> list[str]:
        """All that is known of it, in lines."""
        lines = [f"individual {self.number}", f"member {self.member}"]
        lines += ["from first weights" if self.parent is None else f"goes on from {self.parent}"]
        lines += [f"{self.end:,.0f} env steps, {self.end - self.start:,.0f} of them its own"]
        lines += [
            f"{name} {score:.6g}"
            for name, score in zip(objectives, self.scores, strict=False)
            if score is not None
        ]
        lines += [f"{key} {plain(value)}" for key, value in self.genome.items()]
        if self.error:
            lines += textwrap.wrap(f"failed: {self.error[:MOST_OF_AN_ERROR]}", WIDTH)
        return lines


def descent(rows: Iterable[Mapping[str, Any]]) -> dict[int, Individual]:
    """Individuals by number, in order of arrival, from the rows of a lineage.

    Env steps are sums of `cost` along first parents; who failed adds none. A parent that the
    rows do not have counts as nobody.
    """
    people: dict[int, Individual] = {}
    for row in rows:
        first = next(iter(row["parents"]), None)
        parent = people.get(first) if first is not None else None
        start = 0.0 if parent is None else parent.end
        number = int(row["id"])
        people[number] = Individual(
            number=number,
            parent=None if parent is None else parent.number,
            start=start,
            end=start + float(row["cost"] or 0.0),
            member=int(row["worker"]),
            scores=tuple(row["objectives"] or ()),
            genome=row.get("genome") or {},
            error=row["error"] or "",
        )
    return people


def ancestry(people: Mapping[int, Individual], numbers: Iterable[int]) -> set[int]:
    """These individuals, as far as they are known, and all whose weights they came from."""
    found: set[int] = set()
    for number in numbers:
        now = people.get(number)
        while now is not None and now.number not in found:
            found.add(now.number)
            now = None if now.parent is None else people[now.parent]
    return found


def plain(value: Any) -> str:
    """A value as one types it on the command line."""
    return value if isinstance(value, str) else json.dumps(value)
