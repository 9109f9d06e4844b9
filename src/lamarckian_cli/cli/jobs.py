"""What `lamarck train` and `lamarck evolve` share: words go to Hydra, the ends of jobs are told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from lamarckian_cli.cli.output import only_json, print_json
from lamarckian_cli.cli.sweep import Comparison, print_sweep, report_failures, sweep_document

if TYPE_CHECKING:
    from lamarckian_cli.launch.wiring import Ended

HELP_FLAGS = ("--help", "-h")
COMPLETION_FLAGS = ("-sc", "--shell-completion")
OURS = ("--json",)
TO_HYDRA = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
ARGUMENTS = Annotated[
    list[str] | None, typer.Argument(metavar="[OVERRIDES]...", help="key=value, and Hydra's own flags.")
]


def hand_over(
    context: typer.Context,
    words: list[str],
    command: str,
    run: Callable[[Sequence[str], bool], list[Ended]],
    compared: Comparison,
) -> None:
    """Help and completion, or the jobs that `run` makes of the words, with JSON alone where that is asked."""
    if any(flag in words for flag in HELP_FLAGS):
        from lamarckian_cli.cli.help_page import print_help

        print_help(words, command)
        return
    if any(flag in words for flag in COMPLETION_FLAGS):
        from lamarckian_cli.cli.complete import shell_completion

        shell_completion(words, _commands(context))
        return
    json_output = "--json" in words
    with only_json(json_output):
        jobs = run([word for word in words if word not in OURS], json_output)
    sweep = [job for job in jobs if job.overrides is not None]
    if json_output and jobs:
        print_json(sweep_document(sweep) if sweep else jobs[0].summary)
    elif sweep:
        print_sweep(sweep, compared)
    raise typer.Exit(report_failures(sweep))


def _commands(context: typer.Context) -> list[str]:
    """The names of all commands of lamarck."""
    parent = context.parent
    return parent.command.list_commands(parent) if parent is not None else []  # type: ignore[attr-defined]
