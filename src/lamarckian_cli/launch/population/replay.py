"""`lamarck replay`: the schedule by which an individual of an evolution came about, trained by once more.

An agent of a population is the last of a line: each stretch of its training had hyperparameters of
its own, and went on with the weights of the one before. Its schedule is that line, read from the
lineage; a replay follows it with one learner, from first weights on, and leaves an ordinary run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from lamarckian_cli.errors import ConfigError, RunError, require
from lamarckian_cli.launch.casting import WIN
from lamarckian_cli.launch.display import Display, PolicyProgress, Progress
from lamarckian_cli.launch.evolution.evaluation import evaluation_seeds
from lamarckian_cli.launch.evolution.front import read_front
from lamarckian_cli.launch.evolution.job import Job
from lamarckian_cli.launch.evolution.lineage import read_lineage
from lamarckian_cli.launch.evolution.wiring import build_job
from lamarckian_cli.launch.job import Job as TrainingJob
from lamarckian_cli.launch.leaving import carry_out
from lamarckian_cli.launch.population.best import training_config, training_state
from lamarckian_cli.launch.population.evaluator import RETURN, Training, member_names
from lamarckian_cli.launch.population.factory import TrainingFactory
from lamarckian_cli.launch.population.members import RATING, Placing, Trained
from lamarckian_cli.launch.population.start import names_of_members, start_trainer
from lamarckian_cli.launch.population.trainer import Trainer
from lamarckian_cli.launch.ray_calls import Interrupted
from lamarckian_cli.launch.runfolder import RunFolder, find_run
from lamarckian_cli.launch.signals import Stop
from lamarckian_cli.launch.summary import package_versions
from lamarckian_cli.launch.usercode import code_of

TAKE_S = 0.5  # how long a look at the learner waits before it is looked whether to stop


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of a schedule."""

    individual: int
    values: Mapping[str, Any]  # hyperparameters by key, such as algo.lr
    objectives: tuple[float, ...]  # what the individual came to


def schedule_of(run: Path, individual: int) -> list[Stretch]:
    """How an individual came about, oldest stretch first. RunError where the lineage does not tell."""
    rows = {int(row["id"]): row for row in read_lineage(run)}
    line: list[Stretch] = []
    number: int | None = individual
    while number is not None:
        row = rows.get(number)
        if row is None or "genome" not in row or row.get("objectives") is None:
            of = "" if number == individual else f", of whose line individual {individual} is"
            raise RunError(
                f"{run / 'lineage.jsonl'} does not tell how individual {number}{of} was trained; choose "
                "another with --individual"
            )
        line.append(Stretch(individual=number, values=row["genome"], objectives=tuple(row["objectives"])))
        number = int(row["parents"][0]) if row["parents"] else None
        if len(line) > len(rows):
            raise RunError(f"{run / 'lineage.jsonl'} is damaged: individual {number} descends from itself")
    return line[::-1]


def replay(
    run: Path | str,
    *,
    individual: int | None = None,
    seed: int | None = None,
    cluster: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    command: Sequence[str] = (),
    quiet: bool = False,
) -> dict[str, Any]:
    """Train by the schedule of `individual`, the best one if None; the summary.

    Args:
        seed: of first weights and matches; the evolution's own if None.
        cluster: keys of the group `cluster`; the evolution's own if None.
        folder: where the new run goes; beside the evolution if None.
        quiet: without a display.

    Raises:
        RunError: there is no such evolution of trainings, or no such individual.
        ConfigError: several objectives, and no individual is named.
    """
    source = RunFolder(find_run(run))
    with code_of(source):
        job, training = _training_of(source, seed, cluster)
        number = _best(source, len(training.describe().objectives)) if individual is None else individual
        schedule = schedule_of(source.path, number)
        place = folder or source.path.parent / f"{source.path.name}-replay-{time.strftime('%Y%m%d-%H%M%S')}"
        stop = Stop()
        with stop.on_signals():
            session = Session(job, training, schedule, place, command, stop, quiet=quiet)
            summary = carry_out(session, stop, over_ray=training.job.cluster.kind != "inproc")
            session.tell_end()
    if session.interrupted:
        raise KeyboardInterrupt
    return summary


def _training_of(
    source: RunFolder, seed: int | None, cluster: Mapping[str, Any] | None
) -> tuple[Job, Training]:
    values = source.config()
    if "evo" not in values:
        raise RunError(f"{source.path} is no evolution; lamarck train resume={source.path} goes on with it")
    if seed is not None:
        require(seed >= 0, "seed", seed, "it must be 0 or more")
        values["seed"] = seed
    if cluster is not None:
        values["cluster"] = dict(cluster)
    job = build_job(OmegaConf.create(values))
    if not isinstance(job.problem, TrainingFactory):
        raise RunError(f"{source.path} evolved solutions, not agents; lamarck front {source.path} shows them")
    return job, job.problem.make()


def _best(source: RunFolder, objectives: int) -> int:
    if objectives != 1:
        raise ConfigError(
            f"{source.path} has {objectives} objectives, and so no single best; name one of "
            f"lamarck front {source.path} with --individual"
        )
    return int(read_front(source.path).ids[0])


