"""A configured population of learning agents: checked at once, made where and when it is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.population.settings import TrainingSettings

if TYPE_CHECKING:
    from lamarckian_cli.launch.population.evaluator import Training


@dataclass(frozen=True, kw_only=True)
class TrainingFactory:
    """What `problem=training` is made of: its own keys, and the training that candidates go through."""

    settings: TrainingSettings
    job: Job

    def make(self) -> Training:
        """The evaluator. ConfigError where settings and game do not go together."""
        from lamarckian_cli.launch.population.evaluator import Training

        return Training(self.settings, self.job)
