"""The simulated cluster's network: links, node agents, and which version a machine has when.

Sharing is fluid: a node's copies of one version share its link, as TCP streams do, more or less
evenly; bundles of unrolls pass a link one after the other. So a few events a version will do.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np

from lamarckian_cli.errors import require
from lamarckian_cli.transport.tree import Wire, children, predicted_s, square_root_fanout

MOST_BRANCHES = 64  # that are sent to apart
LAYOUTS = ("flat", "tree", "per_actor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """Processor time of one process for the messages that it sends or takes in."""

    message_s: float = 0.0  # seconds a message, whatever its size
    byte_s: float = 0.0  # seconds a byte

    def __post_init__(self) -> None:
        for name in ("message_s", "byte_s"):
            value = getattr(self, name)
            require(value >= 0, f"handling.{name}", value, "it must be 0 or more")

    def seconds(self, messages: float, size_bytes: float) -> float:
        return messages * self.message_s + size_bytes * self.byte_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """Who spends what on transport."""

    actor: Handling = Handling()  # hands its unrolls to the node agent
    agent: Handling = Handling()  # takes them and sends them on
    learner: Handling = Handling()  # takes them in
    publish: Handling = Handling()  # learner or relay: one copy of the weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one version reaches the machines, counted from 0."""

    copies: int  # that the learner sends
    delay_s: tuple[float, ...]  # a machine: from the start until it has the version
    period_s: float  # from the start until the next version may follow
    relayed: tuple[int, ...]  # a machine: copies that it sends on itself


def broadcast_plan(layout: str, actors: tuple[int, ...], size_bytes: float, wire: Wire) -> Plan:
    """The plan for machines with so many actors each.

    `flat` is one copy a machine, `tree` goes over about the square root of their number, with
    cut-through, and `per_actor` is one copy an actor, as where machines have no node agent.
    """
    require(layout in LAYOUTS, "layout", layout, f"choose one of {', '.join(LAYOUTS)}")
    machines, copy_s, size = len(actors), size_bytes / wire.bytes_per_s, round(size_bytes)
    if layout != "tree":
        copies = sum(actors) if layout == "per_actor" else machines
        delay_s = copies * copy_s + wire.latency_s
        return Plan(
            copies=copies,
            delay_s=(delay_s,) * machines,
            period_s=delay_s + wire.latency_s,
            relayed=(0,) * machines,
        )
    fanout = square_root_fanout(machines)
    relayed = tuple(len(children(rank, fanout, machines)) for rank in range(1, machines + 1))
    relay_s = fanout * copy_s + wire.latency_s
    leaf_s = predicted_s(size, machines, fanout, wire)
    return Plan(
        copies=fanout,
        delay_s=tuple(relay_s if number < fanout else leaf_s for number in range(machines)),
        period_s=max(fanout, *relayed) * copy_s + 2 * wire.latency_s,
        relayed=relayed,
    )


