"""Whoever acts when, the buffer holds what a list of steps a player would hold."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from lamarckian_cli.actor.buffers import UnrollBuffer
from lamarckian_cli.records import ContinuousHead, DiscreteHead, InputSpec, RewardHead, SeatSpec

SLOTS, T = 4, 3
SEAT = SeatSpec(
    inputs=(
        InputSpec(name="view", shape=(2,), dtype="float32"),
        InputSpec(name="clock", shape=(), dtype="int64"),
    ),
    heads=(
        DiscreteHead(name="move", n=5, masked=True),
        ContinuousHead(name="aim", low=(-1.0, -1.0), high=(1.0, 1.0)),
    ),
    rewards=(RewardHead(name="a"), RewardHead(name="b")),
)


@dataclass
class Step:
    view: np.ndarray
    clock: int
    move: int
    aim: np.ndarray
    legal: np.ndarray
    log_prob: float
    decided: bool
    version: int
    reward: np.ndarray | None = None
    end: str = ""
    final: tuple[np.ndarray, int] | None = None


@dataclass
class Diary:
    """The slow definition: a list of steps for each player, cut to `length`."""

    length: int
    steps: list[Step] = field(default_factory=list)
    unrolls: list[tuple[list[Step], tuple[np.ndarray, int]]] = field(default_factory=list)

    def sees(self, view, clock, reward):
        if self.steps:
            self.steps[-1].reward = reward
        if len(self.steps) == self.length:
            self.unrolls.append((self.steps, (view, clock)))
            self.steps = []


class Recorder:
    """Feeds the same rounds to an UnrollBuffer and to diaries."""

    def __init__(self, seed, length=T):
        self.rng = np.random.default_rng(seed)
        self.buffer = UnrollBuffer("main", SEAT, SLOTS, length)
        self.diaries = [Diary(length) for _ in range(SLOTS)]
        self.version = 0
        self.taken = []

    def round(self, slots):
        """`slots` act; None: all of them, in their order."""
        who = list(range(SLOTS)) if slots is None else slots
        n, rng = len(who), self.rng
        views, clocks = rng.normal(size=(n, 2)).astype(np.float32), rng.integers(99, size=n)
        rewards = rng.normal(size=(n, 2)).astype(np.float32)
        for i, slot in enumerate(who):
            self.diaries[slot].sees(views[i], clocks[i], rewards[i])
        index = None if slots is None else np.array(slots)
        places = self.buffer.observe(index, (views, clocks), rewards)
        moves, aims = rng.integers(5, size=n), rng.normal(size=(n, 2)).astype(np.float32)
        legal, log_prob = rng.random((n, 5)) < 0.5, rng.normal(size=n).astype(np.float32)
        scripted = [i for i in range(n) if rng.random() < 0.2]
        self.version += 1
        self.buffer.record(index, places, (moves, aims), log_prob, self.version)
        self.buffer.record_masks(places, (legal, None))
        if scripted:
            self.buffer.record_scripted(places, scripted)
        for i, slot in enumerate(who):
            self.diaries[slot].steps.append(
                Step(
                    views[i],
                    clocks[i],
                    moves[i],
                    aims[i],
                    legal[i],
                    log_prob[i],
                    i not in scripted,
                    self.version,
                )
            )

    def end(self, slot):
        terminated = self.rng.random() < 0.5
        final = self.rng.normal(size=2).astype(np.float32), int(self.rng.integers(99))
        self.buffer.end(slot, terminated=terminated, final=(final[0], np.array(final[1])))
        if self.diaries[slot].steps:
            step = self.diaries[slot].steps[-1]
            step.end = "terminated" if terminated else "truncated"
            step.final = None if terminated else final

    def abandon(self, slot):
        self.buffer.abandon([slot])
        self.diaries[slot].steps = []

    def take(self):
        if self.buffer.complete:
            self.taken.append(self.buffer.take(self.buffer.complete))

    def check(self):
        """Every unroll that was taken is one of the diaries', and all of these were taken."""
        self.take()
        expected = {
            (float(steps[0].view[0]), steps[0].version): (steps, last)
            for diary in self.diaries
            for steps, last in diary.unrolls
        }
        for unrolls in self.taken:
            finals = {
                tuple(at): (view, clock)
                for at, view, clock in zip(unrolls.final_index.tolist(), *unrolls.final_inputs, strict=True)
            }
            for b in range(len(unrolls.reward)):
                steps, last = expected.pop((float(unrolls.inputs[0][b, 0, 0]), int(unrolls.version[b, 0])))
                np.testing.assert_array_equal(unrolls.inputs[0][b], [s.view for s in steps] + [last[0]])
                np.testing.assert_array_equal(unrolls.inputs[1][b], [s.clock for s in steps] + [last[1]])
                np.testing.assert_array_equal(unrolls.actions[0][b], [s.move for s in steps])
                np.testing.assert_array_equal(unrolls.actions[1][b], [s.aim for s in steps])
                np.testing.assert_array_equal(unrolls.masks[0][b], [s.legal for s in steps])
                np.testing.assert_array_equal(unrolls.log_prob[b], [s.log_prob for s in steps])
                np.testing.assert_array_equal(unrolls.reward[b], [s.reward for s in steps])
                np.testing.assert_array_equal(unrolls.decided[b], [s.decided for s in steps])
                np.testing.assert_array_equal(unrolls.version[b], [s.version for s in steps])
                np.testing.assert_array_equal(unrolls.terminated[b], [s.end == "terminated" for s in steps])
                np.testing.assert_array_equal(unrolls.truncated[b], [s.end == "truncated" for s in steps])
                for t, step in enumerate(steps):
                    if step.end == "truncated":
                        view, clock = finals.pop((b, t))
                        np.testing.assert_array_equal(view, step.final[0])
                        assert clock == step.final[1]
            assert not finals
        assert not expected


