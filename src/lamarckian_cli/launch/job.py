"""What a training is made of, once the configuration has been checked: plain records.

`Job` crosses from the configuration into the launcher; nothing below reads configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lamarckian_cli.config.build import build, check
from lamarckian_cli.errors import MissingPackage, pip_install
from lamarckian_cli.launch.settings import Budget, Cluster, Evaluation, Players, Run
from lamarckian_cli.selfplay.settings import SelfPlay

if TYPE_CHECKING:
    from lamarckian_cli.learner.algorithm import Algorithm
    from lamarckian_cli.mdp.interface import MDP
    from lamarckian_cli.model.architecture import Architecture


@dataclass(frozen=True, kw_only=True)
class MDPFactory:
    """How to make the MDP: `_target_` and keys as plain values, so it travels to any process."""

    spec: Mapping[str, Any]

    def check(self) -> None:
        """Raise a ConfigError where class or keys are wrong, MissingPackage where one of its `packages` is.

        Makes no MDP. What brings the packages is pip, or the command that the class has as `install`.
        """
        cls = check(self.spec, "env")
        for package in getattr(cls, "packages", ()):
            if find_spec(package) is None:
                raise MissingPackage(
                    f"env._target_ is {self.spec['_target_']!r}; it needs the package {package}, "
                    f"which is not installed: {getattr(cls, 'install', '') or pip_install(package)}"
                )

    def make_mdp(self) -> MDP:
        """A new MDP; each process makes its own."""
        mdp: MDP = build(self.spec, "env")
        return mdp


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training, checked: what `launch.train.train` is given."""

    seed: int
    algo: Algorithm
    model: Architecture
    env: MDPFactory
    players: Players
    budget: Budget
    cluster: Cluster
    evaluation: Evaluation
    run: Run
    selfplay: SelfPlay = field(default_factory=SelfPlay)
    config: dict[str, Any] = field(default_factory=dict)  # composed and resolved, as `config.yaml` keeps it
    command_line: tuple[str, ...] = ()  # as typed: lamarck, train, ...
    resume: Path | None = None  # the run folder to continue; `run.dir` is the same folder then
    members: tuple[str, ...] = ()  # of a population, who share the matches of the policy that trains
