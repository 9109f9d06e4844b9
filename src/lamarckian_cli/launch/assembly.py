"""Builds what a job consists of: who plays which seat, learners, rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lamarckian_cli.actor.buffers import UnrollBuffer
from lamarckian_cli.actor.players import RandomPolicy
from lamarckian_cli.actor.policy import Policy
from lamarckian_cli.actor.rollout import Rollout
from lamarckian_cli.errors import ConfigError, RunError
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.settings import is_trained
from lamarckian_cli.mdp.interface import MDP
from lamarckian_cli.model.precision import uses_bf16
from lamarckian_cli.records import MDPSpec, SeatSpec, Weights
from lamarckian_cli.seeding import derive_seed

if TYPE_CHECKING:
    from lamarckian_cli.learner.learner import Learner


@dataclass(frozen=True, kw_only=True)
class Cast:
    """Who plays each seat of a game, checked against what the game can do."""

    players: tuple[str, ...]  # one a seat
    trained: dict[str, SeatSpec]  # policy name -> what its seats look like
    driven: tuple[int, ...]  # seats that are played through a controller


def cast_players(job: Job, spec: MDPSpec) -> Cast:
    """Decide who plays each seat; ConfigError where the game cannot have it so."""
    players = job.players.seats
    if players is None:
        players = (
            "main",
            *["builtin" if s in spec.builtin_seats else "main" for s in range(1, len(spec.seats))],
        )
    if len(players) != len(spec.seats):
        raise ConfigError(
            f"players.seats is {list(players)}; {spec.name} has {len(spec.seats)} "
            f"seat{'s' if len(spec.seats) > 1 else ''}, so it must name {len(spec.seats)}, "
            f"such as {['main'] * len(spec.seats)}"
        )
    trained: dict[str, SeatSpec] = {}
    for number, (player, seat) in enumerate(zip(players, spec.seats, strict=True)):
        if player == "builtin" and number not in spec.builtin_seats:
            raise ConfigError(
                f"players.seats[{number}] is 'builtin'; {spec.name} has no opponent of its own there "
                "(name a policy, or take random)"
            )
        if is_trained(player):
            known = trained.setdefault(player, seat)
            if (known.inputs, known.heads, known.rewards) != (seat.inputs, seat.heads, seat.rewards):
                raise ConfigError(
                    f"players.seats is {list(players)}; seat {number} of {spec.name} differs from the other "
                    f"that {player!r} plays, so it needs a policy of another name"
                )
    driven = tuple(number for number, player in enumerate(players) if player != "builtin")
    return Cast(players=tuple(players), trained=trained, driven=driven)


def build_learners(job: Job, cast: Cast, device: str = "cpu") -> dict[str, Learner]:
    """A learner for each policy that trains."""
    from lamarckian_cli.learner.learner import Learner  # brings torch, which actors may not need

    return {
        name: Learner(
            name,
            seat,
            job.model,
            job.algo,
            seed=job.seed,
            total_env_steps=job.budget.env_steps,
            device=device,
        )
        for name, seat in cast.trained.items()
    }


def build_rollout(job: Job, mdp: MDP, cast: Cast, *, actor: int, device: str = "cpu") -> Rollout:
    """An actor's matches, with every policy that plays in them; `actor` counts from 0."""
    spec = mdp.describe()
    bf16 = uses_bf16(job.algo.precision, device)
    seed = derive_seed(job.seed, ("actor", actor))
    policies: dict[str, Policy] = {}
    for number, player in enumerate(cast.players):
        if player == "builtin" or player in policies:
            continue
        own_seed = derive_seed(seed, ("policy", len(policies)))
        seat = spec.seats[number]
        if player == "random":
            policies[player] = RandomPolicy(seat, own_seed)
        elif player.startswith("frozen:"):
            policies[player] = frozen_policy(Path(player.removeprefix("frozen:")), seat, seed=own_seed)
        else:
            slots = cast.players.count(player) * job.cluster.matches
            policies[player] = Policy(
                player,
                seat,
                job.model,
                seed=own_seed,
                bf16=bf16,
                normalizes=job.algo.normalize_observations,
                buffer=UnrollBuffer(player, seat, slots, job.algo.unroll),
            )
    seats = {seat: policies[cast.players[seat]] for seat in cast.driven}
    return Rollout(mdp, seats, matches=job.cluster.matches, seed=seed)


def trained_policies(rollout: Rollout) -> dict[str, Policy]:
    """The rollout's policies that record, by name."""
    return {policy.name: policy for policy in rollout.policies if policy.buffer is not None}


def message_unrolls(job: Job, cast: Cast) -> int:
    """Unrolls that an actor sends together: as many as it completes at once, at most half a batch."""
    fewest = min(cast.players.count(name) for name in cast.trained) * job.cluster.matches
    return max(1, min(fewest, job.algo.unrolls_per_batch // 2 or 1))


def frozen_policy(
    run: Path, seat: SeatSpec, *, seed: int, greedy: bool = False, which: str = "latest"
) -> Policy:
    """A finished run's policy, for this seat; RunError where it was made for another one."""
    from lamarckian_cli.launch.runfolder import RunFolder
    from lamarckian_cli.launch.usercode import code_of
    from lamarckian_cli.launch.wiring import build_job_from

    folder = RunFolder.open(run)
    with code_of(folder):
        job = build_job_from(folder.config())
    tree = folder.load_checkpoint(which)
    state = next(iter(tree["learners"].values()))
    name = f"frozen:{run}"  # not the name that it trained under, which may be in this game too
    policy = Policy(
        name,
        seat,
        job.model,
        seed=seed,
        normalizes=job.algo.normalize_observations,
        greedy=greedy,
    )
    try:
        policy.load(Weights(policy=name, version=int(state["version"]), vector=state["vector"]))
    except ValueError as error:
        raise RunError(
            f"{run} was trained on another game or network: {error}; choose a run of this game"
        ) from error
    return policy
