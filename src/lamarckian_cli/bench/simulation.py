"""A discrete-event simulation of a training on many machines: sample, gather, update, broadcast.

What a training does with its time follows from a few costs: how long a step, a forward pass and
an update take, how large unrolls and weights are, how fast links are. Here these costs are given,
and actors, node agents, links and the learner play by the rules of the real ones:

- an actor may be ahead of the learner by its share of `queue_batches` + 1 batches, counted in
  unrolls; when it is, it waits for weights that tell it otherwise, for `patience_s` or twice as
  long as the last ones took (`launch/actor_host.py`); every step is drawn by the newest version
  that its machine had before the actor's games went on;
- node agents bundle what waits, and as many messages are under way as there are actors
  (`simulation_network.py`);
- the learner takes unrolls in the order of their arrival, and none while a batch waits;
- after each update it publishes; of the versions that could not be sent only the newest is.

To be fast with 100,000 actors, `Setup.lockstep` neighbours on a machine may be simulated as
one: they begin and end an unroll together. No sockets and no clocks; the time is a number.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamarckian_cli.bench.simulation_actors import Actors, Learner
from lamarckian_cli.bench.simulation_network import (
    Broadcast,
    Gather,
    Transport,
    broadcast_plan,
    dealt_out,
    slowed,
)
from lamarckian_cli.errors import require
from lamarckian_cli.seeding import stream
from lamarckian_cli.transport.tree import Wire

WARM_UP_CYCLES = 2.0  # a cycle: every actor samples and all of it is learned from
CYCLES = 20.0  # that are looked at, or as many as EVENTS allow
FEWEST_CYCLES, FEWEST_BATCHES = 2.0, 20  # whatever it takes, before and while it is looked
EVENTS = 60_000
ENTITIES = 2000  # about as many are simulated one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What one workload costs."""

    step_rate: float  # env steps a second of one actor that only steps
    forward_rate: float  # env steps a second of one actor that only chooses actions
    bytes_per_step: float  # of an unroll on the wire, per env step
    weights_bytes: float  # of one version on the wire
    matches: int  # at once, per actor
    unroll: int  # env steps
    batch_size: int  # env steps
    optimizer_steps: int = 1  # a batch: passes over it times minibatches
    update_s: float  # a batch, at the learner
    step_cpu: float = 1.0  # share of a step's time that takes the processor; 0: the game only waits

    def __post_init__(self) -> None:
        for name in ("step_rate", "forward_rate", "update_s"):
            value = getattr(self, name)
            require(value > 0, f"costs.{name}", value, "it must be above 0")
        for name in ("matches", "unroll", "batch_size", "optimizer_steps"):
            value = getattr(self, name)
            require(value >= 1, f"costs.{name}", value, "it must be at least 1")
        for name in ("bytes_per_step", "weights_bytes"):
            value = getattr(self, name)
            require(value >= 0, f"costs.{name}", value, "it must be 0 or more")
        require(0 <= self.step_cpu <= 1, "costs.step_cpu", self.step_cpu, "it must lie in [0, 1]")
        require(
            self.batch_size % self.unroll == 0,
            "costs.batch_size",
            self.batch_size,
            f"it must be a multiple of the unroll ({self.unroll})",
        )

    @property
    def unrolls_per_batch(self) -> int:
        return self.batch_size // self.unroll

    @property
    def sampling_s(self) -> float:
        """One unroll of all matches of an actor, transport left out."""
        return self.matches * self.unroll * (1 / self.step_rate + 1 / self.forward_rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the costs are spread over; one actor a core."""

    cores: int
    cores_per_machine: int = 40
    layout: str = "tree"
    queue_batches: float = 1.0  # as `cluster.queue_batches`; infinity: actors wait for nobody
    patience_s: float = 1.0  # of an actor that is ahead, at least; then it samples all the same
    bundle_bytes: float = float(1 << 24)
    deviation: float = 0.05  # of the time that an unroll takes, over its mean
    unevenness: float = 0.2  # the same of the time that a version takes
    lockstep: int | None = None  # neighbours simulated as one; None: so that about ENTITIES are left

    def __post_init__(self) -> None:
        for name in ("cores", "cores_per_machine"):
            value = getattr(self, name)
            require(value >= 1, f"setup.{name}", value, "it must be at least 1")
        for name in ("queue_batches", "deviation", "unevenness"):
            value = getattr(self, name)
            require(value >= 0, f"setup.{name}", value, "it must be 0 or more")
        require(self.patience_s > 0, "setup.patience_s", self.patience_s, "it must be above 0 (1)")
        require(
            self.lockstep is None or self.lockstep >= 1,
            "setup.lockstep",
            self.lockstep,
            "it must be at least 1, or null",
        )

    @property
    def members(self) -> int:
        """Actors that are simulated as one."""
        wanted = self.lockstep or math.ceil(self.cores / ENTITIES)
        return min(wanted, self.cores_per_machine)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What came of it, over the time in which it was looked."""

    env_steps_per_s: float  # taken in by the learner
    staleness_mean: float  # versions
    staleness_paper: float  # as the paper counts it: synchronous sampling is 1, a batch is one step
    egress_bytes_per_s: float  # of weights, at the learner
    egress_bytes_per_version: float  # of those that were sent
    versions_sent: float  # of those that were published, a share
    broadcast_s: float  # from the start until the last machine has it
    cpu_use: float  # of the actor machines' cores
    learner_use: float  # share of the time in which it updates
    machines: int
    members: int  # actors simulated as one
    seconds: float  # looked at
    sampled_unrolls: int  # from the start on
    learned_unrolls: int
    waiting_unrolls: int  # between the two, in the end


def simulate(
    costs: Costs, setup: Setup, *, wire: Wire, transport: Transport | None = None, seed: int = 0
) -> Figures:
    """Run until every actor has sampled often enough and the learner has made enough updates."""
    return Simulation(costs, setup, wire, transport or Transport(), seed).run()


class Simulation:
    def __init__(self, costs: Costs, setup: Setup, wire: Wire, transport: Transport, seed: int) -> None:
        self.costs, self.transport = costs, transport
        actors = dealt_out(setup.cores, setup.cores_per_machine)
        self.events: list[tuple[float, int, str, Any]] = []
        self.count = 0  # of events: equal times keep their order
        self.now = 0.0
        plan = broadcast_plan(setup.layout, actors, costs.weights_bytes, slowed(wire, transport.publish))
        self.broadcast = Broadcast(plan, unevenness=setup.unevenness, rng=stream(seed, "broadcast"))
        self.gather = Gather(actors, wire, transport, bundle_bytes=setup.bundle_bytes)
        self.gather.at = self.at
        self.actors = Actors(self, setup, actors, stream(seed, "scaling"))
        self.gather.released = self.actors.released
        self.learner = Learner(self)
        self.handlers: dict[str, Callable[[Any], None]] = {
            "resume": self.actors.resume,
            "sampled": self.actors.sampled,
            "impatient": self.actors.impatient,
            "look": self.actors.look,
            "forward": lambda machine: self.gather.forward(self.now, machine),
            "arrive": self.learner.arrive,
            "updated": self.learner.updated,
            "free": self.free,
        }
        unrolls_s = max(
            self.actors.unroll_bytes / wire.bytes_per_s,
            transport.learner.seconds(1, self.actors.unroll_bytes),
            costs.matches / costs.unrolls_per_batch * costs.update_s,
        )
        self.cycle_s = self.actors.unroll_s + setup.cores * unrolls_s

    def at(self, time: float, kind: str, argument: Any) -> None:
        self.count += 1
        heapq.heappush(self.events, (time, self.count, kind, argument))

    def run(self) -> Figures:
        self.actors.start()
        costs, plan, learner = self.costs, self.broadcast.plan, self.learner
        self._until(WARM_UP_CYCLES * self.cycle_s, FEWEST_BATCHES, math.inf)
        before, began, first = self._tally(), self.now, learner.batches
        enough = began + FEWEST_CYCLES * self.cycle_s
        self._until(began + CYCLES * self.cycle_s, first + FEWEST_BATCHES, enough)
        elapsed = self.now - began
        done = {name: after - before[name] for name, after in self._tally().items()}
        versions_sent = done["sent"] / done["batches"]
        batches_per_s = slope(learner.ended[first - 1 :])
        staleness = float(np.mean(learner.staleness[first:]))
        version_bytes = plan.copies * costs.weights_bytes
        return Figures(
            env_steps_per_s=batches_per_s * costs.batch_size,
            staleness_mean=staleness,
            staleness_paper=1 + staleness / costs.optimizer_steps,
            egress_bytes_per_s=batches_per_s * versions_sent * version_bytes,
            egress_bytes_per_version=version_bytes,
            versions_sent=versions_sent,
            broadcast_s=max(plan.delay_s),
            cpu_use=done["cpu_s"] / elapsed / (len(plan.delay_s) * self.actors.cores_per_machine),
            learner_use=batches_per_s * costs.update_s,
            machines=len(plan.delay_s),
            members=self.actors.members,
            seconds=elapsed,
            sampled_unrolls=self.actors.unrolls,
            learned_unrolls=learner.batches * costs.unrolls_per_batch,
            waiting_unrolls=self.actors.waiting() + self.gather.waiting() + learner.waiting(),
        )

    def publish(self) -> None:
        """The learner has a new version."""
        self.broadcast.newest += self.costs.optimizer_steps
        for branch in self.broadcast.idle():
            self._send_newest(branch)

    def free(self, branch: int) -> None:
        """The version that was under way is there."""
        if self.broadcast.end(branch):
            self._send_newest(branch)

    def _send_newest(self, branch: int) -> None:
        self.at(self.broadcast.begin(self.now, branch), "free", branch)
        relayed = self.broadcast.plan.relayed
        for machine in self.broadcast.branches[branch]:
            if relayed[machine]:
                self.gather.occupy(self.now, machine, relayed[machine], self.costs.weights_bytes)
        self.actors.sent_off(branch)

    def _until(self, time: float, batches: int, enough: float) -> None:
        """Go on until an update ends at `time` (with EVENTS behind us, at `enough`) and there are so many."""
        events, handlers, learner = self.events, self.handlers, self.learner
        kind = ""
        while (
            kind != "updated"
            or learner.batches < batches
            or self.now < (time if self.count < EVENTS else min(time, enough))
        ):
            self.now, _, kind, argument = heapq.heappop(events)
            handlers[kind](argument)

    def _tally(self) -> dict[str, float]:
        """Sums until now."""
        sent, size = self.broadcast.sent, self.costs.weights_bytes
        relayed = sum(self.broadcast.plan.relayed)
        taken_in = self.broadcast.plan.copies + relayed  # copies a version, over all machines
        weights_s = taken_in * self.transport.learner.seconds(1, size)
        weights_s += relayed * self.transport.publish.seconds(1, size)
        return {
            "batches": self.learner.batches,
            "sent": sent,
            "cpu_s": self.actors.busy_s() + self.gather.agents_busy_s + sent * weights_s,
        }


def slope(times: Sequence[float], values: Sequence[float] | None = None) -> float:
    """Events a second, or growth of `values`: least squares, so that of waves a cut one hardly counts."""
    x = np.array(times)
    x -= x.mean()
    y = np.arange(len(x)) if values is None else np.array(values)
    return float(x @ (y - y.mean()) / (x @ x))
