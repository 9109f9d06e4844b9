"""How the pool of a run stands, read from its newest checkpoint: ratings, win rates, Nash mixture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lamarckian_cli.config.build import build_as
from lamarckian_cli.errors import RunError
from lamarckian_cli.launch.runfolder import RunFolder
from lamarckian_cli.selfplay.league import League
from lamarckian_cli.selfplay.nash import nash_mixture
from lamarckian_cli.selfplay.settings import SelfPlay


def read_pool(run: Path | str) -> dict[str, Any]:
    """`lamarck pool --json`'s document. Raises RunError where the run has no pool, or no checkpoint yet."""
    folder = RunFolder.open(run)
    state = folder.load_checkpoint("latest")
    saved = saved_pool(state)
    if saved is None:
        raise RunError(f"{folder.path} has no pool of opponents; train with selfplay=pfsp or another")
    settings = build_as(SelfPlay, folder.config()["selfplay"], "selfplay")
    return {"run": str(folder.path), **table_of(settings, saved)}


def saved_pool(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a checkpoint holds of self-play: a training's, or a population's; None where there is none."""
    found: dict[str, Any] | None = state.get("selfplay")
    if found is None and state.get("pool"):
        found = state["pool"].get("trainer", {}).get("members", {}).get("selfplay")
    return found


def table_of(settings: SelfPlay, saved: Mapping[str, Any]) -> dict[str, Any]:
    """Players, policies first, then snapshots, oldest first; win rates [N][N] of the row over the column.

    `saved` is a PoolKeeper's state. Raises RunError for damaged weights.
    """
    league = League(settings)
    league.restore(saved["league"])
    names = (*league.policies, *league.pool.names)
    square = np.ix_(*[league.payoff.rows(names)] * 2)
    mixture = nash_mixture(league.payoff.advantage()[square])
    players = []
    for name, share in zip(names, mixture.tolist(), strict=True):
        rating, snapshot = league.ratings[name], league.pool.find(name)
        players.append(
            {
                "name": name,
                "rating": rating.mean,
                "deviation": rating.deviation,
                "matches": rating.matches,
                "nash": share,
                "env_steps": None if snapshot is None else snapshot.env_steps,
                "version": None if snapshot is None else snapshot.version,
                "digest": None if snapshot is None else snapshot.digest,
            }
        )
    return {
        "matchmaking": settings.matchmaking,
        "rating": settings.rating,
        "players": players,
        "win_rates": league.payoff.win_rates()[square].tolist(),
        "matches": league.payoff.matches()[square].tolist(),
    }