class Broadcast:
    """Versions on their way, one at a time to each branch; the newest follows, those in between are skipped.

    A branch is what hangs under one of the learner's copies: a machine, or a relay with its leaves;
    of many, some are taken together. Copies share the learner's link evenly on the mean, but each takes
    its time give or take `unevenness`: on a full link branches get versions at moments of their own.
    """

    def __init__(self, plan: Plan, *, unevenness: float, rng: np.random.Generator) -> None:
        self.plan = plan
        self.newest = 0
        self.sent = 0.0  # versions, beside the first, which everyone has; a branch's is its share of one
        self.branches = _branches(plan)
        self.branch_of = [0] * len(plan.delay_s)
        self._lines: list[dict[float, _Line]] = []  # of each branch, by delay
        self._line_of: list[_Line] = [_Line()] * len(plan.delay_s)
        self._noise = noise(rng, unevenness)
        for number, machines in enumerate(self.branches):
            lines = {delay_s: _Line() for delay_s in {plan.delay_s[machine] for machine in machines}}
            self._lines.append(lines)
            for machine in machines:
                self.branch_of[machine] = number
                self._line_of[machine] = lines[plan.delay_s[machine]]
        self._under_way = [False] * len(self.branches)
        self._sent_versions = [0] * len(self.branches)
        self.sent_off = [0] * len(self.branches)  # how many, to each branch

    def idle(self) -> list[int]:
        """Branches that have what was sent to them."""
        return [number for number, under_way in enumerate(self._under_way) if not under_way]

    def begin(self, now: float, branch: int) -> float:
        """Send the newest version off; when the next may follow."""
        scale = max(0.1, 1 + next(self._noise))
        for delay_s, line in self._lines[branch].items():
            line.add(now + delay_s * scale, self.newest)
        self._under_way[branch] = True
        self._sent_versions[branch] = self.newest
        self.sent_off[branch] += 1
        self.sent += len(self.branches[branch]) / len(self.branch_of)
        return now + self.plan.period_s * scale

    def end(self, branch: int) -> bool:
        """The version that was under way is there; whether there is a newer one."""
        self._under_way[branch] = False
        return self._sent_versions[branch] < self.newest

    def version(self, machine: int, now: float) -> int:
        """The newest version that the machine has."""
        line = self._line_of[machine]
        return line.versions[line.arrived(now)]

    def integral(self, machine: int, now: float) -> float:
        """Of the machine's version over time: differences give mean versions."""
        return self._line_of[machine].integral(now)

    def arrived_at(self, machine: int, now: float) -> float:
        """When the machine's newest version came."""
        line = self._line_of[machine]
        return line.arrivals[line.arrived(now)]

    def between_s(self, machine: int, now: float) -> float:
        """How long after the one before (the first: after time 0) the machine's newest version came."""
        line = self._line_of[machine]
        at = line.arrived(now)
        return line.arrivals[at] - max(0.0, line.arrivals[at - 1]) if at else 0.0

    def arrival_of(self, version: int, machine: int) -> float | None:
        """When the machine has this version or a newer one; None if none such was sent off yet."""
        line = self._line_of[machine]
        at = bisect_left(line.versions, version)
        return line.arrivals[at] if at < len(line.arrivals) else None


class _Line:
    """When which version arrives."""

    def __init__(self) -> None:
        self.arrivals, self.versions = [-1e18], [0]
        self._integrals = [0.0]  # of the version over time, until each arrival

    def add(self, arrival: float, version: int) -> None:
        self._integrals.append(self._integrals[-1] + self.versions[-1] * (arrival - self.arrivals[-1]))
        self.arrivals.append(arrival)
        self.versions.append(version)

    def arrived(self, now: float) -> int:
        """Which is the newest; sums of times round, so what comes within a nanosecond is there."""
        return bisect_right(self.arrivals, now + 1e-9) - 1

    def integral(self, time: float) -> float:
        at = bisect_right(self.arrivals, time) - 1
        return self._integrals[at] + self.versions[at] * (time - self.arrivals[at])


def _branches(plan: Plan) -> list[list[int]]:
    """The machines of each branch, at most MOST_BRANCHES."""
    machines = len(plan.delay_s)
    count = min(plan.copies, machines)
    branches: list[list[int]] = [[] for _ in range(min(count, MOST_BRANCHES))]
    for machine in range(machines):
        branches[machine % count % len(branches)].append(machine)  # as leaves are dealt out to relays
    return branches


@dataclass(slots=True)
class Parcel:
    """What an actor (or a group in lockstep) hands over at once."""

    actor: int
    unrolls: int
    messages: int
    version: float  # mean over its steps
    size_bytes: float

    def split(self, messages: int) -> Parcel:
        """Take the first messages out of it."""
        share = messages / self.messages
        part = Parcel(
            self.actor,
            self.unrolls * messages // self.messages,
            messages,
            self.version,
            self.size_bytes * share,
        )
        self.unrolls -= part.unrolls
        self.messages -= messages
        self.size_bytes -= part.size_bytes
        return part


@dataclass(slots=True)
class _Agent:
    waiting: list[Parcel] = field(default_factory=list)
    free_at: float = 0.0  # when its link, and itself, have nothing more to send
    looks_at: float = -1.0  # when it will look again whether to send
    under_way: int = 0  # messages sent, and not taken by the learner


