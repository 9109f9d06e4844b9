"""What `lamarck bench population` measures: a single training, a population, an evolution."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lamarckian_cli.bench.population_rate import Count, Subject
from lamarckian_cli.errors import RunError
from lamarckian_cli.launch.distributed import DistributedTraining
from lamarckian_cli.launch.evolution.collector import Collector
from lamarckian_cli.launch.evolution.wiring import job_of
from lamarckian_cli.launch.inproc import InprocTraining
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.population.distributed import DistributedTrainer
from lamarckian_cli.launch.population.evaluator import Training, member_names
from lamarckian_cli.launch.population.inproc import InprocTrainer
from lamarckian_cli.launch.population.members import Placing
from lamarckian_cli.launch.population.start import start_pool
from lamarckian_cli.launch.population.trainer import Plan, Trainer
from lamarckian_cli.launch.signals import Stop
from lamarckian_cli.seeding import derive_seed

LOOK_S = 0.1
FOR_EVER = Plan(env_steps=1 << 60, matches=1)  # nobody is done, so nobody is replaced


def dealt_matches(members: int, actors: int, matches: int) -> int:
    """Matches of a population in all, of `matches` an actor: each actor has equally many for its members."""
    names = member_names(members)
    counts = [len(names[actor::actors]) if members >= actors else 1 for actor in range(actors)]
    return sum(-(-matches // count) * count for count in counts)


@contextlib.contextmanager
def single_of(job: Job) -> Iterator[Subject]:
    """One policy that trains; every process is ended afterwards."""
    if job.cluster.kind == "inproc":
        here = _SingleHere(job)
        try:
            yield here
        finally:
            here.training.close()
        return
    training = DistributedTraining(job, threading.Event())
    try:
        training.start(None)
        yield _SingleOverRay(job, training)
    finally:
        training.stop()


@contextlib.contextmanager
def population_of(job: Job, members: int) -> Iterator[Subject]:
    """Members that train without end, each from first weights of its own."""
    job = replace(job, members=member_names(members))
    trainer: InprocTrainer | DistributedTrainer
    if job.cluster.kind == "inproc":
        trainer = InprocTrainer(job, FOR_EVER)
    else:
        trainer = DistributedTrainer(job, FOR_EVER, Stop())
    try:
        if isinstance(trainer, DistributedTrainer):
            trainer.start(None)
        _place_all(job, trainer)
        yield _Population(job, trainer)
    finally:
        trainer.close()


@contextlib.contextmanager
def evolution_of(overrides: Sequence[str]) -> Iterator[Subject]:
    """`lamarck evolve OVERRIDES` of agents, exploit and explore included, without a run folder."""
    job = job_of(overrides)
    training = job.problem.make()
    assert isinstance(training, Training)
    pool = start_pool(training, job.population, Stop(), None, None)
    try:
        description = training.describe()
        strategy = job.make_strategy(training, description)
        collector = Collector(strategy, description, pool, job.workflow, whole=job.exact)
        yield _Evolution(collector, (job.population or 1) * training.job.algo.batch_size)
    finally:
        pool.close()


def _place_all(job: Job, trainer: Trainer) -> None:
    for number, name in enumerate(job.members):
        seed = derive_seed(job.seed, ("member", number))
        trainer.place(name, Placing(individual=number, algorithm=job.algo, seed=seed))


class _SingleHere:
    def __init__(self, job: Job) -> None:
        self.round_env_steps = job.algo.batch_size
        self.training = InprocTraining(job)
        self._updates = self.training.updates()

    def go_on(self) -> Count:
        next(self._updates)
        return Count(env_steps=self.training.counters.env_steps, dropped_env_steps=0, actors=1)


class _SingleOverRay:
    def __init__(self, job: Job, training: DistributedTraining) -> None:
        self.round_env_steps = job.algo.batch_size
        self._training = training

    def go_on(self) -> Count:
        time.sleep(LOOK_S)
        progress = self._training.progress()
        return Count(
            env_steps=progress["counters"]["env_steps"], dropped_env_steps=0, actors=progress["actors"]
        )


class _Population:
    def __init__(self, job: Job, trainer: InprocTrainer | DistributedTrainer) -> None:
        self.round_env_steps = len(job.members) * job.algo.batch_size
        self._trainer = trainer

    def go_on(self) -> Count:
        for ended in self._trainer.advance(LOOK_S):
            raise RunError(f"{ended.member} stopped learning: {ended.error}")
        if isinstance(self._trainer, InprocTrainer):
            report = self._trainer.report()
            return Count(
                env_steps=report.env_steps,
                dropped_env_steps=report.dropped_env_steps,
                actors=report.actors,
            )
        progress = self._trainer.progress()  # `report` may be a second old
        return Count(
            env_steps=progress["env_steps"],
            dropped_env_steps=progress["dropped_env_steps"],
            actors=progress["actors"],
        )


class _Evolution:
    """Over Ray its count may be a second old."""

    def __init__(self, collector: Collector, round_env_steps: int) -> None:
        self.round_env_steps = round_env_steps
        self._collector = collector

    def go_on(self) -> Count:
        self._collector.step(LOOK_S)
        metrics = self._collector.pool.metrics()
        return Count(
            env_steps=int(metrics["learned_env_steps"]),
            dropped_env_steps=int(metrics["dropped_env_steps"]),
            actors=int(metrics["actors"]),
        )
