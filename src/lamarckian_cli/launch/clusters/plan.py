"""What a job would be on a cluster that need not be there: machines, tree, traffic, memory, staleness.

Sizes come from the job itself: its network is built, its machines are placed as they would be.
What only a measurement can tell (how fast an actor samples, how long an update takes, how fast
the links are) is an assumption, which the plan names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.casting import Cast, cast_players
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.placement import Machine, Placement, place
from lamarckian_cli.transport.tree import (
    Wire,
    children,
    fanout_of,
    layers,
    predicted_s,
)

# Measured on two cores of a server (docs/benchmarks.md), rounded; images with small convolutions.
SAMPLED_PER_S, SAMPLED_PER_S_IMAGES = 20_000.0, 600.0  # env steps, by an actor
LEARNED_PER_S, LEARNED_PER_S_IMAGES = 200_000.0, 2_000.0  # env steps of one pass, on the CPU
GPU_FASTER = 10.0  # than that, for the learner; a guess
ACTOR_BYTES = 115_000_000  # resident size of an actor without images
LEARNER_BYTES = 600_000_000  # of the learner's process without network and batches: torch
VERSIONS_SHARED = 2  # of the weights, in a machine's shared memory
UNROLL_ROWS = 3  # per match, in an actor's buffer
MOST_BYTES = 1 << 60  # that one process may need
OPTIMIZER_VECTORS = 4  # weights, gradient, Adam's two
MOST_ACTORS, MOST_MACHINES = 1_000_000, 100_000  # far beyond every cluster; each is placed, which takes time


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What the plan cannot know."""

    bandwidth_gbit_per_s: float  # of each machine's link, each direction
    latency_us: float  # one way
    env_steps_per_s: float  # that one actor samples
    update_s: float  # that the learner takes for a batch


def plan_of(
    job: Job,
    *,
    bandwidth_gbit_per_s: float,
    latency_us: float,
    env_steps_per_s: float | None = None,
    update_s: float | None = None,
) -> dict[str, Any]:
    """The plan as one document; what is None is assumed. Starts nothing.

    A ClusterError where the job does not say how large its cluster is.
    """
    mdp = job.env.make_mdp()
    spec = mdp.describe()
    mdp.close()
    cast = cast_players(job, spec)
    images = any(i.is_image for seat in cast.trained.values() for i in seat.inputs)
    learned = (LEARNED_PER_S_IMAGES if images else LEARNED_PER_S) * (
        GPU_FASTER if job.cluster.learner_gpus else 1
    )
    assumed = Assumed(
        bandwidth_gbit_per_s=bandwidth_gbit_per_s,
        latency_us=latency_us,
        env_steps_per_s=env_steps_per_s or (SAMPLED_PER_S_IMAGES if images else SAMPLED_PER_S),
        update_s=update_s or job.algo.batch_size * job.algo.reuse / learned,
    )
    placement = place(job.cluster, machines_of(job), job.command_line)
    weights = _weights(job, cast)
    tree = _tree(job, placement, weights["wire_bytes"], assumed)
    rates = _rates(job, placement.total_actors, assumed)
    return {
        "machines": _machines(job, cast, placement, weights["bytes"]),
        "tree": tree,
        "weights": weights,
        "rates": rates,
        "egress": _egress(tree, weights["wire_bytes"], rates["updates_per_s"], assumed),
        "staleness": _staleness(job, rates, tree["broadcast_s"], assumed),
        "assumed": dataclasses.asdict(assumed),
    }


def machines_of(job: Job) -> list[Machine]:
    """The machines that a job's cluster consists of, by its size: the learner's, and workers for actors."""
    cluster = job.cluster
    actors = cluster.actors if cluster.actors is not None else cluster.cores
    if cluster.kind != "auto" and cluster.actors is not None:
        _check_size("cluster.actors", cluster.actors)
        return [_machine("0", cluster.actors + 1, gpus=0)]
    if actors is None:
        raise ClusterError(
            "cluster.cores is null, so this cluster has no size; name one, such as cluster=6000cores, or "
            "give cluster.actors=N or cluster.cores=N"
        )
    _check_size("cluster.actors" if cluster.actors is not None else "cluster.cores", actors)
    _check_size("cluster.cores", cluster.cores or 0)
    workers = ceil(max(actors, cluster.cores or 0) / cluster.cores_per_machine)
    if workers > MOST_MACHINES:
        raise ClusterError(
            f"cluster.cores_per_machine is {cluster.cores_per_machine}, which makes {workers:,} machines; a "
            f"plan is made for at most {MOST_MACHINES:,}, so give more cores a machine, or fewer actors"
        )
    learner = _machine("0", 0, gpus=cluster.learner_gpus)
    return [learner, *(_machine(str(i), cluster.cores_per_machine) for i in range(1, workers + 1))]


def _check_size(key: str, value: int) -> None:
    if value > MOST_ACTORS:
        raise ClusterError(f"{key} is {value:,}; a plan is made for at most {MOST_ACTORS:,}, so give fewer")


# ---------------------------------------------------------------------- the parts of the document


def _machine(node_id: str, cores: int, gpus: int = 0) -> Machine:
    return Machine(node_id=node_id, address="", name=node_id, cores=cores, gpus=gpus, here=node_id == "0")


