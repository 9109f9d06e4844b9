"""From `lamarck train`'s arguments to jobs: composed by Hydra, checked, handed to the launcher.

This is where configuration meets code, once: what leaves is a `Job` of plain records.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn
from omegaconf import DictConfig

from lamarckian_cli.config import compose
from lamarckian_cli.config.build import build, build_as, unknown_key
from lamarckian_cli.config.callbacks import failure, remove_if_empty
from lamarckian_cli.config.folders import expand_home
from lamarckian_cli.config.resume import resume_target, resumed_config
from lamarckian_cli.config.values import convert, shown
from lamarckian_cli.errors import ConfigError, RunError, require
from lamarckian_cli.launch.job import Job, MDPFactory
from lamarckian_cli.launch.runfolder import RunFolder, find_run
from lamarckian_cli.launch.settings import Budget, Cluster, Evaluation, Players, Run
from lamarckian_cli.launch.usercode import code_of
from lamarckian_cli.selfplay.settings import SelfPlay

KEYS = (
    "seed",
    "algo",
    "env",
    "model",
    "cluster",
    "players",
    "opponent",
    "selfplay",
    "budget",
    "evaluation",
    "run",
    "resume",
)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a job ended: what it came to, or the error."""

    summary: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None
    overrides: tuple[str, ...] | None = None  # of a job of a sweep


def run_train(arguments: Sequence[str], *, json_output: bool = False) -> list[Ended]:
    """Do what `lamarck train ARGUMENTS` asks; how its jobs ended.

    What ends a single job is raised; of a sweep, what keeps its jobs from being run.
    """
    command_line = ("lamarck", "train", *arguments)
    arguments = expand_home(arguments)
    folder = resume_target(arguments)
    if folder is not None:
        return _run_resumed(folder, arguments, command_line, json_output)
    return run_task(TrainTask(command_line, json_output), arguments, "lamarck train", compose.TRAIN)


def run_task(task: TrainTask, arguments: Sequence[str], program: str, config_name: str) -> list[Ended]:
    """Have Hydra call the task as `arguments` ask; how its jobs ended."""
    try:
        jobs = compose.run_hydra(task, arguments, program=program, config_name=config_name)
    except Stopped as stopped:
        raise stopped.error from stopped.error.__cause__
    if task.summary is not None and not jobs:
        return [Ended(summary=task.summary)]
    return [_ended(job) for job in jobs]


def job_of(overrides: Sequence[str]) -> Job:
    """The job that `lamarck train OVERRIDES` would run; nothing is started or written."""
    return build_job(compose.compose(expand_home(overrides)), command_line=("lamarck", "train", *overrides))


def build_job(config: DictConfig, *, command_line: Sequence[str] = (), resume: Path | None = None) -> Job:
    """The composed configuration as checked records; nothing is started or written."""
    values = compose.plain(config)
    return build_job_from(values, command_line=command_line, resume=resume)


def build_job_from(
    values: dict[str, Any], *, command_line: Sequence[str] = (), resume: Path | None = None
) -> Job:
    """`build_job` for a configuration that is already plain, as `config.yaml` of a run is."""
    if "evo" in values:
        raise ConfigError("evo is a group of lamarck evolve; such a run is shown by lamarck front")
    seed, run = checked_basics(values, KEYS, needed=("algo", "env", "model"))
    env = MDPFactory(spec=values["env"])
    env.check()
    budget = build_as(Budget, values.get("budget") or {}, "budget")
    selfplay = build_as(SelfPlay, values.get("selfplay") or {}, "selfplay")
    if selfplay.matchmaking != "none":  # its opponents get better as it does, so scores are no end
        budget = replace(budget, stop_return=None, stop_win_rate=None)
    return Job(
        seed=seed,
        algo=_component(values["algo"], "algo", "lamarckian_cli.learner.algorithm", "Algorithm"),
        model=_component(values["model"], "model", "lamarckian_cli.model.architecture", "Architecture"),
        env=env,
        players=build_as(Players, values.get("players") or {}, "players"),
        budget=budget,
        cluster=build_as(Cluster, values.get("cluster") or {}, "cluster"),
        evaluation=build_as(Evaluation, values.get("evaluation") or {}, "evaluation"),
        run=build_as(Run, run, "run"),
        selfplay=selfplay,
        config=values,
        command_line=tuple(command_line),
        resume=resume,
    )


