"""Measurements on this machine, as the costs that `simulation.py` simulates with.

Rates come from `rates.py`, sizes from unrolls and weights as they are sent; what transport takes,
`calibration_transport.py` measures. What cannot be measured here is declared in WORKLOADS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lamarckian_cli.bench.rates import RatesOnEveryCore, rate_of
from lamarckian_cli.bench.simulation import Costs
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.process import limit_threads
from lamarckian_cli.launch.wiring import job_of
from lamarckian_cli.records import DiscreteHead, InputSpec, MatchResult, SeatSpec, Unrolls
from lamarckian_cli.transport.codec import Message, encode
from lamarckian_cli.transport.packing import pack_unrolls, pack_weights

RATE_S = 1.0
COMMON = ("tuned=none", "cluster.actors=1", "run.dir=unused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is trained: overrides of `lamarck train`, and what is declared because it is not measured here."""

    overrides: tuple[str, ...]
    update_s: float  # declared: of a batch, on a GPU such as the paper's
    quick: tuple[str, ...] = ()  # overrides while rates are measured; they change no rate per env step
    seat: SeatSpec | None = None  # declared: of a game that is not installed, with its step rate
    step_rate: float | None = None


# Batches and networks of the paper's Table III. At most 16 matches an actor: with thousands of actors
# more would only make each wait longer for its turn.
WORKLOADS = {
    "pendulum": Workload(
        overrides=("env=pendulum", "algo.batch_size=8192", "algo.unroll=64", "cluster.matches=16"),
        update_s=0.01,  # 2 GFLOP: launching kernels and copying the batch
    ),
    "pong_image": Workload(
        overrides=("env=pong_image", "algo.batch_size=8192", "algo.unroll=64", "cluster.matches=8"),
        quick=("algo.batch_size=1024",),
        update_s=0.1,  # 0.5 TFLOP at a tenth of the peak, and 230 MB to copy
    ),
    "football": Workload(
        overrides=(
            "env=pong",
            "model.policy=[512,256,128]",
            "model.critic=[128,64]",
            "algo.batch_size=32768",
            "algo.reuse=2",
            "algo.unroll=64",
            "cluster.matches=1",
        ),
        update_s=0.05,  # 0.1 TFLOP, and 20 MB to copy
        seat=SeatSpec(
            inputs=(InputSpec(name="simple115", shape=(115,), dtype="float32"),),
            heads=(DiscreteHead(name="action", n=19),),
        ),
        step_rate=140.0,  # the bare engine on one core, 11_vs_11_stochastic
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """Costs, and where they come from."""

    costs: Costs  # with the declared update time
    declared: tuple[str, ...]  # fields of `costs` that were not measured here
    update_s_here: float | None  # of a batch, on one core of this machine; None where it was not measured


def calibrate(name: str, *, cores: int) -> Calibrated:
    """Measure a workload on so many cores at once; takes seconds."""
    workload = WORKLOADS[name]
    job = job_of([*COMMON, *workload.overrides])
    update_s_here = None
    if workload.seat is None:
        rates = RatesOnEveryCore([*COMMON, *workload.overrides, *workload.quick], cores)
        try:
            measured = rates.measure(RATE_S)
        finally:
            rates.close()
        unrolls, results = _sampled(job)
        update_s_here = job.algo.batch_size / measured["update_rate"]
        step_rate, choosing_rate = measured["step_rate"], measured["forward_rate"]
        seat = next(iter(_cast(job).trained.values()))
    else:
        assert workload.step_rate is not None
        seat, step_rate = workload.seat, workload.step_rate
        unrolls, results = _made_up(job, seat), []
        choosing_rate = forward_rate(job, seat)
    costs = Costs(
        step_rate=step_rate,
        forward_rate=choosing_rate,
        bytes_per_step=_bytes_per_step(unrolls, results),
        weights_bytes=_weights_bytes(job, seat),
        matches=job.cluster.matches,
        unroll=job.algo.unroll,
        batch_size=job.algo.batch_size,
        optimizer_steps=job.algo.optimizer_steps_per_batch,
        update_s=workload.update_s,
    )
    declared = ("update_s",) if workload.seat is None else ("step_rate", "update_s")
    return Calibrated(costs=costs, declared=declared, update_s_here=update_s_here)


def message_sizes(job: Job, seat: SeatSpec) -> tuple[float, float]:
    """Bytes of an env step, by real unrolls, and of a version of the weights."""
    return _bytes_per_step(*_sampled(job)), _weights_bytes(job, seat)


# ------------------------------------------------------------------ sizes and rates of a job


def _bytes_per_step(unrolls: Unrolls, results: list[MatchResult]) -> float:
    return _size(pack_unrolls(unrolls, results)) / unrolls.reward[..., 0].size


def _weights_bytes(job: Job, seat: SeatSpec) -> float:
    return _size(pack_weights(_learner(job, seat).weights()))


def _cast(job: Job) -> Any:
    from lamarckian_cli.launch.casting import cast_players

    mdp = job.env.make_mdp()
    try:
        return cast_players(job, mdp.describe())
    finally:
        mdp.close()


def _learner(job: Job, seat: SeatSpec) -> Any:
    from lamarckian_cli.learner.learner import Learner

    return Learner("main", seat, job.model, job.algo, seed=job.seed)


def _sampled(job: Job) -> tuple[Unrolls, list[MatchResult]]:
    """Real unrolls of all matches of an actor, and the matches that ended meanwhile."""
    from lamarckian_cli.launch.assembly import build_rollout

    rollout = build_rollout(job, job.env.make_mdp(), _cast(job), actor=0)
    try:
        while not (taken := list(rollout.take(job.cluster.matches))):
            rollout.step()
        return taken[0], rollout.pop_results()
    finally:
        rollout.close()


def _made_up(job: Job, seat: SeatSpec) -> Unrolls:
    """Unrolls of zeros, of the right shapes."""
    from lamarckian_cli.actor.buffers import UnrollBuffer

    count = job.cluster.matches
    buffer = UnrollBuffer("main", seat, count, job.algo.unroll)
    inputs = tuple(np.zeros((count, *i.shape), i.dtype) for i in seat.inputs)
    actions = tuple(
        np.zeros(count, np.int64) if isinstance(h, DiscreteHead) else np.zeros((count, h.size), np.float32)
        for h in seat.heads
    )
    for _ in range(job.algo.unroll + 1):
        places = buffer.observe(None, inputs, np.zeros((count, len(seat.rewards))))
        buffer.record(None, places, actions, np.zeros(count, np.float32), 0)
    return buffer.take(count)


def forward_rate(job: Job, seat: SeatSpec) -> float:
    """Env steps a second of choosing actions alone, on one core."""
    from lamarckian_cli.actor.policy import Policy

    limit_threads(1)
    policy = Policy("main", seat, job.model, seed=0)
    policy.load(_learner(job, seat).weights())
    count, rng = job.cluster.matches, np.random.default_rng(0)
    inputs = tuple(np.zeros((count, *i.shape), i.dtype) for i in seat.inputs)
    masks = (None,) * len(seat.heads)

    def forward() -> int:
        policy.sampler.sample(policy.inference(inputs), masks, rng)
        return count

    return rate_of(forward, RATE_S)


def _size(message: Message) -> int:
    return sum(memoryview(frame).nbytes for frame in encode(message))
