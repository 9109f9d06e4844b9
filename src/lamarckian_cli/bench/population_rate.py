"""Env steps per second of something that learns, at steady state and over whole rounds.

Learners of a population fill their batches side by side, so their updates come in bursts: of 64
members all at once, then none for seconds. A time that is cut anywhere would have a burst more
or less in it. So it begins and ends with an update, and spans whole rounds: as many env steps
as one batch for each member, or several times that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lamarckian_cli.errors import RunError

WARM_UP_S = 3.0  # from the end of the first round on
STALL_S = 300.0  # without an update: something hangs


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """How far it is."""

    env_steps: int  # taken in by all learners together
    dropped_env_steps: int  # that nobody could learn from
    actors: int


class Subject(Protocol):
    """Something that samples and learns."""

    round_env_steps: int  # of one batch for each learner

    def go_on(self) -> Count:
        """Sample and learn for a moment; how far it is then. Raises what ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What was measured."""

    learned_env_steps: int
    dropped_env_steps: int
    seconds: float
    actors: int

    @property
    def env_steps_per_s(self) -> float:
        return self.learned_env_steps / self.seconds


def measure(
    subject: Subject,
    *,
    seconds: float,
    warm_up_s: float = WARM_UP_S,
    clock: Callable[[], float] = time.perf_counter,
) -> Rate:
    """Over whole rounds of at least so many seconds, after one round and `warm_up_s`.

    Raises RunError where no update is made for STALL_S.
    """
    count = _until(subject, 0, subject.round_env_steps, clock)
    warm_at = clock() + warm_up_s
    while clock() < warm_at:
        count = subject.go_on()
    first = _until(subject, count.env_steps, count.env_steps + 1, clock)
    began = clock()
    last = first
    while clock() - began < seconds:
        last = subject.go_on()
    # The next round to end: of one that has ended already, it would not be known when.
    rounds = 1 + (last.env_steps - first.env_steps) // subject.round_env_steps
    last = _until(subject, last.env_steps, first.env_steps + rounds * subject.round_env_steps, clock)
    return Rate(
        learned_env_steps=last.env_steps - first.env_steps,
        dropped_env_steps=last.dropped_env_steps - first.dropped_env_steps,
        seconds=clock() - began,
        actors=last.actors,
    )


def _until(subject: Subject, now: int, env_steps: int, clock: Callable[[], float]) -> Count:
    """Go on until so many were taken in; `now` is how many were before."""
    seen, at = now, clock()
    while True:
        count = subject.go_on()
        if count.env_steps >= env_steps:
            return count
        if count.env_steps > seen:
            seen, at = count.env_steps, clock()
        elif clock() - at > STALL_S:
            raise RunError(
                f"no learner took in a batch for {STALL_S:.0f} s; take smaller batches (algo.batch_size), "
                "fewer members, or more matches"
            )