def checked_basics(
    values: dict[str, Any], keys: Sequence[str], *, needed: Sequence[str]
) -> tuple[int, dict[str, Any]]:
    """Seed and the `run` group; a ConfigError where a key is unknown or a needed group is none."""
    for key in values:
        if key not in keys:
            raise unknown_key("", key, keys)
    for group in needed:
        if not isinstance(values.get(group), dict):
            raise ConfigError(
                f"{group} is {shown(values.get(group))}; it must be one of its options, "
                "which `lamarck list` names"
            )
    seed = convert(values.get("seed"), int, "seed")
    require(seed >= 0, "seed", seed, "it must be 0 or more")
    run = values.get("run") or {}
    if isinstance(run, dict) and not str(run.get("dir") or "").strip():
        raise ConfigError(f"run.dir is {shown(run.get('dir'))}; give a folder, or leave it out")
    return seed, run


class Stopped(BaseException):
    """Carries an error past Hydra, which would print a report of its own."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class TrainTask:
    """What Hydra calls with each composed configuration; launchers may send it elsewhere.

    An evolution's task overrides `work` and `score`.
    """

    def __init__(self, command_line: Sequence[str], json_output: bool) -> None:
        self.command_line = tuple(command_line)
        self.json_output = json_output
        self.summary: dict[str, Any] | None = None  # of the last job that ran here

    def __call__(self, config: DictConfig) -> float | None:
        """Run the job; the number that a sweeper looks at."""
        folder = compose.output_dir()
        several = compose.is_multirun()
        try:
            if several:
                self._enter_sweep(config, folder)
            summary = self.work(config)
        except Exception as error:
            if several:
                raise  # the sweep goes on with its other jobs, and reports this one at its end
            raise Stopped(error) from error
        finally:
            remove_if_empty(folder)
        self.summary = summary
        return self.score(summary)

    def work(self, config: DictConfig) -> dict[str, Any]:
        """Train; the summary."""
        job = build_job(config, command_line=self.command_line)
        config.run.dir = job.run.dir  # resolved: outside of the task there is nothing to resolve it by
        return start(job, json_output=self.json_output)

    def score(self, summary: dict[str, Any]) -> float | None:
        """The best return, which a sweeper maximises."""
        best = summary.get("best_return")
        return float(best) if best is not None else None

    def _enter_sweep(self, config: DictConfig, folder: Path) -> None:
        """Each job of a sweep gets its own run folder, unless `run.dir` was given."""
        overrides = compose.task_overrides()
        if not any(o.lstrip("+").startswith("run.dir=") for o in overrides):
            config.run.dir = str(folder)
        if not self.json_output:
            print(f"job {folder.name}: {' '.join(overrides)}", file=sys.stderr)


def _ended(job: JobReturn) -> Ended:
    """A job of a sweep, read from its run folder: it may have run in another process."""
    overrides = tuple(job.overrides or ())
    error = failure(job)
    if error is not None or job.cfg is None:
        return Ended(overrides=overrides, error=error)
    folder = RunFolder(Path(job.cfg.run.dir))
    return Ended(overrides=overrides, summary={"run": str(folder.path), **(folder.summary() or {})})


def start(job: Job, *, json_output: bool) -> dict[str, Any]:
    """Hand the job to the launcher; imported late, for it brings torch and Ray."""
    from lamarckian_cli.launch.train import train

    return train(job, json_output=json_output)


def _run_resumed(
    folder: Path, arguments: Sequence[str], command_line: Sequence[str], json_output: bool
) -> list[Ended]:
    try:
        folder = find_run(folder)
    except RunError as error:
        raise RunError(f"resume is {str(folder)!r}; {error}") from error
    with code_of(RunFolder(folder)):
        config, show = resumed_config(folder, arguments)
        job = build_job(config, command_line=command_line, resume=folder)
    if show is not None:
        print(show, end="")
        return []
    return [Ended(summary=start(job, json_output=json_output))]


def _component(node: Any, key: str, module: str, base: str) -> Any:
    """A component that the user may bring, as an instance of the class that we rely on."""
    cls = getattr(importlib.import_module(module), base)
    made = build(node, key)
    if not isinstance(made, cls):
        raise ConfigError(
            f"{key}._target_ is {node['_target_']!r}; it must name a subclass of {module}.{base}"
        )
    return made