class Gather:
    """Parcels from actors over their node agents to the learner's door.

    An agent sends what waits as one bundle, of about `bundle_bytes` at most, once its link is
    free; as many messages as it has actors may be under way. An actor has one parcel at its
    agent; with the next one it waits (`offer` says False) until `released` is called for it.
    """

    def __init__(
        self, actors: tuple[int, ...], wire: Wire, transport: Transport, *, bundle_bytes: float
    ) -> None:
        self._actors = actors
        self._agents = [_Agent() for _ in actors]
        self._out, self._in, self._latency_s = transport.agent, transport.learner, wire.latency_s
        self._byte_s = 1 / wire.bytes_per_s
        self._bundle_bytes = bundle_bytes
        self._door_free_at = 0.0  # the learner's own link
        self._at_agent: set[int] = set()  # actors with a parcel there
        self.on_the_way = 0  # unrolls in bundles
        self.agents_busy_s = 0.0
        self.at: Callable[..., None]  # (time, kind, argument): schedule an event
        self.released: Callable[[float, int], None]

    def offer(self, now: float, machine: int, parcel: Parcel) -> bool:
        """Hand a parcel to the agent; False where the actor's last one is still there."""
        if parcel.actor in self._at_agent:
            return False
        self._at_agent.add(parcel.actor)
        self._agents[machine].waiting.append(parcel)
        self.forward(now, machine)
        return True

    def forward(self, now: float, machine: int) -> None:
        """Send a bundle off if there is something to send and the agent may."""
        agent = self._agents[machine]
        room = self._actors[machine] - agent.under_way
        if not agent.waiting or not room:
            return
        if agent.free_at > now:
            if agent.looks_at < agent.free_at:
                agent.looks_at = agent.free_at
                self.at(agent.free_at, "forward", machine)
            return
        bundle, sent = self._pack(agent, room)
        size = sum(parcel.size_bytes for parcel in bundle)
        messages = sum(parcel.messages for parcel in bundle)
        work_s = self._out.seconds(messages, size)
        self.agents_busy_s += work_s
        agent.free_at = now + max(work_s, size * self._byte_s)
        agent.under_way += messages
        self.on_the_way += sum(parcel.unrolls for parcel in bundle)
        taking_s = max(size * self._byte_s, self._in.seconds(messages, size))
        self._door_free_at = max(self._door_free_at, now) + taking_s
        self.at(max(self._door_free_at, agent.free_at) + self._latency_s, "arrive", (machine, bundle))
        for actor in sent:
            self._at_agent.discard(actor)
        for actor in sent:
            self.released(now, actor)
        self.forward(now, machine)

    def taken(self, now: float, machine: int, messages: int) -> None:
        """The learner took so many messages of this machine."""
        self._agents[machine].under_way -= messages
        self.forward(now, machine)

    def occupy(self, now: float, machine: int, copies: int, size_bytes: float) -> None:
        """A relay's link carries weights too."""
        agent = self._agents[machine]
        agent.free_at = max(agent.free_at, now) + copies * size_bytes * self._byte_s

    def waiting(self) -> int:
        """Unrolls that wait at the agents."""
        return sum(parcel.unrolls for agent in self._agents for parcel in agent.waiting)

    def _pack(self, agent: _Agent, room: int) -> tuple[list[Parcel], list[int]]:
        """What waited longest, message by message, and the actors whose parcels are all on their way."""
        bundle: list[Parcel] = []
        sent: list[int] = []
        space = self._bundle_bytes
        for parcel in agent.waiting:
            if not room or space <= 0:
                break
            message_bytes = parcel.size_bytes / parcel.messages
            fitting = ceil(space / message_bytes) if message_bytes else room
            part = parcel.split(min(parcel.messages, room, fitting))
            bundle.append(part)
            room -= part.messages
            space -= part.size_bytes
            if not parcel.messages:
                sent.append(parcel.actor)
        del agent.waiting[: len(sent)]
        return bundle, sent


def slowed(wire: Wire, handling: Handling) -> Wire:
    """The link as one process can use it that spends so much on each byte."""
    if handling.byte_s == 0:
        return wire
    return replace(wire, bytes_per_s=min(wire.bytes_per_s, 1 / handling.byte_s))


def dealt_out(total: int, most: int) -> tuple[int, ...]:
    """`total` on as few places as take `most` each, as evenly as they go."""
    places = ceil(total / most)
    return tuple(total // places + (number < total % places) for number in range(places))


def noise(rng: np.random.Generator, deviation: float) -> Iterator[float]:
    """Normal numbers around 0, without end."""
    while True:
        yield from (deviation * rng.standard_normal(4096)).tolist()
