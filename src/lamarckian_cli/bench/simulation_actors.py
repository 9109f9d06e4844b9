"""Who acts in a simulated training: actors that sample and wait, and the learner.

`Simulation` (`simulation.py`) has the clock and the events; these say what happens then.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from lamarckian_cli.bench.simulation_network import Parcel, dealt_out, noise

if TYPE_CHECKING:
    from lamarckian_cli.bench.simulation import Setup, Simulation


class Actors:
    """All actors, or groups of them in lockstep: arrays of what each is at."""

    def __init__(
        self, sim: Simulation, setup: Setup, actors: tuple[int, ...], rng: np.random.Generator
    ) -> None:
        self.sim, costs = sim, sim.costs
        self.members, self.cores_per_machine = setup.members, setup.cores_per_machine
        groups = [(m, size) for m, count in enumerate(actors) for size in dealt_out(count, self.members)]
        self.machine = [machine for machine, _ in groups]
        self.size = [size for _, size in groups]
        self.unroll_bytes = costs.matches * costs.unroll * costs.bytes_per_step
        hand_over_s = sim.transport.actor.seconds(1, self.unroll_bytes)
        # Where no core is spare, the agent takes its time from the actors.
        full = max(actors) == setup.cores_per_machine
        agent_s = sim.transport.agent.seconds(1, self.unroll_bytes) if full else 0.0
        self.unroll_s = costs.sampling_s + hand_over_s + agent_s
        waits_s = costs.matches * costs.unroll * (1 - costs.step_cpu) / costs.step_rate
        self.cpu_share = 1 - (waits_s + agent_s) / self.unroll_s
        self.noise = noise(rng, setup.deviation)
        self.phase = rng.random(len(groups)).tolist()
        self.share = costs.unrolls_per_batch / setup.cores  # of one actor in a batch
        self.ahead = self.share * (1 + setup.queue_batches)
        self.patience_s = setup.patience_s
        count = len(groups)
        self.sent = [0.0] * count  # unrolls sent and not learned from, as far as known
        self.known = [0] * count  # version, when that was counted
        self.began = [0.0] * count
        self.integral = [0.0] * count
        self.first = [
            0
        ] * count  # version that chose the next unroll's first action, at the end of the last one
        self.held: list[Parcel | None] = [None] * count
        self.turn = [0] * count  # which wait this is: what was scheduled for an earlier one is void
        # By branch of the broadcast: (version that is needed, actor, turn), ...
        self.paused: list[list[tuple[int, int, int]]] = [[] for _ in sim.broadcast.branches]
        self.overdue = [False] * len(self.paused)  # ... and whether nothing was sent off for `patience_s`
        self.unrolls = 0
        self.ended_busy_s, self.begun_s, self.sampling = 0.0, 0.0, 0

    def start(self) -> None:
        """Each at a moment of its own: machines do not start at once either."""
        for actor, phase in enumerate(self.phase):
            self.sim.at(phase * self.unroll_s, "resume", (actor, 0))

    def resume(self, whom: tuple[int, int]) -> None:
        """Take in what the machine's version tells, then sample or wait."""
        actor, turn = whom
        if turn != self.turn[actor]:
            return
        self.turn[actor] += 1
        broadcast, machine, now = self.sim.broadcast, self.machine[actor], self.sim.now
        version = broadcast.version(machine, now)
        learned = (version - self.known[actor]) / self.sim.costs.optimizer_steps
        self.known[actor] = version
        self.sent[actor] = max(0.0, self.sent[actor] - learned * self.share)
        if self.sent[actor] >= self.ahead:
            self._wait(actor)
            return
        self.began[actor] = now
        self.integral[actor] = broadcast.integral(machine, now)
        self.begun_s += now * self.size[actor]
        self.sampling += self.size[actor]
        scale = max(0.1, 1 + next(self.noise))  # of a group as of one: how far all actors drift apart counts
        self.sim.at(now + self.unroll_s * scale, "sampled", actor)

    def sampled(self, actor: int) -> None:
        now, size, costs = self.sim.now, self.size[actor], self.sim.costs
        elapsed = now - self.began[actor]
        self.begun_s -= self.began[actor] * size
        self.sampling -= size
        self.ended_busy_s += elapsed * size
        version = self._mean_version(actor, elapsed / costs.unroll)
        self.sent[actor] += costs.matches
        unrolls = size * costs.matches
        self.unrolls += unrolls
        parcel = Parcel(actor, unrolls, size, version, size * self.unroll_bytes)
        if self.sim.gather.offer(now, self.machine[actor], parcel):
            self.resume((actor, self.turn[actor]))
        else:
            self.held[actor] = parcel

    def _mean_version(self, actor: int, round_s: float) -> float:
        """Over the steps of the unroll that ends now.

        In each round an actor looks for weights, lets its games go on, and then chooses actions. So the
        first action was chosen in the last round of the unroll before, and a wait lies between.
        """
        broadcast, machine, length = self.sim.broadcast, self.machine[actor], self.sim.costs.unroll
        first, self.first[actor] = self.first[actor], broadcast.version(machine, self.sim.now - round_s)
        if length == 1:
            return first
        began = self.began[actor]
        halfway = broadcast.integral(machine, began + (length - 1.5) * round_s) - self.integral[actor]
        return (first + broadcast.version(machine, began) / 2 + halfway / round_s) / length

    def released(self, now: float, actor: int) -> None:
        """The agent has room for this actor's next parcel."""
        parcel = self.held[actor]
        if parcel is not None:
            self.held[actor] = None
            self.sim.gather.offer(now, self.machine[actor], parcel)
            self.resume((actor, self.turn[actor]))

    def look(self, what: tuple[int, int]) -> None:
        """`patience_s` after a version was sent off: if it was the last one, whoever waits has a deadline."""
        branch, started = what
        if started != self.sim.broadcast.sent_off[branch]:
            return
        self.overdue[branch] = True
        for _, actor, turn in self.paused[branch]:
            if turn == self.turn[actor]:
                self._set_deadline((actor, turn))

    def impatient(self, whom: tuple[int, int]) -> None:
        """Sample all the same, unless new weights came meanwhile."""
        actor, turn = whom
        if turn != self.turn[actor]:
            return
        if self._due(actor) > self.sim.now + 1e-9:
            self._set_deadline(whom)
            return
        self.sent[actor] = 0.0
        self.resume(whom)

    def sent_off(self, branch: int) -> None:
        """A version is on its way: those who can go on with it will."""
        broadcast, paused = self.sim.broadcast, self.paused[branch]
        while paused and paused[0][0] <= broadcast.newest:
            needed, actor, turn = heapq.heappop(paused)
            arrival = broadcast.arrival_of(needed, self.machine[actor])
            assert arrival is not None
            self.sim.at(arrival, "resume", (actor, turn))
        self.overdue[branch] = False
        self.sim.at(self.sim.now + self.patience_s, "look", (branch, broadcast.sent_off[branch]))

    def busy_s(self) -> float:
        """Processor time of sampling until now, what is under way included."""
        return self.cpu_share * (self.ended_busy_s + self.sampling * self.sim.now - self.begun_s)

    def waiting(self) -> int:
        """Unrolls that their actors still hold."""
        return sum(parcel.unrolls for parcel in self.held if parcel is not None)

    def _wait(self, actor: int) -> None:
        self.began[actor] = self.sim.now
        missing = math.floor((self.sent[actor] - self.ahead) / self.share) + 1
        needed = self.known[actor] + missing * self.sim.costs.optimizer_steps
        whom = (actor, self.turn[actor])
        branch = self.sim.broadcast.branch_of[self.machine[actor]]
        arrival = self.sim.broadcast.arrival_of(needed, self.machine[actor])
        if arrival is None:
            heapq.heappush(self.paused[branch], (needed, *whom))
        else:
            self.sim.at(max(arrival, self.sim.now), "resume", whom)
        if self.overdue[branch]:
            self._set_deadline(whom)

    def _set_deadline(self, whom: tuple[int, int]) -> None:
        self.sim.at(max(self.sim.now, self._due(whom[0])), "impatient", whom)

    def _due(self, actor: int) -> float:
        """When the actor has waited long enough: twice as long as weights took, where they come slowly."""
        broadcast, machine, now = self.sim.broadcast, self.machine[actor], self.sim.now
        patience_s = max(self.patience_s, 2 * broadcast.between_s(machine, now))
        return max(self.began[actor], broadcast.arrived_at(machine, now)) + patience_s