def _machines(job: Job, cast: Cast, placement: Placement, weights_bytes: int) -> dict[str, Any]:
    """How many there are of what kind, and the memory that each needs."""
    observed = sum(prod(i.shape) * _itemsize(i.dtype) for s in cast.trained.values() for i in s.inputs)
    steps = job.cluster.matches * len(cast.driven) * (job.algo.unroll + 1) * UNROLL_ROWS
    actor_bytes = ACTOR_BYTES + weights_bytes + observed * steps
    batches = ceil(job.cluster.queue_batches) + 2  # one is learned from, one is being put together
    learner_bytes = (
        LEARNER_BYTES + weights_bytes * OPTIMIZER_VECTORS + job.algo.batch_size * observed * batches
    )
    if max(actor_bytes, learner_bytes) > MOST_BYTES:
        raise ClusterError(
            f"cluster.matches is {job.cluster.matches}, cluster.queue_batches is "
            f"{job.cluster.queue_batches}: a process would need more than an exbibyte of memory; give fewer"
        )
    own = next((n for m, n in placement.actors if m.node_id == placement.learner.node_id), 0)
    groups: dict[int, int] = {}  # actors on a machine -> machines
    for machine, count in placement.actors:
        if machine.node_id != placement.learner.node_id:
            groups[count] = groups.get(count, 0) + 1
    shared = VERSIONS_SHARED * weights_bytes
    return {
        "learner": {
            "gpus": placement.learner.gpus,
            "actors": own,
            "memory_bytes": learner_bytes + own * actor_bytes + (shared if own else 0),
        },
        "workers": [
            {"machines": number, "actors": count, "memory_bytes": count * actor_bytes + shared}
            for count, number in sorted(groups.items(), reverse=True)
        ],
        "total": 1 + len(placement.agents),
        "actors": placement.total_actors,
        "actor_bytes": actor_bytes,
        "shared_bytes": shared,
    }


def _weights(job: Job, cast: Cast) -> dict[str, Any]:
    """The size of what is broadcast, from the networks themselves."""
    from lamarckian_cli.model.network import Network  # brings torch

    numbers = 0
    for seat in cast.trained.values():
        network = Network(seat, job.model)
        numbers += sum(p.numel() for p in network.parameters()) + sum(b.numel() for b in network.buffers())
    return {
        "numbers": numbers,
        "bytes": 4 * numbers,
        "wire_bytes": (2 if job.cluster.half_precision else 4) * numbers,
    }


def _tree(job: Job, placement: Placement, size_bytes: int, assumed: Assumed) -> dict[str, Any]:
    """Who hangs under whom, and how long the last machine waits for a version."""
    machines = len(placement.agents)
    wire = Wire(bytes_per_s=assumed.bandwidth_gbit_per_s * 1e9 / 8, latency_s=assumed.latency_us / 1e6)
    cluster = job.cluster
    fanout = fanout_of(cluster.broadcast, cluster.fanout, machines, size_bytes, wire)
    relays = [rank for rank in children(0, fanout, machines) if children(rank, fanout, machines)]
    return {
        "layout": job.cluster.broadcast,
        "machines": machines,
        "fanout": fanout,
        "layers": layers(fanout, machines),
        "children": {str(r): list(children(r, fanout, machines)) for r in [0, *relays]},
        "broadcast_s": predicted_s(size_bytes, machines, fanout, wire),
        "flat_s": predicted_s(size_bytes, machines, max(1, machines), wire),
    }


def _rates(job: Job, actors: int, assumed: Assumed) -> dict[str, Any]:
    """Env steps and updates a second, by whichever of actors and learner is slower."""
    sampled = actors * assumed.env_steps_per_s
    learned = job.algo.batch_size / assumed.update_s
    updates = min(sampled, learned) / job.algo.batch_size
    return {
        "sampled_per_s": sampled,
        "learned_per_s": learned,
        "limit": "learner" if learned < sampled else "actors",
        "actors_that_suffice": min(actors, ceil(learned / assumed.env_steps_per_s)),
        "env_steps_per_s": min(sampled, learned),
        "updates_per_s": updates,
        "versions_per_update": job.algo.optimizer_steps_per_batch,
    }


def _egress(
    tree: Mapping[str, Any], size_bytes: int, updates_per_s: float, assumed: Assumed
) -> dict[str, Any]:
    """What the learner sends: each update's weights, to those that hang under it."""
    per_version = size_bytes * len(tree["children"]["0"])
    link = assumed.bandwidth_gbit_per_s * 1e9 / 8
    return {
        "per_version_bytes": per_version,
        "flat_per_version_bytes": size_bytes * tree["machines"],
        # A version that is not sent before the next is there is passed over.
        "bytes_per_s": min(per_version * updates_per_s, link),
        "of_link": min(per_version * updates_per_s / link, 1.0),
    }


def _staleness(job: Job, rates: Mapping[str, Any], broadcast_s: float, assumed: Assumed) -> dict[str, Any]:
    """Versions that pass between sampling a step and learning from it; docs/cluster.md has the formula."""
    interval_s = 1 / rates["updates_per_s"]
    # An actor slows down to what the learner takes, where that is less than it could sample.
    sampled_per_s = assumed.env_steps_per_s * rates["env_steps_per_s"] / rates["sampled_per_s"]
    waits_s = {
        "broadcast": broadcast_s,
        "update": assumed.update_s,
        "unroll": job.algo.unroll * job.cluster.matches / sampled_per_s / 2,
        "queue": job.cluster.queue_batches * interval_s if rates["limit"] == "learner" else 0.0,
    }
    parts = {name: rates["versions_per_update"] * waits / interval_s for name, waits in waits_s.items()}
    mean = sum(parts.values())
    return {**parts, "mean": mean, "paper": 1 + mean / rates["versions_per_update"]}


def _itemsize(dtype: str) -> int:
    import numpy as np

    return int(np.dtype(dtype).itemsize)
