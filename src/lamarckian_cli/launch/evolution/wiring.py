"""From `lamarck evolve`'s arguments to jobs: composed by Hydra, checked, handed to the launcher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from lamarckian_cli.config import compose
from lamarckian_cli.config.build import build, build_as
from lamarckian_cli.config.folders import expand_home
from lamarckian_cli.config.resume import EVOLUTION, resume_target, resumed_config
from lamarckian_cli.errors import ConfigError, RunError, require
from lamarckian_cli.evolution.strategy import Settings
from lamarckian_cli.launch.evolution.job import EvaluatorFactory, Job
from lamarckian_cli.launch.evolution.settings import Budget, Run, Workflow
from lamarckian_cli.launch.population.factory import TrainingFactory
from lamarckian_cli.launch.population.settings import TrainingSettings
from lamarckian_cli.launch.runfolder import RunFolder, find_run
from lamarckian_cli.launch.settings import Cluster
from lamarckian_cli.launch.usercode import code_of
from lamarckian_cli.launch.wiring import Ended, TrainTask, build_job_from, checked_basics, run_task

KEYS = ("seed", "evo", "problem", "cluster", "budget", "run", "resume")
OF_TRAINING = ("algo", "env", "model", "players", "selfplay")
"""Groups that are there besides where candidates are trainings."""
TRAINING = f"{TrainingSettings.__module__}.{TrainingSettings.__qualname__}"
WORKFLOW = tuple(f.name for f in fields(Workflow))
"""Keys of `evo` that the workflow reads, whatever the strategy."""


def run_evolve(arguments: Sequence[str], *, json_output: bool = False) -> list[Ended]:
    """Do what `lamarck evolve ARGUMENTS` asks; how its jobs ended.

    What ends a single job is raised; of a sweep, what keeps its jobs from being run.
    """
    command_line = ("lamarck", "evolve", *arguments)
    arguments = expand_home(arguments)
    folder = resume_target(arguments)
    if folder is not None:
        return _run_resumed(folder, arguments, command_line, json_output)
    return run_task(EvolveTask(command_line, json_output), arguments, "lamarck evolve", compose.EVOLVE)


def job_of(overrides: Sequence[str]) -> Job:
    """The job that `lamarck evolve OVERRIDES` would run; nothing is started or written."""
    config = compose.compose(expand_home(overrides), config_name=compose.EVOLVE)
    return build_job(config, command_line=("lamarck", "evolve", *overrides))


def build_job(config: DictConfig, *, command_line: Sequence[str] = (), resume: Path | None = None) -> Job:
    """The composed configuration as checked records; nothing is started or written."""
    values = compose.plain(config)
    seed, run = checked_basics(values, KEYS + OF_TRAINING, needed=("evo", "problem"))
    workflow = build_as(Workflow, {k: v for k, v in values["evo"].items() if k in WORKFLOW}, "evo")
    budget = build_as(Budget, values.get("budget") or {}, "budget")
    require(
        workflow.evaluations is not None or budget.seconds is not None or workflow.target is not None,
        "evo.evaluations",
        None,
        "give evo.evaluations, budget.seconds or evo.target, else the evolution has no end",
    )
    cluster = build_as(Cluster, values.get("cluster") or {}, "cluster")
    problem = _problem(values)
    require(
        cluster.kind != "inproc" or workflow.deadline_s is None or isinstance(problem, TrainingFactory),
        "evo.deadline_s",
        workflow.deadline_s,
        "cluster=inproc cannot end an evaluation; take cluster=local, or leave it out",
    )
    return Job(
        seed=seed,
        strategy=_strategy(values["evo"]),
        workflow=workflow,
        problem=problem,
        budget=budget,
        cluster=cluster,
        run=build_as(Run, run, "run"),
        config=values,
        command_line=tuple(command_line),
        resume=resume,
    )


class EvolveTask(TrainTask):
    """What Hydra calls with each composed configuration."""

    def work(self, config: DictConfig) -> dict[str, Any]:
        """Evolve; the summary."""
        job = build_job(config, command_line=self.command_line)
        config.run.dir = job.run.dir  # resolved: outside of the task there is nothing to resolve it by
        return start(job, json_output=self.json_output)

    def score(self, summary: dict[str, Any]) -> float | None:
        """The single objective's best value, or the hypervolume."""
        value = summary.get("best", summary.get("hypervolume"))
        return float(value) if value is not None else None


def start(job: Job, *, json_output: bool) -> dict[str, Any]:
    """Hand the job to the launcher."""
    from lamarckian_cli.launch.evolution.evolve import evolve

    return evolve(job, json_output=json_output)


def _strategy(node: dict[str, Any]) -> Settings:
    made = build({name: value for name, value in node.items() if name not in WORKFLOW}, "evo")
    if not isinstance(made, Settings):
        raise ConfigError(
            f"evo._target_ is {node['_target_']!r}; it must name a subclass of "
            f"{Settings.__module__}.{Settings.__name__}"
        )
    return made


def _problem(values: dict[str, Any]) -> EvaluatorFactory | TrainingFactory:
    node = values["problem"]
    if node.get("_target_") != TRAINING:
        return EvaluatorFactory(spec=node)
    shared = {key: values.get(key) for key in ("seed", "cluster", *OF_TRAINING)}
    return TrainingFactory(
        settings=build_as(TrainingSettings, {k: v for k, v in node.items() if k != "_target_"}, "problem"),
        job=build_job_from({**shared, "run": {"dir": (values.get("run") or {}).get("dir")}}),
    )


def _run_resumed(
    folder: Path, arguments: Sequence[str], command_line: Sequence[str], json_output: bool
) -> list[Ended]:
    try:
        folder = find_run(folder)
    except RunError as error:
        raise RunError(f"resume is {str(folder)!r}; {error}") from error
    with code_of(RunFolder(folder)):
        config, show = resumed_config(folder, arguments, EVOLUTION)
        job = build_job(config, command_line=command_line, resume=folder)
        if show is not None:
            print(show, end="")
            return []
        return [Ended(summary=start(job, json_output=json_output))]