class Learner:
    """Takes unrolls in the order of their arrival; one batch may wait while another is learned from."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.inbox: deque[tuple[int, Parcel]] = deque()  # and the machine that it is from
        self.missing = sim.costs.unrolls_per_batch  # of the batch that is being filled
        self.version_sum = 0.0  # over its unrolls
        self.ready: float | None = None  # mean version of the batch that waits
        self.updating = False
        self.version = self.batches = 0
        self.staleness: list[float] = []  # a batch that was begun
        self.ended: list[float] = []  # when, a batch that was learned from

    def arrive(self, what: tuple[int, list[Parcel]]) -> None:
        machine, bundle = what
        self.inbox.extend((machine, parcel) for parcel in bundle)
        self._take()

    def updated(self, _: Any) -> None:
        self.version += self.sim.costs.optimizer_steps
        self.batches += 1
        self.ended.append(self.sim.now)
        self.updating = False
        self.sim.publish()
        self._begin()
        self._take()

    def waiting(self) -> int:
        """Unrolls that arrived, or are about to, and were not learned from."""
        per_batch = self.sim.costs.unrolls_per_batch
        return (
            self.sim.gather.on_the_way
            + per_batch * (self.updating + (self.ready is not None))
            + (per_batch - self.missing)
        )

    def _take(self) -> None:
        """Fill batches until one waits; the rest of a parcel stays in the inbox."""
        while self.ready is None and self.inbox:
            machine, parcel = self.inbox[0]
            count = min(self.missing, parcel.unrolls)
            self.version_sum += count * parcel.version
            self.missing -= count
            parcel.unrolls -= count
            self.sim.gather.on_the_way -= count
            if parcel.unrolls == 0:
                self.inbox.popleft()
                self.sim.gather.taken(self.sim.now, machine, parcel.messages)
            if self.missing == 0:
                per_batch = self.missing = self.sim.costs.unrolls_per_batch
                self.ready, self.version_sum = self.version_sum / per_batch, 0.0
                self._begin()

    def _begin(self) -> None:
        if self.updating or self.ready is None:
            return
        self.staleness.append(self.version - self.ready)
        self.ready, self.updating = None, True
        self.sim.at(self.sim.now + self.sim.costs.update_s, "updated", None)
