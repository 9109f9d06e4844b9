"""`lamarck evolve`: everything behind the command is handed to Hydra, except what is ours."""

from __future__ import annotations

from typing import Annotated

import typer

from lamarckian_cli.cli.output import only_json, print_json
from lamarckian_cli.cli.sweep import EVOLUTION, print_sweep, report_failures, sweep_document
from lamarckian_cli.cli.train import COMPLETION_FLAGS, HELP_FLAGS, OURS, commands_of


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    app.command("evolve", context_settings=settings, add_help_option=False)(evolve)


def evolve(
    context: typer.Context,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[OVERRIDES]...", help="key=value, and Hydra's own flags.")
    ] = None,
) -> None:
    """Evolve solutions of a problem."""
    words = list(arguments or [])
    if any(flag in words for flag in HELP_FLAGS):
        from lamarckian_cli.cli.help_page import print_help

        print_help(words, "evolve")
        return
    if any(flag in words for flag in COMPLETION_FLAGS):
        from lamarckian_cli.cli.complete import shell_completion

        shell_completion(words, commands_of(context))
        return
    json_output = "--json" in words
    words = [w for w in words if w not in OURS]
    from lamarckian_cli.launch.evolution.wiring import run_evolve

    with only_json(json_output):
        jobs = run_evolve(words, json_output=json_output)
    sweep = [job for job in jobs if job.overrides is not None]
    if json_output and jobs:
        print_json(sweep_document(sweep) if sweep else jobs[0].summary)
    elif sweep:
        print_sweep(sweep, EVOLUTION)
    raise typer.Exit(report_failures(sweep))
