"""`lamarck bench`: measurements, each printed as a table or as one JSON document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from lamarckian_cli.cli import bench_ec, bench_transport
from lamarckian_cli.cli.bench_population import population
from lamarckian_cli.cli.bench_scaling import scaling

app = typer.Typer(help="Measure this machine and this program.", no_args_is_help=True)
JSON = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


@app.callback()
def bench() -> None:
    """Measure this machine and this program."""


@app.command("sampling")
def sampling(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OVERRIDES]...", help="As for `lamarck train`: env=pendulum ..."),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option("--seconds", min=1, help="How long to measure; all of it takes half a minute more."),
    ] = 30.0,
    json_output: JSON = False,
) -> None:
    """Env steps per second that the learner takes in, and what this machine could do at best."""
    from lamarckian_cli.bench.sampling import measure_sampling
    from lamarckian_cli.cli.output import only_json, print_json, print_table

    with only_json(json_output):
        report = measure_sampling(overrides or [], seconds=seconds)
    if json_output:
        print_json(report)
        return
    for result in report["results"]:
        print_table(["sampling", ""], list(_lines(result)))


app.command("scaling")(scaling)
app.command("population")(population)
bench_transport.register(app)
bench_ec.register(app)


def _lines(result: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values; what is nested comes in lines of its own."""
    for name, value in result.items():
        words = before + name.replace("_", " ")
        if isinstance(value, Mapping):
            yield from _lines(value, f"{words}, ")
        else:
            yield words, value