class Session:
    """One replay, in a run folder of its own."""

    def __init__(
        self,
        job: Job,
        training: Training,
        schedule: Sequence[Stretch],
        place: Path,
        command: Sequence[str],
        stop: Stop,
        *,
        quiet: bool,
    ) -> None:
        self.job, self.training, self.schedule, self.stop = job, training, schedule, stop
        self._command = tuple(command)
        plan = training.settings.plan
        self.display = Display(len(schedule) * plan.env_steps, None, enabled=not quiet)
        self.folder = RunFolder.create(place, training_config(training, schedule[-1].values, place), command)
        self._done = 0  # stretches
        self._env_steps = 0
        self._began = time.monotonic()

    @property
    def interrupted(self) -> bool:
        """Whether a signal ended it early."""
        return self.stop.interrupted and self._done < len(self.schedule)

    def keeps_nothing(self) -> bool:
        return not self.folder.has_checkpoint()

    def unsaved(self) -> str:
        return "what it learned since the last stretch ended is not saved"

    def run(self) -> dict[str, Any]:
        """Follow the schedule; the summary, which is also written."""
        job = _job_of_one(self.training, self.job.population)
        [member] = job.members
        self.display.phase("starting the learner and the actors")
        rows: list[dict[str, Any]] = []
        with self.display:
            try:
                trainer = start_trainer(job, self.training.settings.plan, self.stop, None)
            except Interrupted:
                raise KeyboardInterrupt from None
            self._began = time.monotonic()
            try:
                for parent, stretch in zip([None, *self.schedule], self.schedule, strict=False):
                    trained = self._train(trainer, member, stretch, parent)
                    if trained is None:
                        break
                    rows.append(self._keep(trainer, stretch, trained))
            finally:
                trainer.close()
        if not rows:
            raise KeyboardInterrupt
        summary = {
            "env_steps": self._env_steps,
            "seconds": round(time.monotonic() - self._began, 3),
            "seed": self.job.seed,
            "individual": self.schedule[-1].individual,
            "stretches": rows,
            "packages": package_versions(),
            "command": " ".join(self._command),
        }
        self.folder.write_summary(summary)
        return {"run": str(self.folder.path), **summary}

    def tell_end(self) -> None:
        """Where the run is, and what to type next."""
        self.display.finish(self.folder.path, self.interrupted)

    # -------------------------------------------------------------- parts

    def _train(
        self, trainer: Trainer, member: str, stretch: Stretch, parent: Stretch | None
    ) -> Trained | None:
        """None where a signal came meanwhile."""
        search = self.training.search
        root = np.array([self.schedule[0].individual])
        trainer.place(
            member,
            Placing(
                individual=stretch.individual,
                algorithm=search.algorithm(stretch.values),
                head_weights=search.head_weights(stretch.values),
                parent=None if parent is None else parent.individual,
                seed=int(evaluation_seeds(self.job.seed, root)[0]),
            ),
        )
        done: list[Trained] = []
        while not done and not self.stop.interrupted:
            done = trainer.advance(TAKE_S)
            if trainer.notes:
                self.display.note(trainer.notes)
        if done and done[0].error:
            raise RunError(
                f"the replay broke in the stretch of individual {stretch.individual}: {done[0].error}"
            )
        return done[0] if done else None

    def _keep(self, trainer: Trainer, stretch: Stretch, trained: Trained) -> dict[str, Any]:
        """A row of metrics and a checkpoint; the row of the summary."""
        self._done += 1
        self._env_steps += trained.env_steps
        seconds = time.monotonic() - self._began
        objectives = self.training.results(trained).objectives[0].tolist()
        state = trainer.kept(stretch.individual)
        numbers = {name: value for name, value in stretch.values.items() if isinstance(value, int | float)}
        self.folder.log(
            {
                "env_steps": self._env_steps,
                "seconds": round(seconds, 3),
                "version": int(state["version"]),
                **trained.results,
                **numbers,
            }
        )
        self.folder.save_checkpoint(
            training_state(self.training, state), env_steps=self._env_steps, version=int(state["version"])
        )
        self.display.update(
            Progress(
                env_steps=self._env_steps,
                seconds=seconds,
                env_steps_per_s=self._env_steps / seconds,
                version=int(state["version"]),
                policies=(
                    PolicyProgress(
                        name=f"stretch {self._done} of {len(self.schedule)}",
                        return_mean=trained.results.get(RETURN),
                        win_rate=trained.results.get(WIN),
                        rating=trained.results.get(RATING),
                    ),
                ),
            )
        )
        return {
            "individual": stretch.individual,
            "values": dict(stretch.values),
            "env_steps": trained.env_steps,
            "objectives": objectives,
            "objectives_then": list(stretch.objectives),
        }


def _job_of_one(training: Training, population: int | None) -> TrainingJob:
    """The training's job for a single member, with as many matches as one had in the population."""
    job, members = training.job, len(names_of_members(training, population))
    matches = max(1, round(job.cluster.matches / members))
    return replace(job, members=member_names(1), cluster=replace(job.cluster, matches=matches))
