"""Builds what a job consists of: learners, rollouts, the policies that play in them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lamarckian_cli.actor.buffers import UnrollBuffer
from lamarckian_cli.actor.group import PolicyGroup
from lamarckian_cli.actor.opponents import Opponents
from lamarckian_cli.actor.players import RandomPolicy
from lamarckian_cli.actor.policy import Policy
from lamarckian_cli.actor.rollout import Rollout
from lamarckian_cli.errors import RunError
from lamarckian_cli.launch.casting import Cast
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.settings import POOL, is_trained
from lamarckian_cli.mdp.interface import MDP
from lamarckian_cli.model.precision import uses_bf16
from lamarckian_cli.records import SeatSpec, Weights
from lamarckian_cli.seeding import derive_seed

if TYPE_CHECKING:
    from lamarckian_cli.learner.learner import Learner


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
    opponents: Opponents | None = None
    for number, player in enumerate(cast.players):
        if player == "builtin" or player in policies:
            continue
        own_seed = derive_seed(seed, ("policy", len(policies)))
        seat = spec.seats[number]
        if player == "random":
            policies[player] = RandomPolicy(seat, own_seed)
        elif player == POOL:
            slots = cast.players.count(player) * matches
            policies[player] = opponents = _opponents(job, seat, slots, own_seed, device)
        elif player.startswith("frozen:"):
            policies[player] = frozen_policy(Path(player.removeprefix("frozen:")), seat, seed=own_seed)
        else:
            slots = cast.players.count(player) * matches
            names = members_of(job, actor, actors) if job.members else (player,)
            policies[player] = _training_policy(job, names, seat, slots, own_seed, device)
    seats = {seat: policies[cast.players[seat]] for seat in cast.driven}
    return Rollout(mdp, seats, matches=matches, seed=seed, opponents=opponents)


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


def _opponents(job: Job, seat: SeatSpec, slots: int, seed: int, device: str) -> Opponents:
    return Opponents(
        job.selfplay.capacity,
        seat,
        job.model,
        slots=slots,
        seed=seed,
        bf16=uses_bf16(job.algo.precision, device),
        normalizes=job.algo.normalize_observations,
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
