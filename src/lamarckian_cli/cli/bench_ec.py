"""`lamarck bench ec`: what evolution itself costs and reaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from lamarckian_cli.cli.bench_transport import JSON, numbers, progress

COLUMNS = {
    "what": "what",
    "rival": "rival",
    "ours_ms": "ours, ms",
    "rival_ms": "rival, ms",
    "ratio": "ratio",
    "igd": "IGD",
    "rival_igd": "rival's IGD",
    "p_worse": "p, if worse",
    "sooner": "sooner",
    "workers_busy": "workers busy",
    "rival_workers_busy": "rival's busy",
    "staleness_mean": "mean staleness",
    "staleness_max": "greatest",
}


def register(app: typer.Typer) -> None:
    """Add the command to `lamarck bench`."""
    app.command("ec")(ec)


def ec(
    what: Annotated[
        str,
        typer.Option(
            "--what",
            metavar="NAME,NAME",
            help="Of speed, sorting, overhead, asynchrony, and quality, which takes minutes.",
        ),
    ] = "speed,sorting,overhead,asynchrony",
    repeat: Annotated[
        int, typer.Option("--repeat", help="How often speed, sorting and overhead; the median counts.")
    ] = 5,
    seeds: Annotated[int, typer.Option("--seeds", help="Of asynchrony and quality; medians count.")] = 11,
    in_flight: Annotated[
        str, typer.Option("--in-flight", metavar="N,N", help="Evaluations at once, of asynchrony.")
    ] = "16",
    json_output: JSON = False,
) -> None:
    """Evolution beside other libraries: speed, sorting, overhead over Ray, asynchrony, quality."""
    from lamarckian_cli.bench.ec import Plan, measure_ec
    from lamarckian_cli.cli.output import only_json, print_json, print_table

    plan = Plan(
        what=tuple(word.strip() for word in what.split(",") if word.strip()),
        repeat=repeat,
        seeds=seeds,
        in_flight=numbers("--in-flight", in_flight, int),
    )
    with progress() as say, only_json(json_output):
        report = measure_ec(plan, say)
    if json_output:
        print_json(report)
        return
    for rows in _kinds(report["results"]):
        columns = [key for key in COLUMNS if key in rows[0]]
        cells = [[row[key] for key in columns] for row in rows]
        print_table([COLUMNS[key] for key in columns], cells, fold=(), keys=2)
    if "missing" in report:
        print(f"missing: {report['missing']}")


def _kinds(results: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Results with the same keys in one table, in their order."""
    tables: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for result in results:
        tables.setdefault(tuple(result), []).append(result)
    return list(tables.values())
