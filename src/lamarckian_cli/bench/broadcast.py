"""`lamarck bench broadcast`: weights to many machines, flat and by the tree, beside arithmetic.

Between machines: a learner, and node agents with an actor each, as processes on hosts of
namespaces whose links are held to a speed. What counts is when the last actor has the version.
`tree.predicted_s` says how long that takes if nothing but links costs time; it knows the bytes
of the weights alone, no headers. Flat and tree take turns. Then staleness, where the learner
publishes faster than a flat broadcast carries. Inside one machine: see `broadcast_local`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lamarckian_cli.bench.broadcast_cluster import Cluster
from lamarckian_cli.bench.broadcast_local import measure_local
from lamarckian_cli.bench.hosts import Hosts, available
from lamarckian_cli.bench.machine import machine
from lamarckian_cli.bench.switch import MIB
from lamarckian_cli.errors import require
from lamarckian_cli.transport.tree import CHUNK_BYTES, Wire, predicted_s, square_root_fanout

ACTORS = 8  # inside one machine
MAX_HOSTS = 200
WARM_UP_BROADCASTS, BROADCASTS = 2.0, 4.0  # flat ones' time that staleness is published, and measured
KEPT_VERSIONS = 4  # of a policy that may lie in a machine's shared memory at once


@dataclass(frozen=True, slots=True)
class Layout:
    """How so many machines hang under the learner."""

    name: str
    machines: int
    fanout: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be measured; ConfigError where that cannot be."""

    hosts: tuple[int, ...]  # that get weights; the learner's comes on top
    mbit_per_s: float
    payloads_mb: tuple[float, ...]  # 10**6 bytes
    repeat: int
    actors: int = ACTORS

    def __post_init__(self) -> None:
        require(bool(self.hosts), "--hosts", list(self.hosts), "give at least one number: --hosts 4,8,16")
        for count in self.hosts:
            require(1 <= count <= MAX_HOSTS, "--hosts", count, f"each must be from 1 to {MAX_HOSTS}")
        require(
            0.1 <= self.mbit_per_s <= 1e5,
            "--mbit",
            self.mbit_per_s,
            "a link's speed in Mbit/s must be from 0.1 to 100000",
        )
        require(
            bool(self.payloads_mb), "--payload", list(self.payloads_mb), "give at least one size: --payload 1"
        )
        for size in self.payloads_mb:
            require(0.01 <= size <= 1000, "--payload", size, "each size in MB must be from 0.01 to 1000")
        require(self.repeat >= 1, "--repeat", self.repeat, "it must be at least 1")
        require(self.actors >= 1, "actors", self.actors, "it must be at least 1")

    @property
    def payloads_bytes(self) -> list[int]:
        """Whole float32 numbers."""
        return [int(size * 1e6) // 4 * 4 for size in self.payloads_mb]


def measure_broadcast(plan: Plan, say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """The document of `lamarck bench broadcast --json`; `say` is told what goes on."""
    reason = available()
    results = [] if reason else between_machines(plan, say)
    results += measure_local(plan.payloads_bytes, actors=plan.actors, repeat=plan.repeat, say=say)
    document: dict[str, Any] = {"kind": "broadcast", "machine": machine(), "results": results}
    if reason:
        document["missing"] = f"hosts, flat against tree: no hosts can be made on this machine: {reason}"
    return document


def between_machines(plan: Plan, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """A result for each number of hosts, payload and layout."""
    most = max(plan.hosts)
    largest, smallest = max(plan.payloads_bytes), min(plan.payloads_bytes)
    shm_bytes = 64 * MIB + KEPT_VERSIONS * largest
    say(f"starting {most + 1} hosts")
    results: list[dict[str, Any]] = []
    with Hosts(most + 1, mbit_per_s=plan.mbit_per_s, shm_bytes=shm_bytes) as hosts:
        cluster = Cluster(hosts)
        try:
            for count in plan.hosts:
                layouts = (Layout("flat", count, count), Layout("tree", count, square_root_fanout(count)))
                of_smallest = {}
                for size in plan.payloads_bytes:
                    rows = _alternate(cluster, plan, layouts, size, say)
                    results += rows.values()
                    if size == smallest:
                        of_smallest = rows
                for layout in layouts:
                    say(f"{count} hosts, staleness, {layout.name}")
                    of_smallest[layout.name] |= _staleness(cluster, plan, layout, smallest)
        finally:
            cluster.close()
    return results


def _alternate(
    cluster: Cluster, plan: Plan, layouts: Sequence[Layout], size: int, say: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """One size, by turns flat and by the tree: a result for each, by name."""
    measured: dict[str, list[Any]] = {layout.name: [] for layout in layouts}
    for number in range(plan.repeat):
        for layout in layouts:
            say(
                f"{layout.machines} hosts, {size / 1e6:g} MB, {layout.name}, {number + 1} of {plan.repeat}; "
                f"{_predicted_s(plan, layout, size):.2g} s at best"
            )
            cluster.hang(layout.machines, layout.fanout, size_bytes=min(plan.payloads_bytes))
            measured[layout.name].append(cluster.broadcast(size, _predicted_s(plan, layout, size)))
    rows = {layout.name: _row(plan, layout, size, measured[layout.name]) for layout in layouts}
    flat, tree = layouts
    rows[tree.name] |= {
        "flat_over_tree": rows[flat.name]["last_host_s"] / rows[tree.name]["last_host_s"],
        "predicted_flat_over_tree": _predicted_s(plan, flat, size) / _predicted_s(plan, tree, size),
        "stored_flat_over_tree": _predicted_s(plan, flat, size)
        / _predicted_s(plan, tree, size, cut_through=False),
    }
    return rows


def _row(plan: Plan, layout: Layout, size: int, measured: Sequence[Any]) -> dict[str, Any]:
    last_s = statistics.median(one.last_s for one in measured)
    predicted = _predicted_s(plan, layout, size)
    return {
        "layout": layout.name,
        "hosts": layout.machines,
        "payload_bytes": size,
        "last_host_s": last_s,
        "egress_bytes": round(statistics.median(one.egress_bytes for one in measured)),
        "predicted_s": predicted,
        "of_predicted": predicted / last_s,
        "fanout": layout.fanout,
        "mbit_per_s": plan.mbit_per_s,
    }


def _staleness(cluster: Cluster, plan: Plan, layout: Layout, size: int) -> dict[str, Any]:
    """How far hosts are behind a learner that publishes as often as the tree should carry."""
    machines = layout.machines
    tree = Layout("tree", machines, square_root_fanout(machines))
    flat_s = _predicted_s(plan, Layout("flat", machines, machines), size)
    period_s = _predicted_s(plan, tree, size)
    cluster.hang(machines, layout.fanout, size_bytes=size)
    return {
        "period_s": period_s,
        "staleness": cluster.staleness(
            size, period_s=period_s, warm_up_s=WARM_UP_BROADCASTS * flat_s, seconds=BROADCASTS * flat_s
        ),
        "predicted_staleness": predicted_staleness(_predicted_s(plan, layout, size), period_s),
    }


def predicted_staleness(broadcast_s: float, period_s: float) -> float:
    """Versions that a host is behind on the mean, if one is published every `period_s`.

    Where broadcasts keep up, a version takes `broadcast_s` to come, and for so much of every
    period the host is one behind. Where they do not, a host gets the newest version as soon as it
    has the one before: aged one broadcast when it comes, two when it goes, and at any age a as
    many were published since as fit into it, a / period_s on the mean over when the age began.
    """
    behind = broadcast_s / period_s
    return behind if behind <= 1 else 1.5 * behind


def _predicted_s(plan: Plan, layout: Layout, size: int, *, cut_through: bool = True) -> float:
    wire = Wire(bytes_per_s=plan.mbit_per_s * 1e6 / 8, chunk_bytes=CHUNK_BYTES)
    return predicted_s(size, layout.machines, layout.fanout, wire, cut_through=cut_through)
