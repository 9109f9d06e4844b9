"""`lamarck eval`, `lamarck play`, `lamarck runs`: what can be done with run folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

RUN = Annotated[Path, typer.Argument(help="A run folder, its name in `lamarck runs`, or last.")]
JSON = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
SEED = Annotated[int, typer.Option("--seed", min=0, help="Of the matches.")]
POLICY = Annotated[
    str | None, typer.Option("--policy", help="Whose results are told; the first that trained if left out.")
]
CHECKPOINT = Annotated[str, typer.Option("--checkpoint", help="latest, best, or a checkpoint's file name.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    # Words beyond the run reach the function, which knows what they were meant to be.
    app.command("eval", context_settings={"allow_extra_args": True})(evaluate)
    app.command("play")(play)
    app.command("runs")(list_runs)


def evaluate(
    context: typer.Context,
    run: RUN,
    episodes: Annotated[
        int | None,
        typer.Option("--episodes", "-n", min=1, help="Matches; the run's evaluation.episodes if left out."),
    ] = None,
    seed: SEED = 0,
    checkpoint: CHECKPOINT = "latest",
    policy: POLICY = None,
    json_output: JSON = False,
) -> None:
    """Play a run greedily, print its results."""
    _refuse_overrides(context.args)
    from lamarckian_cli.cli.output import only_json, print_json, print_table
    from lamarckian_cli.launch.display import shown_path
    from lamarckian_cli.launch.evaluate import evaluate as evaluate_run

    with only_json(json_output):
        report = evaluate_run(run, episodes=episodes, seed=seed, checkpoint=checkpoint, policy=policy)
    if json_output:
        print_json(report)
        return
    rows = {"return": _of_return(report)}
    rows |= {name: _flat(value) for name, value in report.get("results", {}).items()}
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    print_table(
        ["", *(column.replace("_", " ") for column in columns)],
        [[name, *(row.get(column) for column in columns)] for name, row in rows.items()],
        fold=(),
    )
    line = f"{report['episodes']} matches of {shown_path(Path(report.get('run', run)))}"
    if report.get("win_rate") is not None:
        line += f", {report['win_rate']:.1%} won"
    print(line)


def _refuse_overrides(words: Sequence[str]) -> None:
    """ConfigError where words follow the run; `eval` has options, not the overrides of `train`."""
    if not words:
        return
    from lamarckian_cli.errors import ConfigError

    key, equals, value = words[0].partition("=")
    option = {"evaluation.episodes": "--episodes", "seed": "--seed"}.get(key)
    if equals and option is not None:
        raise ConfigError(f"{words[0]} is for lamarck train; lamarck eval takes {option} {value}")
    raise ConfigError(
        f"{words[0]!r} follows the run, and lamarck eval takes one run and options (such as --episodes 20); "
        "see lamarck eval --help"
    )


def play(
    run: RUN,
    video: Annotated[
        Path | None, typer.Option("--video", help="Record to this file, .mp4 or .gif, instead of drawing.")
    ] = None,
    fps: Annotated[float | None, typer.Option("--fps", min=0.1, help="Steps shown in a second.")] = None,
    seed: SEED = 0,
    checkpoint: CHECKPOINT = "latest",
    policy: POLICY = None,
) -> None:
    """Draw a match of a run, or record it."""
    from lamarckian_cli.launch.play import play as play_run

    play_run(run, video=video, fps=fps, seed=seed, checkpoint=checkpoint, policy=policy)


def list_runs(
    root: Annotated[Path, typer.Argument(help="Where the run folders are.")] = Path("runs"),
    json_output: JSON = False,
) -> None:
    """List run folders: state and best score."""
    from lamarckian_cli.cli.output import print_json
    from lamarckian_cli.launch.runs import list_runs as find_runs

    runs = find_runs(root)
    if json_output:
        print_json(runs)
    elif not runs:
        print(f"No runs in {root}. `lamarck train` starts one.")
    else:
        for columns, first in ((RUN_COLUMNS, "algo"), (EVOLUTION_COLUMNS, "evo")):
            _print_runs([entry for entry in runs if first in entry], columns)


RUN_COLUMNS = ("name", "state", "env_steps", "best_return", "when", "env", "algo")
EVOLUTION_COLUMNS = (
    "name",
    "state",
    "evaluations",
    "best",
    "hypervolume",
    "igd",
    "when",
    "problem",
    "evo",
)


def _print_runs(runs: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """A table of these runs; nothing where there are none."""
    if not runs:
        return
    from lamarckian_cli.cli.output import print_table

    shown = [*columns, *(["reason"] if any("reason" in entry for entry in runs) else [])]
    print_table(
        [column.replace("_", " ") for column in shown],
        [[entry.get(column) for column in shown] for entry in runs],
        fold=[shown.index(column) for column in ("when", "reason") if column in shown],
    )


def _of_return(report: Mapping[str, Any]) -> dict[str, Any]:
    """`return_mean`, `return_std` and the like, without their prefix."""
    prefix = "return_"
    return _flat({key.removeprefix(prefix): value for key, value in report.items() if key.startswith(prefix)})


def _flat(value: Any) -> dict[str, Any]:
    """Statistics of one result as columns; those in a group of their own (quantiles) follow."""
    if not isinstance(value, Mapping):
        return {"mean": value}
    flat: dict[str, Any] = {}
    for name, item in value.items():
        flat.update({str(k): v for k, v in item.items()} if isinstance(item, Mapping) else {str(name): item})
    return flat
