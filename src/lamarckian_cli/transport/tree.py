"""Where every machine hangs in the broadcast tree, and how long a broadcast takes: arithmetic alone.

Rank 0 is the learner, ranks 1 to `machines` are node agents. The tree has at most three
layers: ranks 1 to `fanout` are relays and hang under the learner, the rest are leaves and are
dealt out to the relays in turn, so that no relay has two more than another (paper,
Section III-B). A flat layout is the same with a fan-out of all machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isqrt

CHUNK_BYTES = 1 << 17
"""Pieces in which weights travel; what a relay holds back before it sends on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One machine's connection to the others, as the cost model sees it."""

    bytes_per_s: float  # each direction
    latency_s: float = 0.0  # one way
    chunk_bytes: int = CHUNK_BYTES


def parent(rank: int, fanout: int) -> int:
    """Whom a machine of rank 1 or more gets its weights from."""
    return 0 if rank <= fanout else 1 + (rank - fanout - 1) % fanout


def children(rank: int, fanout: int, machines: int) -> tuple[int, ...]:
    """The ranks that a rank sends to; the learner is 0."""
    if rank == 0:
        return tuple(range(1, min(fanout, machines) + 1))
    return tuple(range(fanout + rank, machines + 1, fanout)) if rank <= fanout else ()


def layers(fanout: int, machines: int) -> int:
    """1 to 3: how many ranks lie on the longest way, learner included."""
    return 1 + (machines > 0) + (machines > fanout)


def square_root_fanout(machines: int) -> int:
    """The smallest fan-out whose relays need not send to more machines than the learner does.

    That is f + f^2 >= machines: about their square root, as in the paper.
    """
    fanout = max(1, isqrt(machines) - 1)
    while fanout + fanout**2 < machines:
        fanout += 1
    return fanout


def fanout_of(layout: str, choice: str | int, machines: int, size_bytes: int, wire: Wire | None) -> int:
    """The fan-out that a cluster's keys ask for.

    Args:
        layout: `flat` or `tree`.
        choice: a number, `sqrt`, or `auto`: by the cost model, or like `sqrt` where no `wire` is known.
    """
    if layout == "flat":
        return max(1, machines)
    if isinstance(choice, int):
        return min(choice, max(1, machines))
    if choice == "auto" and wire is not None:
        return cheapest_fanout(size_bytes, machines, wire)
    return square_root_fanout(machines)


def predicted_s(
    size_bytes: int, machines: int, fanout: int, wire: Wire, *, cut_through: bool = True
) -> float:
    """Seconds from `publish` until the last machine has all of the weights, if nothing but links costs time.

    A node's copies share its link, so each of `k` copies takes k times as long. With
    cut-through a relay sends on while it still receives: the slower of the two layers counts,
    and the first piece's way. Storing the whole first adds the layers up.
    """
    if machines == 0:
        return 0.0
    copy_s = size_bytes / wire.bytes_per_s
    first = min(fanout, machines)
    second = ceil((machines - first) / first)
    if second == 0:
        return first * copy_s + wire.latency_s
    if not cut_through:
        return (first + second) * copy_s + 2 * wire.latency_s
    piece_s = min(wire.chunk_bytes, size_bytes) / wire.bytes_per_s
    return max(first * copy_s + second * piece_s, first * piece_s + second * copy_s) + 2 * wire.latency_s


def cheapest_fanout(size_bytes: int, machines: int, wire: Wire) -> int:
    """The fan-out that `predicted_s` likes best; of equals the smallest, which spares the learner."""
    if machines == 0:
        return 1
    return min(range(1, machines + 1), key=lambda f: (predicted_s(size_bytes, machines, f, wire), f))
