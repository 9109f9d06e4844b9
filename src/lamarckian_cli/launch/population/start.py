"""Brings the processes of a population up, in process or over Ray."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lamarckian_cli.errors import require
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.population.distributed import DistributedTrainer
from lamarckian_cli.launch.population.evaluator import Training, member_names
from lamarckian_cli.launch.population.inproc import InprocTrainer
from lamarckian_cli.launch.population.pool import TrainingPool
from lamarckian_cli.launch.population.trainer import Plan, Trainer
from lamarckian_cli.launch.signals import Stop

USUAL_MEMBERS = 8  # where the strategy has no population that could say


def start_pool(
    training: Training,
    population: int | None,
    stop: Stop,
    deadline_s: float | None,
    state: dict[str, Any] | None,
) -> TrainingPool:
    """A pool with everything up, from its own earlier `state()` where there is one.

    Raises ray_calls.Interrupted once `stop` asks meanwhile, and LamarckErrors.
    """
    settings = training.settings
    names = names_of_members(training, population)
    job = replace(training.job, members=names)
    require(
        job.selfplay.matchmaking == "none" or len(names) <= job.selfplay.capacity,
        "selfplay.capacity",
        job.selfplay.capacity,
        f"it must be at least the number of members, which is {len(names)}",
    )
    trainer = start_trainer(job, settings.plan, stop, None if state is None else state["trainer"])
    return TrainingPool(training, trainer, names, job.seed, deadline_s)


def names_of_members(training: Training, population: int | None) -> tuple[str, ...]:
    """As many as `problem.members` says, or as the strategy has individuals."""
    return member_names(training.settings.members or population or USUAL_MEMBERS)


def start_trainer(job: Job, plan: Plan, stop: Stop, state: dict[str, Any] | None) -> Trainer:
    """What trains the job's members, from its own earlier `state()` where there is one; raises as above."""
    if job.cluster.kind == "inproc":
        return InprocTrainer(job, plan, state)
    trainer = DistributedTrainer(job, plan, stop)
    try:
        trainer.start(state)
    except BaseException:
        trainer.close()
        raise
    return trainer
