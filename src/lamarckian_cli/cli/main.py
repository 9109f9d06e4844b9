"""`lamarck`: the commands, and how each of them ends.

Commands import what they need when they run, so that `--help` answers at once. A
LamarckError is printed alone on standard error and ends with status 2, and so is what a game's
own code raises; a fault of the program itself ends with 1. With LAMARCK_TRACEBACK=1 all of them
are raised as they are. Ctrl-C ends with 130.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from importlib import metadata
from typing import Annotated

import typer

from lamarckian_cli.cli import bench, inspect, runs, train
from lamarckian_cli.errors import LamarckError

FAULT = 1
USAGE_ERROR = 2
INTERRUPTED = 130
NOT_A_USERS = ("site-packages", "lamarckian_cli", sysconfig.get_path("stdlib"), "<frozen")  # parts of paths

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
    except Exception as error:
        if os.environ.get("LAMARCK_TRACEBACK") == "1":
            raise
        status, text = _unforeseen(error)
        print(f"lamarck: {text}", file=sys.stderr)
        return status
    return int(status or 0)


def _unforeseen(error: Exception) -> tuple[int, str]:
    """Exit status, and one line, for what no part of the program expected."""
    frames = traceback.extract_tb(error.__traceback__)
    # The first frame is the script that started us; libraries and the package itself are no user's.
    users = [f for f in frames[1:] if not any(part in f.filename for part in NOT_A_USERS)]
    frame = (users or frames)[-1]
    what = f"{type(error).__name__}: {' '.join(str(error).split())} ({frame.filename}, line {frame.lineno})"
    if users or isinstance(error, MemoryError | OverflowError | OSError):
        return USAGE_ERROR, f"{what}; LAMARCK_TRACEBACK=1 shows the traceback"
    return FAULT, (
        f"{what}; this is a fault of the program, or a game gave it what it should not (check_mdp() tells): "
        "LAMARCK_TRACEBACK=1 shows the traceback"
    )


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
