"""What an evolution is made of, once the configuration has been checked: plain records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lamarckian_cli.config.build import build
from lamarckian_cli.errors import ConfigError
from lamarckian_cli.evolution.strategy import Settings, Strategy, Task
from lamarckian_cli.launch.evolution.settings import Budget, Run, Workflow
from lamarckian_cli.launch.population.factory import TrainingFactory
from lamarckian_cli.launch.settings import Cluster
from lamarckian_cli.problems.evaluator import Description, Evaluator
from lamarckian_cli.seeding import stream


@dataclass(frozen=True, kw_only=True)
class EvaluatorFactory:
    """How to make the evaluator: `_target_` and keys as plain values, so it travels to any process."""

    spec: Mapping[str, Any]

    def make(self) -> Evaluator:
        """A new evaluator; each process makes its own. ConfigError where class or keys are wrong."""
        made = build(self.spec, "problem")
        if not isinstance(made, Evaluator):
            raise ConfigError(
                f"problem._target_ is {self.spec['_target_']!r}; it must name a subclass of "
                f"{Evaluator.__module__}.{Evaluator.__name__}"
            )
        return made


@dataclass(frozen=True, kw_only=True)
class Job:
    """One evolution, checked: what `launch.evolution.evolve.evolve` is given."""

    seed: int
    strategy: Settings
    workflow: Workflow
    problem: EvaluatorFactory | TrainingFactory
    budget: Budget
    cluster: Cluster
    run: Run
    config: dict[str, Any] = field(default_factory=dict)  # composed and resolved, as `config.yaml` keeps it
    command_line: tuple[str, ...] = ()  # as typed: lamarck, evolve, ...
    resume: Path | None = None  # the run folder to continue; `run.dir` is the same folder then

    def make_strategy(self, evaluator: Evaluator, description: Description) -> Strategy:
        """The strategy at its start; its randomness follows from the seed alone."""
        task = Task(
            coding=description.coding,
            objectives=len(description.objectives),
            constrained=bool(description.constraints),
            measures=tuple((measure.low, measure.high) for measure in description.measures),
        )
        return self.strategy.make(task, evaluator.initialize, stream(self.seed, "strategy"))

    @property
    def population(self) -> int | None:
        """How many live at once, where the strategy has such a number."""
        size = getattr(self.strategy, "population", None)
        return size if isinstance(size, int) else None

    @property
    def exact(self) -> bool:
        """Whether the strategy waits for all of a generation: the order of arrival does not matter then."""
        return getattr(self.strategy, "max_staleness", None) == 0
