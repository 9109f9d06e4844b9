"""`lamarck train`: everything behind the command is handed to Hydra, except what is ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from lamarckian_cli.cli.jobs import ARGUMENTS, TO_HYDRA, hand_over
from lamarckian_cli.cli.sweep import TRAINING

if TYPE_CHECKING:
    from lamarckian_cli.launch.wiring import Ended


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("train", context_settings=TO_HYDRA, add_help_option=False)(train)


def train(context: typer.Context, arguments: ARGUMENTS = None) -> None:
    """Train an agent."""
    hand_over(context, list(arguments or []), "train", _run, TRAINING)


def _run(words: Sequence[str], json_output: bool) -> list[Ended]:
    from lamarckian_cli.launch.wiring import run_train

    return run_train(words, json_output=json_output)
