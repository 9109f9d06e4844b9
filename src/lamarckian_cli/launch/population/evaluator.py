"""`problem=training`: a candidate is an agent that learns; its results are what it comes to.

The bridge between evolution and reinforcement learning (the paper's Evaluator, section III-D).
Genomes hold hyperparameters; weights, optimizer and observation statistics are handed down from
parent to child beside them, in memory (the Lamarckian step), by `TrainingPool`. `evaluate`
is the same for one batch on its own: nothing is handed down there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lamarckian_cli.ec.coding import Genomes
from lamarckian_cli.errors import ConfigError, EvaluatorError
from lamarckian_cli.launch.casting import WIN, cast_players
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.population.inproc import InprocTrainer
from lamarckian_cli.launch.population.members import RATING, Placing, Trained
from lamarckian_cli.launch.population.search import Search
from lamarckian_cli.launch.population.settings import TrainingSettings
from lamarckian_cli.problems.evaluator import Description, Evaluator, Objective, Results
from lamarckian_cli.records import MDPSpec

RETURN = "return"


class Training(Evaluator):
    """Trains agents as `job` says, but for what the genome says."""

    def __init__(self, settings: TrainingSettings, job: Job) -> None:
        """Raises a ConfigError where the game and the settings do not go together."""
        self.settings, self.job = settings, job
        mdp = job.env.make_mdp()
        try:
            self.spec = mdp.describe()
        finally:
            mdp.close()
        trained = cast_players(replace(job, members=member_names(1)), self.spec).trained
        self.seat = next(iter(trained.values()))
        self.search = Search(settings.ranges, job.algo, self.seat)
        self._objectives = _objectives(settings.objectives, self.spec, job.selfplay.matchmaking != "none")

    def describe(self) -> Description:
        return Description(
            coding=self.search.coding,
            objectives=tuple(Objective(name=name, sense="max") for name in self._objectives),
        )

    def initialize(self, n: int, rng: np.random.Generator) -> Genomes:
        return self.search.sample(n, rng)

    def evaluate(self, genomes: Genomes, seeds: np.ndarray) -> Results:
        """Train one after the other in this process, each from first weights, by its own seed alone."""
        several = [self._train(genomes, i, int(seed)) for i, seed in enumerate(seeds)]
        return Results(
            objectives=np.concatenate([results.objectives for results in several]),
            cost=np.concatenate([results.cost for results in several if results.cost is not None]),
        )

    def _train(self, genomes: Genomes, index: int, seed: int) -> Results:
        [name] = member_names(1)
        trainer = InprocTrainer(replace(self.job, members=(name,), seed=seed), self.settings.plan)
        try:
            trainer.place(name, self.placing(genomes, index, individual=0, parent=None, seed=seed))
            done: list[Trained] = []
            while not done:
                done = trainer.advance(1.0)
        finally:
            trainer.close()
        return self.results(done[0])

    def values(self, genomes: Genomes, index: int) -> dict[str, Any]:
        """What the genome at `index` stands for, by key."""
        return self.search.values(genomes, index)

    def placing(
        self, genomes: Genomes, index: int, *, individual: int, parent: int | None, seed: int
    ) -> Placing:
        """The genome at `index` as an individual that is to be trained."""
        values = self.search.values(genomes, index)
        return Placing(
            individual=individual,
            algorithm=self.search.algorithm(values),
            head_weights=self.search.head_weights(values),
            parent=parent,
            seed=seed,
        )

    def results(self, trained: Trained) -> Results:
        """Objectives of one individual; EvaluatorError where it has none."""
        if trained.error:
            raise EvaluatorError(trained.error)
        missing = [name for name in self._objectives if name not in trained.results]
        if missing:
            raise EvaluatorError(
                f"problem.objectives has {missing[0]}, which {self.spec.name} did not report; its matches "
                f"report {', '.join(trained.results)}"
            )
        return Results(
            objectives=np.array([[trained.results[name] for name in self._objectives]]),
            cost=np.array([float(trained.env_steps)]),
        )


def member_names(n: int) -> tuple[str, ...]:
    """Names of n members."""
    return tuple(f"member{i}" for i in range(n))


def _objectives(asked: Sequence[str] | None, spec: MDPSpec, rated: bool) -> tuple[str, ...]:
    known = (RETURN, *spec.results, *([RATING] if rated else []))
    if asked is None and rated:
        return (RATING,)  # whoever meets stronger opponents wins less
    if asked is None:
        return (WIN,) if WIN in spec.results else (RETURN,)
    unknown = [name for name in asked if name not in known and not name.startswith(f"{RETURN}_")]
    if unknown:
        raise ConfigError(
            f"problem.objectives has {unknown[0]!r}; matches of {spec.name} report {', '.join(known)}"
        )
    return tuple(asked)
