"""The pool of frozen snapshots."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamarckian_cli.errors import RunError
from lamarckian_cli.launch import checkpoint
from lamarckian_cli.selfplay.pool import Pool


def filled(capacity: int, env_steps: list[int], *, drop: str = "spread", policy: str = "main") -> Pool:
    pool = Pool(capacity, drop)
    for count in env_steps:
        pool.add(policy, np.full(3, count, np.float32), version=count, env_steps=count)
    return pool


def test_a_snapshot_does_not_change_with_the_vector_that_it_was_taken_of() -> None:
    rng = np.random.default_rng(0)
    vector = rng.standard_normal(1000).astype(np.float32)
    before = vector.copy()
    digest = hashlib.blake2b(before.tobytes(), digest_size=16).hexdigest()
    pool = Pool(4)
    snapshot = pool.add("main", vector, version=7, env_steps=100)
    for _ in range(50):  # as an optimizer does, in place
        vector += rng.standard_normal(1000).astype(np.float32)
        assert hashlib.blake2b(snapshot.vector.tobytes(), digest_size=16).hexdigest() == digest
    assert snapshot.digest == digest
    np.testing.assert_array_equal(snapshot.vector, before)


def test_nobody_can_write_to_a_snapshot() -> None:
    snapshot = filled(1, [0]).snapshots[0]
    with pytest.raises(ValueError, match="read-only"):
        snapshot.vector[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        snapshot.vector.setflags(write=True)
    with pytest.raises(ValueError, match="read-only"):
        snapshot.vector[0] = 1


def test_a_part_of_a_larger_vector_is_copied_too() -> None:
    stacked = np.arange(12, dtype=np.float32).reshape(3, 4)
    pool = Pool(3)
    for member, vector in enumerate(stacked.T):  # not contiguous
        pool.add(f"member-{member}", vector, version=0, env_steps=0)
    stacked[:] = -1
    np.testing.assert_array_equal(pool["member-1#1"].vector, [1, 5, 9])


@pytest.mark.parametrize("vector", [np.zeros(3), np.zeros((2, 3), np.float32)])
def test_only_a_flat_float32_vector_is_taken(vector: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"must be float32 \[P\]"):
        Pool(2).add("main", vector, version=0, env_steps=0)


def test_names_are_never_used_again() -> None:
    pool = filled(1, [0, 1, 2])
    assert {s.name for s in pool.trim()} == {"main#0", "main#1"}
    assert pool.add("main", np.zeros(3, np.float32), version=3, env_steps=3).name == "main#3"


@settings(deadline=None)
@given(st.lists(st.integers(1, 1000), min_size=6, max_size=40), st.integers(2, 6))
def test_spread_keeps_both_ends_of_history_and_no_gap_is_avoidable(steps: list[int], capacity: int) -> None:
    pool = Pool(capacity)
    taken = 0
    for step in steps:
        taken += step
        pool.add("main", np.zeros(1, np.float32), version=0, env_steps=taken)
        before = [s.env_steps for s in pool.snapshots]
        dropped = [s.env_steps for s in pool.trim()]
        if len(before) > capacity:
            # By definition: of the inner ones, that whose going leaves the smallest gap behind.
            inner = range(1, len(before) - 1)
            gaps = {before[i]: before[i + 1] - before[i - 1] for i in inner}
            assert gaps[dropped[0]] == min(gaps.values())
        kept = [s.env_steps for s in pool.snapshots]
        assert kept[-1] == taken
        assert kept[0] == steps[0]
        assert len(kept) <= capacity


def test_what_is_taken_evenly_stays_spread_over_history() -> None:
    pool = Pool(9)
    for step in range(400):
        pool.add("main", np.zeros(1, np.float32), version=step, env_steps=step)
        pool.trim()
    gaps = np.diff([s.env_steps for s in pool.snapshots])
    assert gaps.sum() == 399
    assert gaps.max() < 400 / 8 * 3  # nowhere a hole of more than three times the even gap


def test_by_rating_the_lowest_goes_but_never_the_newest_of_a_policy() -> None:
    pool = filled(4, [0, 1, 2], drop="rating")
    for count in (3, 4):
        pool.add("second", np.zeros(3, np.float32), version=count, env_steps=count)
    ratings = {"main#0": 10.0, "main#1": 5.0, "main#2": 1.0, "second#3": 7.0, "second#4": 0.0}
    assert [s.name for s in pool.trim(ratings)] == ["main#1"]
    pool.add("second", np.zeros(3, np.float32), version=5, env_steps=5)
    assert [s.name for s in pool.trim(ratings)] == ["second#4"]  # no longer the newest


def test_newest_is_of_one_policy() -> None:
    pool = filled(4, [0, 1])
    pool.add("second", np.zeros(3, np.float32), version=2, env_steps=2)
    newest = pool.newest("main")
    assert newest is not None
    assert newest.name == "main#1"
    assert pool.newest("third") is None


def test_a_restored_pool_is_the_same_bit_for_bit_and_goes_on(tmp_path: Path) -> None:
    pool = Pool(3)
    vector = np.random.default_rng(1).standard_normal(50).astype(np.float32)
    vector[:3] = [np.nan, -0.0, np.inf]
    for step in range(3):
        pool.add("main", vector * (step + 1), version=step, env_steps=step * 10)
    checkpoint.save(tmp_path / "a.ckpt", pool.state())
    restored = filled(3, [0])
    restored.restore(checkpoint.load(tmp_path / "a.ckpt"))
    assert restored.names == pool.names
    for ours, theirs in zip(pool.snapshots, restored.snapshots, strict=True):
        assert ours.vector.tobytes() == theirs.vector.tobytes()
        assert (ours.digest, ours.version, ours.env_steps) == (
            theirs.digest,
            theirs.version,
            theirs.env_steps,
        )
        assert not theirs.vector.flags.writeable
    for one in (pool, restored):
        assert one.add("main", vector, version=9, env_steps=90).name == "main#3"


def test_damaged_weights_are_refused_and_nothing_is_changed() -> None:
    pool = filled(3, [0, 1])
    state = pool.state()
    damaged = state["snapshots"][1]["vector"].copy()
    damaged[2] = np.nextafter(damaged[2], np.float32(2))
    state["snapshots"][1]["vector"] = damaged
    other = filled(3, [5])
    with pytest.raises(RunError, match=r"main#1 .* take an older checkpoint"):
        other.restore(state)
    assert other.snapshots[0].env_steps == 5
