"""`lamarck front`: the individuals of an evolution that no other dominates."""

from __future__ import annotations

from typing import Annotated

import typer

from lamarckian_cli.cli.runs import JSON, RUN

MOST_ROWS = 40
MOST_NUMBERS = 6  # of a genome that a row shows


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("front")(front)


def front(
    run: RUN,
    everything: Annotated[bool, typer.Option("--all", help=f"All rows, not the first {MOST_ROWS}.")] = False,
    json_output: JSON = False,
) -> None:
    """Show the best of an evolution: its front."""
    from lamarckian_cli.cli.output import cell, print_json, print_table
    from lamarckian_cli.launch.evolution.front import read_front

    found = read_front(run)
    if json_output:
        print_json(
            {
                "objectives": found.objectives.tolist(),
                "genomes": [found.genome(i) for i in range(len(found))],
                "sense": list(found.sense),
            }
        )
        return
    titles = [f"{name} ({sense})" for name, sense in zip(found.names, found.sense, strict=True)]
    infeasible = bool((found.violation > 0).any())
    shown = len(found) if everything else min(len(found), MOST_ROWS)
    rows = []
    for i in range(shown):
        numbers = [value for part in found.genome(i).values() for value in part]
        text = " ".join(cell(value) for value in numbers[:MOST_NUMBERS])
        rest = len(numbers) - MOST_NUMBERS
        violation = [float(found.violation[i])] if infeasible else []
        rows.append(
            [
                int(found.ids[i]),
                *found.objectives[i].tolist(),
                *violation,
                text + (f" ... ({rest} more)" if rest > 0 else ""),
            ]
        )
    print_table(["id", *titles, *(["violation"] if infeasible else []), "genome"], rows)
    if shown < len(found):
        print(f"{shown} of {len(found)}; --all shows the rest, --json whole genomes")
