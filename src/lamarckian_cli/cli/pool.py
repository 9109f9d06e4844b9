"""`lamarck pool`: the opponents that self-play has kept, and how they stand."""

from __future__ import annotations

from typing import Annotated

import typer

from lamarckian_cli.cli.runs import JSON, RUN

MOST_COLUMNS = 12  # of win rates, newest first; --all shows every one


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("pool")(pool)


def pool(
    run: RUN,
    everything: Annotated[
        bool, typer.Option("--all", help=f"Win rates against all, not the newest {MOST_COLUMNS}.")
    ] = False,
    json_output: JSON = False,
) -> None:
    """Show the opponents of self-play: ratings, win rates, Nash mixture."""
    from lamarckian_cli.cli.output import print_json, print_table
    from lamarckian_cli.launch.pool_table import read_pool

    document = read_pool(run)
    if json_output:
        print_json(document)
        return
    players = document["players"]
    order = sorted(range(len(players)), key=lambda i: -players[i]["rating"])
    print_table(
        ["player", "rating", "deviation", "matches", "nash", "env steps"],
        [
            [
                player["name"],
                f"{player['rating']:.1f}",
                f"{player['deviation']:.1f}",
                player["matches"],
                f"{player['nash']:.0%}",
                "-" if player["env_steps"] is None else f"{player['env_steps']:,}",
            ]
            for player in (players[i] for i in order)
        ],
    )
    rivals = [i for i, player in enumerate(players) if player["env_steps"] is not None]
    shown = rivals if everything else rivals[-MOST_COLUMNS:]
    print_table(
        ["wins of, over", *(players[j]["name"] for j in shown)],
        [
            [
                players[i]["name"],
                *(
                    "" if i == j or not document["matches"][i][j] else f"{document['win_rates'][i][j]:.0%}"
                    for j in shown
                ),
            ]
            for i in order
        ],
    )
    if len(shown) < len(rivals):
        print(f"against {len(shown)} of {len(rivals)}; --all shows the rest")
