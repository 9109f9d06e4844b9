"""`lamarck replay`: train by the schedule of an evolution's best agent once more."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lamarckian_cli.cli.runs import JSON

EVOLUTION = Annotated[Path, typer.Argument(help="The folder of an evolution of agents, its name, or last.")]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("replay")(replay)


def replay(
    run: EVOLUTION,
    best: Annotated[bool, typer.Option("--best", help="The best individual, as if left out.")] = False,
    individual: Annotated[
        int | None, typer.Option("--individual", min=0, help="Another one, by its id in lineage.jsonl.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Of first weights and matches; the run's if left out.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="inproc, local, auto, ...; the run's if left out.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Where the new run goes; beside the evolution if left out.")
    ] = None,
    json_output: JSON = False,
) -> None:
    """Train again by an agent's schedule."""
    from lamarckian_cli.cli.output import only_json, print_json, print_table
    from lamarckian_cli.config import compose
    from lamarckian_cli.errors import ConfigError
    from lamarckian_cli.launch.population.replay import replay as replay_run

    if best and individual is not None:
        raise ConfigError(f"--best and --individual {individual} are two individuals; leave one out")
    keys = None
    if cluster is not None:
        keys = compose.plain(compose.compose([f"cluster={cluster}"], config_name=compose.EVOLVE))["cluster"]
    with only_json(json_output):
        summary = replay_run(
            run,
            individual=individual,
            seed=seed,
            cluster=keys,
            folder=folder,
            command=("lamarck", *sys.argv[1:]),
            quiet=json_output,
        )
    if json_output:
        print_json(summary)
        return
    names = list(dict.fromkeys(name for row in summary["stretches"] for name in row["values"]))
    print_table(
        ["individual", "env steps", *names, "came to", "then"],
        [
            [
                row["individual"],
                row["env_steps"],
                *(row["values"].get(name) for name in names),
                *(" ".join(f"{v:.3g}" for v in row[key]) for key in ("objectives", "objectives_then")),
            ]
            for row in summary["stretches"]
        ],
    )
