"""`lamarck`: the commands, and how each of them ends.

Commands import what they need when they run, so that `--help` answers at once. A
LamarckError is printed alone on standard error and ends with status 2; with
LAMARCK_TRACEBACK=1 it is raised as it is. Ctrl-C ends with 130.
"""

from __future__ import annotations

import os
import sys
from importlib import metadata
from typing import Annotated

import typer

from lamarckian_cli.cli import bench, inspect, runs, train
from lamarckian_cli.errors import LamarckError

USAGE_ERROR = 2
INTERRUPTED = 130

app = typer.Typer(
    name="lamarck",
    help="Distributed evolutionary reinforcement learning from one command line.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
train.register(app)
runs.register(app)
inspect.register(app)
app.add_typer(bench.app, name="bench")


def run() -> int:
    """The entry point: the exit status of the command given in sys.argv."""
    try:
        status = app(standalone_mode=True)
    except LamarckError as error:
        if os.environ.get("LAMARCK_TRACEBACK") == "1":
            raise
        print(f"lamarck: {error}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        print("lamarck: interrupted", file=sys.stderr)
        return INTERRUPTED
    return int(status or 0)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"lamarck {metadata.version('lamarckian-cli')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Distributed evolutionary reinforcement learning from one command line."""
