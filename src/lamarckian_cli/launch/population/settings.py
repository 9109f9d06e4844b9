"""The keys of `problem=training`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lamarckian_cli.errors import require
from lamarckian_cli.launch.population.search import Range
from lamarckian_cli.launch.population.trainer import Plan


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Keys of `conf/problem/training.yaml`."""

    search: Mapping[str, Mapping[str, Range]] = field(default_factory=dict)  # algo and reward, by key
    env_steps: int = 50_000  # that an individual learns from before it is judged
    matches: int = 20  # that its results are means of
    apart: bool = False  # played once it has learned; otherwise the newest while it learns
    objectives: tuple[str, ...] | None = None  # numbers that matches report; None: win, else return
    members: int | None = None  # individuals that train at once; None: the population

    def __post_init__(self) -> None:
        for name in ("env_steps", "matches"):
            value = getattr(self, name)
            require(value >= 1, f"problem.{name}", value, "it must be at least 1")
        require(
            self.members is None or self.members >= 1,
            "problem.members",
            self.members,
            "it must be at least 1, or null for as many as the population",
        )
        require(
            self.objectives is None or len(self.objectives) > 0,
            "problem.objectives",
            self.objectives,
            "name at least one number that matches report, or null for win or return",
        )

    @property
    def ranges(self) -> dict[str, Range]:
        """The search by whole keys: `algo.lr`, `reward.goals`."""
        return {f"{group}.{key}": span for group, spans in self.search.items() for key, span in spans.items()}

    @property
    def plan(self) -> Plan:
        return Plan(env_steps=self.env_steps, matches=self.matches, apart=self.apart)
