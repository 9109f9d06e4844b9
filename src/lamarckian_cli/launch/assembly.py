"""Builds what a job consists of: who plays which seat, learners, rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lamarckian_cli.actor.buffers import UnrollBuffer
from lamarckian_cli.actor.group import PolicyGroup
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
    if job.members:
        trained = _members(job, players, trained)
    driven = tuple(number for number, player in enumerate(players) if player != "builtin")
    return Cast(players=tuple(players), trained=trained, driven=driven)


def _members(job: Job, players: Sequence[str], trained: dict[str, SeatSpec]) -> dict[str, SeatSpec]:
    """A population's members in the place of the one policy that trains."""
    if len(trained) > 1:
        raise ConfigError(
            f"players.seats is {list(players)}; a population takes the place of one policy, so name one "
            f"that trains, such as {['main' if is_trained(p) else p for p in players]}"
        )
    [seat] = trained.values()
    return dict.fromkeys(job.members, seat)


def members_of(job: Job, actor: int, actors: int) -> tuple[str, ...]:
    """The members whose matches an actor plays: every `actors`-th; where actors are more, one each."""
    members = job.members
    return members[actor::actors] if len(members) >= actors else (members[actor % len(members)],)


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


def build_rollout(
    job: Job, mdp: MDP, cast: Cast, *, actor: int, actors: int = 1, device: str = "cpu"
) -> Rollout:
    """An actor's matches, with every policy that plays in them; `actor` counts from 0.

    A population's members are dealt out among `actors`; matches are rounded up to equally many for each.
    """
    spec = mdp.describe()
    seed = derive_seed(job.seed, ("actor", actor))
    matches = job.cluster.matches
    if job.members:  # equally many for each
        members = len(members_of(job, actor, actors))
        matches = -(-matches // members) * members
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
            slots = cast.players.count(player) * matches
            names = members_of(job, actor, actors) if job.members else (player,)
            policies[player] = _training_policy(job, names, seat, slots, own_seed, device)
    seats = {seat: policies[cast.players[seat]] for seat in cast.driven}
    return Rollout(mdp, seats, matches=matches, seed=seed)


def _training_policy(
    job: Job, names: tuple[str, ...], seat: SeatSpec, slots: int, seed: int, device: str
) -> Policy:
    """One policy, or the group of a population's members."""
    bf16, normalizes = uses_bf16(job.algo.precision, device), job.algo.normalize_observations
    buffer = UnrollBuffer("+".join(names), seat, slots, job.algo.unroll)
    if len(names) == 1:
        return Policy(names[0], seat, job.model, seed=seed, bf16=bf16, normalizes=normalizes, buffer=buffer)
    return PolicyGroup(
        names, seat, job.model, slots=slots, seed=seed, bf16=bf16, normalizes=normalizes, buffer=buffer
    )


def trained_policies(rollout: Rollout) -> dict[str, Policy]:
    """The rollout's policies that record, by the names that their weights go by."""
    return {name: p for p in rollout.policies if p.buffer is not None for name in p.names}


def message_unrolls(job: Job, cast: Cast, actors: int = 1) -> int:
    """Unrolls that an actor sends together: as many as it completes at once, at most half a batch."""
    if job.members:
        seats = sum(is_trained(player) for player in cast.players)
        fewest = seats * job.cluster.matches // max(1, len(job.members) // actors)
    else:
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
