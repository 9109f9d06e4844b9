"""`lamarck train`: everything behind the command is handed to Hydra, except what is ours."""

from __future__ import annotations

import json
from typing import Annotated

import typer

HELP_FLAGS = ("--help", "-h")
OURS = ("--json",)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command("train", context_settings=settings, add_help_option=False)(train)


def train(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[OVERRIDES]...", help="key=value, and Hydra's own flags.")
    ] = None,
) -> None:
    """Train an agent: composes the configuration, runs it, says where the run is."""
    words = list(arguments or [])
    if any(flag in words for flag in HELP_FLAGS):
        from lamarckian_cli.cli.help_page import print_help

        print_help(words)
        return
    json_output = "--json" in words
    words = [w for w in words if w not in OURS]
    from lamarckian_cli.launch.wiring import run_train

    summaries = run_train(words, json_output=json_output)
    if json_output and summaries:
        several = any("overrides" in summary for summary in summaries)
        print(json.dumps({"jobs": summaries} if several else summaries[0]))
