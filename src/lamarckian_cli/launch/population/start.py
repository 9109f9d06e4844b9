"""Brings the processes of a population up, in process or over Ray."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lamarckian_cli.errors import require
from lamarckian_cli.launch.population.distributed import DistributedTrainer
from lamarckian_cli.launch.population.evaluator import Training, member_names
from lamarckian_cli.launch.population.inproc import InprocTrainer
from lamarckian_cli.launch.population.pool import TrainingPool
from lamarckian_cli.launch.population.trainer import Trainer
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
    names = member_names(settings.members or population or USUAL_MEMBERS)
    job = replace(training.job, members=names)
    require(
        job.selfplay.matchmaking == "none" or len(names) <= job.selfplay.capacity,
        "selfplay.capacity",
        job.selfplay.capacity,
        f"it must be at least the number of members, which is {len(names)}",
    )
    earlier = None if state is None else state["trainer"]
    trainer: Trainer
    if job.cluster.kind == "inproc":
        trainer = InprocTrainer(job, settings.plan, earlier)
    else:
        trainer = distributed = DistributedTrainer(job, settings.plan, stop)
        try:
            distributed.start(earlier)
        except BaseException:
            distributed.close()
            raise
    return TrainingPool(training, trainer, names, job.seed, deadline_s)
