"""`lamarck eval`: a run's policy plays matches greedily, and what they came to is summed up.

The same seed gives the same numbers. Match i counts as match i whenever it ends, and every
match that was begun counts, so short matches have no advantage.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lamarckian_cli.actor.players import RandomPolicy
from lamarckian_cli.actor.policy import Policy
from lamarckian_cli.actor.rollout import Rollout
from lamarckian_cli.config.build import keys_of, locate
from lamarckian_cli.errors import ConfigError, MDPError, RunError, require
from lamarckian_cli.launch.assembly import frozen_policy
from lamarckian_cli.launch.casting import Cast, cast_players, judged
from lamarckian_cli.launch.job import Job, MDPFactory
from lamarckian_cli.launch.process import limit_threads
from lamarckian_cli.launch.runfolder import RunFolder
from lamarckian_cli.launch.settings import POOL
from lamarckian_cli.launch.usercode import code_of
from lamarckian_cli.launch.wiring import build_job_from
from lamarckian_cli.mdp.interface import MDP
from lamarckian_cli.metrics import finite
from lamarckian_cli.records import MDPSpec, Weights
from lamarckian_cli.seeding import derive_seed

MATCHES_AT_ONCE = 64
QUANTILES = (5, 25, 50, 75, 95)  # per cent


def evaluate(
    run: Path | str,
    *,
    episodes: int | None = None,
    seed: int = 0,
    checkpoint: Path | str = "latest",
    policy: str | None = None,
) -> dict[str, Any]:
    """Play `episodes` matches of a run (`evaluation.episodes` if None): `lamarck eval --json`'s document.

    The run's policies play greedily, its other players as in training. What is reported is
    `policy`'s (the first that trained, if None), from the first seat that it plays. Raises
    RunError where the run cannot be used, MDPError where a match failed.
    """
    require(episodes is None or episodes >= 1, "episodes", episodes, "it must be at least 1")
    setup = prepare(run, seed=seed, checkpoint=checkpoint, policy=policy)
    count = setup.job.evaluation.episodes if episodes is None else episodes
    rollout = setup.rollout(setup.mdp, matches=count)
    results = play_out(rollout, setup.seat)
    if len(results) != count:
        raise MDPError(
            f"{count - len(results)} of {count} matches failed; the first error: {rollout.first_failure}"
        )
    return {
        "run": str(setup.folder.path),
        "checkpoint": str(checkpoint),
        "policy": setup.policy,
        "version": setup.version,
        "seed": seed,
        **report(results),
    }


def report(results: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Statistics of what matches reported, in the keys of `lamarck eval --json`."""
    names = dict.fromkeys(name for result in results for name in result)
    columns = {name: statistics([r[name] for r in results if name in r]) for name in names}
    document: dict[str, Any] = {"episodes": len(results)}
    document.update({f"return_{key}": value for key, value in columns.pop("return").items()})
    if "win" in columns:
        document["win_rate"] = columns["win"]["mean"]
    document["results"] = columns
    made: dict[str, Any] = finite(document)
    return made


def statistics(values: Sequence[float]) -> dict[str, float]:
    """Mean, standard deviation (of the population), extremes and quantiles."""
    array = np.asarray(values, np.float64)
    quantiles = np.percentile(array, QUANTILES)
    return {
        "mean": float(array.mean()),
        "std": float(array.std()),
        "min": float(array.min()),
        "max": float(array.max()),
        **{f"p{q:02d}": float(value) for q, value in zip(QUANTILES, quantiles, strict=True)},
    }


# ------------------------------------------------------------------ a run that can play


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A run's players, seated and with their weights."""

    folder: RunFolder
    job: Job
    mdp: MDP
    spec: MDPSpec
    players: dict[int, Policy]  # by seat
    policy: str  # whose results are asked for
    seat: int  # the first that it plays
    version: int
    seed: int

    def rollout(self, mdp: MDP, *, matches: int) -> Rollout:
        """`matches` matches of `mdp`; match i is the same match for `eval` and `play`."""
        return Rollout(
            mdp,
            self.players,
            matches=min(matches, MATCHES_AT_ONCE),
            seed=derive_seed(self.seed, ("eval",)),
            limit=matches,
        )


def prepare(
    run: Path | str, *, seed: int, checkpoint: Path | str, policy: str | None, render: bool = False
) -> Setup:
    """Make a run's game and players from its folder; with `render` the game is made to be looked at."""
    require(seed >= 0, "seed", seed, "it must be 0 or more")
    folder = RunFolder.open(run)
    with code_of(folder):
        return _prepare(folder, seed, checkpoint, policy, render)


