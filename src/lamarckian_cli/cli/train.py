"""`lamarck train`: everything behind the command is handed to Hydra, except what is ours."""

from __future__ import annotations

from typing import Annotated

import typer

from lamarckian_cli.cli.output import only_json, print_json
from lamarckian_cli.cli.sweep import print_sweep, report_failures, sweep_document

HELP_FLAGS = ("--help", "-h")
COMPLETION_FLAGS = ("-sc", "--shell-completion")
OURS = ("--json",)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command("train", context_settings=settings, add_help_option=False)(train)


def train(
    context: typer.Context,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[OVERRIDES]...", help="key=value, and Hydra's own flags.")
    ] = None,
) -> None:
    """Train an agent."""
    words = list(arguments or [])
    if any(flag in words for flag in HELP_FLAGS):
        from lamarckian_cli.cli.help_page import print_help

        print_help(words)
        return
    if any(flag in words for flag in COMPLETION_FLAGS):
        from lamarckian_cli.cli.complete import shell_completion

        shell_completion(words, commands_of(context))
        return
    json_output = "--json" in words
    words = [w for w in words if w not in OURS]
    from lamarckian_cli.launch.wiring import run_train

    with only_json(json_output):
        jobs = run_train(words, json_output=json_output)
    sweep = [job for job in jobs if job.overrides is not None]
    if json_output and jobs:
        print_json(sweep_document(sweep) if sweep else jobs[0].summary)
    elif sweep:
        print_sweep(sweep)
    raise typer.Exit(report_failures(sweep))


def commands_of(context: typer.Context) -> list[str]:
    """The names of all commands of lamarck."""
    parent = context.parent
    return parent.command.list_commands(parent) if parent is not None else []  # type: ignore[attr-defined]
