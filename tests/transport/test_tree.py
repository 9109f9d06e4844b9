"""The tree is arithmetic: every machine is reached once, and the cost model agrees with a replay of it."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamarckian_cli.transport.tree import (
    Wire,
    cheapest_fanout,
    children,
    layers,
    parent,
    predicted_s,
    square_root_fanout,
)

SIZES = st.integers(0, 400)


@given(SIZES, st.integers(1, 60))
def test_every_machine_is_reached_exactly_once(machines: int, fanout: int) -> None:
    reached = [child for rank in range(machines + 1) for child in children(rank, fanout, machines)]
    assert sorted(reached) == list(range(1, machines + 1))
    for rank in range(machines + 1):
        for child in children(rank, fanout, machines):
            assert parent(child, fanout) == rank


@given(SIZES, st.integers(1, 60))
def test_at_most_three_layers_and_fairly_dealt(machines: int, fanout: int) -> None:
    def depth(rank: int) -> int:
        return 1 if rank == 0 else 1 + depth(parent(rank, fanout))

    depths = [depth(rank) for rank in range(machines + 1)]
    assert max(depths) == layers(fanout, machines) <= 3
    assert len(children(0, fanout, machines)) <= fanout
    counts = [len(children(rank, fanout, machines)) for rank in range(1, min(fanout, machines) + 1)]
    assert not counts or max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    ("machines", "fanout"), [(1, 1), (2, 1), (4, 2), (16, 4), (50, 7), (100, 10), (150, 12)]
)
def test_fanout_is_about_the_square_root(machines: int, fanout: int) -> None:
    assert square_root_fanout(machines) == fanout
    assert abs(fanout - machines**0.5) <= 1


def test_sixteen_hosts_as_on_paper() -> None:
    wire = Wire(bytes_per_s=12.5e6, chunk_bytes=1)
    flat = predicted_s(10_000_000, 16, 16, wire)
    assert flat / predicted_s(10_000_000, 16, 4, wire) == pytest.approx(4.0, rel=0.01)
    stored = predicted_s(10_000_000, 16, 4, wire, cut_through=False)
    assert flat / stored == pytest.approx(16 / 7, rel=0.01)


@pytest.mark.parametrize("machines", [1, 3, 16, 30])
@pytest.mark.parametrize("fanout", [1, 2, 4, 8, 30])
def test_the_cost_model_is_what_a_replay_takes(machines: int, fanout: int) -> None:
    """Each link sends one chunk after another, to its children in turn; nothing else takes time."""
    wire = Wire(bytes_per_s=1e6, latency_s=0.003, chunk_bytes=10_000)
    fanout = min(fanout, machines)
    replayed = _replay(500_000, machines, fanout, wire)
    assert predicted_s(500_000, machines, fanout, wire) == pytest.approx(replayed, rel=0.1)


def _replay(size: int, machines: int, fanout: int, wire: Wire) -> float:
    chunks, chunk_s = size // wire.chunk_bytes, wire.chunk_bytes / wire.bytes_per_s
    free_at = [0.0] * (machines + 1)
    last = 0.0
    arrivals: list[tuple[float, int]] = [(0.0, 0)] * chunks  # a chunk at a node, in order of time
    while arrivals:
        at, rank = heapq.heappop(arrivals)
        last = max(last, at)
        for child in children(rank, fanout, machines):
            free_at[rank] = max(free_at[rank], at) + chunk_s
            heapq.heappush(arrivals, (free_at[rank] + wire.latency_s, child))
    return last


@given(st.integers(1, 200), st.sampled_from([1e5, 1e6, 1e7]))
def test_the_cheapest_fanout_is_no_worse_than_any(machines: int, size: float) -> None:
    wire = Wire(bytes_per_s=1e9, latency_s=1e-4)
    best = predicted_s(int(size), machines, cheapest_fanout(int(size), machines, wire), wire)
    assert best <= min(predicted_s(int(size), machines, f, wire) for f in range(1, machines + 1))


def test_nobody_to_send_to() -> None:
    assert children(0, 1, 0) == ()
    assert predicted_s(1, 0, 1, Wire(bytes_per_s=1)) == 0.0
    assert cheapest_fanout(1, 0, Wire(bytes_per_s=1)) == 1
    assert layers(1, 0) == 1
