"""`lamarck bench population`: what a population costs beside a single training, and beside Ray Tune."""

from __future__ import annotations

from typing import Annotated

import typer

from lamarckian_cli.cli.bench_transport import JSON, REPEAT, numbers

COLUMNS = {
    "population": "members",
    "env_steps_per_s": "env steps/s, summed",
    "single_env_steps_per_s": "single training",
    "of_single": "of single",
    "learned_env_steps": "learned env steps",
    "dropped_env_steps": "dropped env steps",
    "actors": "actors",
    "matches": "matches",
}
COMPARED = {
    "scenario": "scenario",
    "peer": "who",
    "setting": "setting",
    "env_steps_per_s": "env steps/s, summed",
    "of_best_peer": "of best peer",
}


def population(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OVERRIDES]...", help="As for `lamarck train`: env=cartpole ..."),
    ] = None,
    members: Annotated[
        str, typer.Option("--members", metavar="N,N", help="Numbers of members that train at once.")
    ] = "4,8,16,64",
    matches: Annotated[int, typer.Option("--matches", help="That all of them share.")] = 256,
    cluster: Annotated[str, typer.Option("--cluster", help="local, over Ray; or inproc.")] = "local",
    seconds: Annotated[
        float, typer.Option("--seconds", help="Of each measurement, at least; whole rounds are measured.")
    ] = 8.0,
    repeat: REPEAT = 3,
    compare: Annotated[
        str | None, typer.Option("--compare", help="tune: Ray Tune's PBT over RLlib's PPO, on CartPole.")
    ] = None,
    json_output: JSON = False,
) -> None:
    """Env steps per second of whole populations, beside a single training with as many matches.

    As it stands that takes about eight minutes; less with fewer members, seconds or repetitions.
    """
    from lamarckian_cli.bench.population import Plan, measure_population
    from lamarckian_cli.cli.output import only_json, print_json, print_table, progress_bar

    plan = Plan(
        members=numbers("--members", members, int),
        matches=matches,
        seconds=seconds,
        repeat=repeat,
        cluster=cluster,
        compare=compare,
        overrides=tuple(overrides or ()),
    )
    with progress_bar() as tell, only_json(json_output):
        document = measure_population(plan, tell)
    if json_output:
        print_json(document)
        return
    for name, columns, keys in (("results", COLUMNS, 1), ("compare", COMPARED, 3)):
        if name in document:
            rows = [[row[key] for key in columns] for row in document[name]]
            print_table(list(columns.values()), rows, fold=(), keys=keys)
