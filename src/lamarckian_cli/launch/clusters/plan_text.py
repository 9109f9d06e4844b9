"""A plan as a person reads it: a line for each thing, short however many machines there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def lines(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What, and how much."""
    return [
        *_machines(plan["machines"]),
        *_tree(plan["tree"]),
        *_traffic(plan),
        *_rates(plan),
        *_assumed(plan["assumed"]),
    ]


def _machines(machines: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    learner = machines["learner"]
    device = "a GPU" if learner["gpus"] else "no GPU"
    own = f", {learner['actors']:,} actors" if learner["actors"] else ""
    yield "machines", f"{machines['total']:,}"
    yield "learner's machine", f"{device}{own}, {_bytes(learner['memory_bytes'])} of memory"
    for group in machines["workers"]:
        each = f"{group['actors']:,} actors and {_bytes(group['memory_bytes'])} of memory each"
        yield f"{group['machines']:,} worker{'s' if group['machines'] > 1 else ''}", each
    yield "actors", f"{machines['actors']:,}, of {_bytes(machines['actor_bytes'])} each"
    yield "shared memory", f"{_bytes(machines['shared_bytes'])} in /dev/shm of each machine, for the weights"


def _tree(tree: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    machines, fanout = tree["machines"], tree["fanout"]
    if not machines:
        yield "weights travel", "inside the machine alone"
        return
    relays = {rank: leaves for rank, leaves in tree["children"].items() if rank != "0"}
    if not relays:
        yield "weights travel", f"from the learner to each of {machines:,} machines"
    else:
        yield "weights travel", f"in {tree['layers']} layers, fan-out {fanout:,}"
        yield (
            "  learner",
            f"sends to {len(tree['children']['0']):,} machines, {_ranks(tree['children']['0'])}",
        )
        sizes = sorted({len(leaves) for leaves in relays.values()})
        each = " or ".join(f"{size:,}" for size in sizes)
        send = "send on to" if len(relays) > 1 else "sends on to"
        yield "  relays", f"{len(relays):,} of them {send} {each}{' each' if len(relays) > 1 else ''}"
        first = next(iter(relays))
        yield "  such as", f"rank {first} to {_ranks(relays[first])}"
    yield (
        "to the last machine",
        f"{_seconds(tree['broadcast_s'])}; from the learner to all: {_seconds(tree['flat_s'])}",
    )


def _traffic(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    weights, egress = plan["weights"], plan["egress"]
    half = (
        ""
        if weights["wire_bytes"] == weights["bytes"]
        else f", {_bytes(weights['wire_bytes'])} as they travel"
    )
    yield "weights", f"{weights['numbers']:,} numbers, {_bytes(weights['bytes'])}{half}"
    if plan["tree"]["machines"]:
        each, flat = _bytes(egress["per_version_bytes"]), _bytes(egress["flat_per_version_bytes"])
        yield "learner sends", f"{each} an update (flat: {flat})"
        yield "", f"{_bytes(egress['bytes_per_s'])}/s, {egress['of_link']:.0%} of its link"


def _rates(plan: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    rates, staleness = plan["rates"], plan["staleness"]
    yield "env steps", f"{rates['env_steps_per_s']:,.0f}/s, {rates['updates_per_s']:,.3g} updates/s"
    yield (
        "the limit",
        f"the {rates['limit']}: actors sample up to {rates['sampled_per_s']:,.0f}/s, "
        f"the learner takes up to {rates['learned_per_s']:,.0f}/s",
    )
    if rates["actors_that_suffice"] < plan["machines"]["actors"]:
        yield "", f"{rates['actors_that_suffice']:,} actors would do, or a larger algo.batch_size"
    parts = ", ".join(
        f"{name} {_versions(staleness[name])}" for name in ("broadcast", "update", "unroll", "queue")
    )
    yield "staleness", f"{_versions(staleness['mean'])} versions ({parts})"
    yield "", f"{_versions(staleness['paper'])} as the paper counts"


def _assumed(assumed: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "assumed", f"links of {assumed['bandwidth_gbit_per_s']:g} Gbit/s (--bandwidth)"
    yield "", f"{assumed['latency_us']:g} µs one way (--latency-us)"
    yield "", f"{assumed['env_steps_per_s']:,.0f} env steps/s an actor (--rate)"
    yield "", f"{_seconds(assumed['update_s'])} an update (--update-seconds)"
    yield "", "lamarck bench sampling measures the last two"


def _ranks(ranks: list[int]) -> str:
    """`ranks 1 to 12`, or the first few and the last."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"ranks {ranks[0]} to {ranks[-1]}"
    listed = ", ".join(map(str, ranks)) if len(ranks) <= 4 else f"{ranks[0]}, {ranks[1]} ... {ranks[-1]}"
    return f"ranks {listed}"


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.3g} {unit}"


def _seconds(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def _versions(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
