"""`lamarck bench broadcast` and `lamarck bench gather`: what the transport costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import typer

JSON = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
REPEAT = Annotated[int, typer.Option("--repeat", help="How often; the median counts.")]

BROADCAST_COLUMNS = {
    "layout": "layout",
    "hosts": "hosts",
    "payload_bytes": "payload, bytes",
    "last_host_s": "last host, s",
    "predicted_s": "predicted, s",
    "of_predicted": "of predicted",
    "egress_bytes": "egress, bytes",
    "flat_over_tree": "flat / tree",
    "predicted_flat_over_tree": "predicted flat / tree",
    "staleness": "staleness",
    "predicted_staleness": "predicted staleness",
    "cpu_s_per_version": "CPU s a version",
}
GATHER_COLUMNS = {
    "what": "what",
    "env": "env",
    "actors": "actors",
    "unrolls_per_s": "unrolls/s",
    "env_steps_per_s": "env steps/s",
    "mb_per_s": "MB/s",
    "message_bytes": "message, bytes",
    "of_ray": "of Ray's",
}
_Number = TypeVar("_Number", int, float)


def register(app: typer.Typer) -> None:
    """Add the commands to `lamarck bench`."""
    app.command("broadcast")(broadcast)
    app.command("gather")(gather)


def broadcast(
    hosts: Annotated[
        str, typer.Option("--hosts", metavar="N,N", help="Numbers of hosts that get weights.")
    ] = "4,8,16",
    mbit: Annotated[float, typer.Option("--mbit", help="Of each host's link, each way, in Mbit/s.")] = 100.0,
    payload: Annotated[
        str, typer.Option("--payload", metavar="MB,MB", help="Sizes of the weights, in MB (10**6 bytes).")
    ] = "1,10",
    repeat: REPEAT = 3,
    json_output: JSON = False,
) -> None:
    """Weights to many hosts, flat and by the tree, beside arithmetic; then inside one machine, beside Ray.

    Hosts are made of Linux namespaces, which takes root; without it that part is left out.
    """
    from lamarckian_cli.bench.broadcast import Plan, measure_broadcast
    from lamarckian_cli.cli.output import only_json

    plan = Plan(
        hosts=numbers("--hosts", hosts, int),
        mbit_per_s=mbit,
        payloads_mb=numbers("--payload", payload, float),
        repeat=repeat,
    )
    with progress() as say, only_json(json_output):
        report = measure_broadcast(plan, say)
    _show(report, BROADCAST_COLUMNS, ("layout", "hosts", "payload_bytes"), json_output)


def gather(
    actors: Annotated[int, typer.Option("--actors", help="That send at once.")] = 8,
    seconds: Annotated[float, typer.Option("--seconds", help="Of each measurement.")] = 5.0,
    repeat: REPEAT = 3,
    json_output: JSON = False,
) -> None:
    """Unrolls from actors to a learner, through a node agent and directly, beside Ray's actor calls."""
    from lamarckian_cli.bench.gather import Plan, measure_gather
    from lamarckian_cli.cli.output import only_json, progress_bar

    plan = Plan(actors=actors, seconds=seconds, repeat=repeat)
    with progress_bar(f"bench gather takes {_about(plan.takes_s)}") as tell, only_json(json_output):
        report = measure_gather(plan, tell)
    _show(report, GATHER_COLUMNS, ("what", "env"), json_output)


def numbers(key: str, text: str, kind: type[_Number]) -> tuple[_Number, ...]:
    """The numbers of a list with commas; ConfigError names the option."""
    from lamarckian_cli.errors import ConfigError

    try:
        return tuple(kind(word) for word in text.split(",") if word.strip())
    except ValueError as error:
        what = "whole numbers" if kind is int else "numbers"
        raise ConfigError(f"{key} is {text!r}; it must be {what} with commas between them") from error


def _about(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 2:
        return "about a minute" if seconds >= 45 else "less than a minute"
    return f"about {minutes} minutes"


def _show(
    report: Mapping[str, Any], columns: Mapping[str, str], keys: Sequence[str], json_output: bool
) -> None:
    """As a document, or as a table of these columns, of which `keys` come first and say what a row is of."""
    from lamarckian_cli.cli.output import print_json, print_table

    if json_output:
        print_json(report)
        return
    rows: Sequence[dict[str, Any]] = report["results"]
    cells = [[row.get(key) for key in columns] for row in rows]
    print_table(list(columns.values()), cells, fold=(), keys=len(keys))
    if "missing" in report:
        print(f"missing: {report['missing']}")


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Tells what goes on, in one line of standard error that is gone at the end; on a terminal alone."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("starting") as status:
        yield lambda text: status.update(text)