def _prepare(folder: RunFolder, seed: int, checkpoint: Path | str, policy: str | None, render: bool) -> Setup:
    job = build_job_from(folder.config())
    tree = folder.load_checkpoint(checkpoint)
    mdp = (_to_be_looked_at(job.env) if render else job.env).make_mdp()
    try:
        spec = mdp.describe()
        cast = judged(cast_players(job, spec), spec)
        name = next(iter(cast.trained)) if policy is None else policy
        if name not in cast.trained:
            raise ConfigError(f"policy is {name!r}; {folder.path} trained {', '.join(cast.trained)}")
        players = _players(folder, job, spec, cast, tree, seed)
        limit_threads(1)
        return Setup(
            folder=folder,
            job=job,
            mdp=mdp,
            spec=spec,
            players=players,
            policy=name,
            seat=cast.players.index(name),
            version=int(tree["learners"][name]["version"]),
            seed=seed,
        )
    except BaseException:
        mdp.close()
        raise


def play_out(rollout: Rollout, seat: int) -> list[dict[str, float]]:
    """Play all matches of the rollout and close it; what `seat` got, in the order of the matches."""
    try:
        if rollout.mdp.external:
            asyncio.run(_play_out_outside(rollout))
        else:
            while not rollout.finished:
                rollout.step()
    finally:
        rollout.close()
    rows = {number: result.result for number, result in rollout.results if result.seat == seat}
    return [rows[number] for number in sorted(rows)]


async def _play_out_outside(rollout: Rollout) -> None:
    while not rollout.finished:
        await rollout.step_outside()


def _players(
    folder: RunFolder, job: Job, spec: MDPSpec, cast: Cast, tree: Any, seed: int
) -> dict[int, Policy]:
    made: dict[str, Policy] = {}
    for seat in cast.driven:
        player = cast.players[seat]
        if player in made:
            continue
        own_seed = derive_seed(seed, ("eval", "player", player))
        if player == "random":
            made[player] = RandomPolicy(spec.seats[seat], own_seed)
        elif player in cast.trained:
            made[player] = _trained(folder, job, spec, player, seat, tree, own_seed)
        elif player == POOL:
            made[player] = _newest(folder, job, spec, seat, tree, own_seed)
        else:
            made[player] = frozen_policy(
                Path(player.removeprefix("frozen:")), spec.seats[seat], seed=own_seed
            )
    return {seat: made[cast.players[seat]] for seat in cast.driven}


def _trained(
    folder: RunFolder, job: Job, spec: MDPSpec, name: str, seat: int, tree: Any, seed: int
) -> Policy:
    policy = _untrained(job, spec, name, seat, seed)
    try:
        state = tree["learners"][name]
        policy.load(Weights(policy=name, version=int(state["version"]), vector=state["vector"]))
    except (KeyError, TypeError, ValueError) as error:
        raise _unfitting(folder, error) from error
    return policy


def _newest(folder: RunFolder, job: Job, spec: MDPSpec, seat: int, tree: Any, seed: int) -> Policy:
    """Of self-play's pool the newest snapshot, where a game has no opponent of its own."""
    policy = _untrained(job, spec, POOL, seat, seed)
    try:
        snapshot = tree["selfplay"]["league"]["pool"]["snapshots"][-1]
        policy.load(Weights(policy=POOL, version=int(snapshot["number"]), vector=snapshot["vector"]))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise _unfitting(folder, error) from error
    return policy


def _untrained(job: Job, spec: MDPSpec, name: str, seat: int, seed: int) -> Policy:
    return Policy(
        name,
        spec.seats[seat],
        job.model,
        seed=seed,
        normalizes=job.algo.normalize_observations,
        greedy=True,
    )


def _unfitting(folder: RunFolder, error: Exception) -> RunError:
    return RunError(
        f"the checkpoint of {folder.path} does not fit its configuration ({error}); "
        "restore config.yaml, or the game as it was"
    )


def _to_be_looked_at(env: MDPFactory) -> MDPFactory:
    """Games that draw only if told to when they are made have a key for it."""
    if "render" in keys_of(locate(env.spec, "env")):
        # pygame draws into memory here; without this SDL looks for a screen and complains.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        return replace(env, spec={**env.spec, "render": True})
    return env
