"""The best agent of an evolution, left as a run folder like that of any training."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lamarckian_cli.evolution.strategy import Individuals
from lamarckian_cli.launch.casting import cast_players
from lamarckian_cli.launch.counters import Counters
from lamarckian_cli.launch.population.evaluator import Training
from lamarckian_cli.launch.runfolder import RunFolder

FOLDER = "best"


def leave_best(run: Path, training: Training, best: Individuals, state: dict[str, Any]) -> Path:
    """Write `best/` in an evolution's folder, in place of an earlier one; `best` is one individual.

    `state` is what its learner came to. The configuration is the one that it was trained by last, so
    that `lamarck eval`, `play` and `train resume=` take the folder.
    """
    values = training.values(best.genomes, 0)
    folder, old = run / FOLDER, run / f".{FOLDER}.old"
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    made = RunFolder.create(folder, training_config(training, values, folder), training.job.command_line)
    made.save_checkpoint(
        training_state(training, state), env_steps=int(state["env_steps"]), version=int(state["version"])
    )
    made.finish("finished")
    shutil.rmtree(old, ignore_errors=True)
    return folder


def training_config(training: Training, values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The configuration of a training in `folder`, with an individual's hyperparameters in it."""
    config = training.job.config
    algo = {k.removeprefix("algo."): v for k, v in values.items() if k.startswith("algo.")}
    return {**config, "algo": {**config["algo"], **algo}, "run": {"dir": str(folder)}}


def training_state(training: Training, state: dict[str, Any]) -> dict[str, Any]:
    """What a training's checkpoint holds, of what an individual's learner came to."""
    [name] = cast_players(training.job, training.spec).trained
    counters = Counters([name], training.job.evaluation.window)
    counters.env_steps = int(state["env_steps"])
    return {"learners": {name: state}, "counters": counters.state()}
