"""`lamarck`: the commands, and how each of them ends.

Commands import what they need when they run, so that `--help` answers at once. A
LamarckError is printed alone on standard error and ends with status 2, and so is what a game's
own code raises; a fault of the program itself ends with 1. With LAMARCK_TRACEBACK=1 all of them
are raised as they are. Ctrl-C ends with 130, and so does SIGTERM. A standard output that cannot be
written to ends with 1, and silently with 141 where it is a pipe that nobody reads any more.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from importlib import metadata
from typing import Annotated, Any

import typer

from lamarckian_cli.cli import bench, cluster, evolve, front, inspect, pool, replay, runs, train
from lamarckian_cli.cli.failure import FAULT, USAGE_ERROR, complain, report
from lamarckian_cli.cli.streams import BROKEN_PIPE, OutputLost, watched_output
from lamarckian_cli.launch.signals import ENDING, hanging, interrupt

INTERRUPTED = 130
# Which module has it depends on the version of Typer.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="lamarck",
    help="Evolutionary reinforcement learning for games, distributed, from one command line.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
train.register(app)
evolve.register(app)
runs.register(app)
front.register(app)
pool.register(app)
replay.register(app)
inspect.register(app)
app.add_typer(bench.app, name="bench")
app.add_typer(cluster.app, name="cluster")


def run() -> int:
    """The entry point: the exit status of the command given in sys.argv."""
    status = _run()
    if hanging.is_set():
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(status)
    return status


def _run() -> int:
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, interrupt)
    try:
        with watched_output():
            status = app(prog_name="lamarck", standalone_mode=False)
    except OutputLost as error:
        return _report_lost(error)
    except UsageError as error:
        return _report_usage(error)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except Exception as error:
        return report(error)
    if status == INTERRUPTED:  # which Typer makes of Ctrl-C too
        complain("interrupted")
    return int(status or 0)


def _report_lost(error: OutputLost) -> int:
    if error.is_broken_pipe:
        return BROKEN_PIPE
    complain(f"{error}; send it to a file, to another program, or to /dev/null")
    return FAULT


def _report_usage(error: Any) -> int:
    """One line for what Typer refuses; a command that was given nothing shows its help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return USAGE_ERROR
    message = " ".join(error.format_message().split()).rstrip(".")
    command = error.ctx.command_path if error.ctx is not None else "lamarck"
    complain(f"{message[:1].lower()}{message[1:]}; see {command} --help")
    return USAGE_ERROR


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
    """Evolutionary reinforcement learning for games, distributed, from one command line."""