def who_acts(recorder, pattern):
    """The slots of a round: all in order, all shuffled, or some."""
    kind = recorder.rng.choice(pattern)
    if kind == "all":
        return None
    order = recorder.rng.permutation(SLOTS).tolist()
    return order if kind == "shuffled" else order[: int(recorder.rng.integers(1, SLOTS))]


@pytest.mark.parametrize(("seed", "length"), [(0, 1), (0, T), (1, T), (2, T)])
@pytest.mark.parametrize(
    "pattern",
    [
        ["all"],
        ["shuffled"],
        ["some"],
        ["all", "all", "all", "shuffled"],
        ["all", "all", "all", "all", "some"],
    ],
    ids="-".join,
)
def test_what_is_taken_is_what_happened(pattern, seed, length):
    recorder = Recorder(seed, length)
    for _ in range(80):
        slots = who_acts(recorder, pattern)
        recorder.round(slots)
        for slot in range(SLOTS) if slots is None else slots:
            if recorder.rng.random() < 0.2:
                recorder.end(slot)
        if recorder.rng.random() < 0.4 or recorder.buffer.complete > SLOTS:
            recorder.take()
    assert sum(len(diary.unrolls) for diary in recorder.diaries) > 30
    recorder.check()


def test_a_slot_that_is_given_up_costs_its_own_row_alone_and_all_fall_into_step_again():
    recorder = Recorder(7)
    for number in range(60):
        recorder.round(None)
        recorder.take()
        if number % 17 == 5:
            recorder.abandon(number % SLOTS)
        if number == 40:  # as a restart does
            for slot in range(SLOTS):
                recorder.abandon(slot)
    recorder.check()


def test_unrolls_that_nobody_takes_are_an_error_not_a_loss():
    recorder = Recorder(0)
    for _ in range(3 * T):  # all rows are full, each but for the observation after its last step
        recorder.round(None)
    with pytest.raises(RuntimeError, match="nobody took them"):
        recorder.round(None)
