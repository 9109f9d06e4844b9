"""Race: two runners, one track. Each tick both choose to rest, walk or sprint.

A small but whole MDP: two seats, an action that is not always legal, a reward, a result, a
built-in opponent, and a picture in text. It runs in the actor's own process.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine, Sequence
from typing import Any

import numpy as np

from lamarckian_cli.errors import require
from lamarckian_cli.mdp.scheduler import Signal
from lamarckian_cli.records import (
    RUNNING,
    TERMINATED,
    TRUNCATED,
    Action,
    DiscreteHead,
    InputSpec,
    MDPSpec,
    Outcome,
    RewardHead,
    SeatSpec,
    State,
)

REST, WALK, SPRINT = 0, 1, 2
BREATH = 3  # a sprint costs two of it, a rest gives two back
MAX_TICKS = 200


class Race:
    """The MDP. Its arguments are the keys of `conf/env/race.yaml`."""

    external = False

    def __init__(self, *, length: int = 20, stumble: float = 0.1) -> None:
        require(length >= 1, "env.length", length, "it must be at least 1 (20 is the usual track)")
        require(0 <= stumble < 1, "env.stumble", stumble, "it must lie in [0, 1)")
        self.length = length
        self.stumble = stumble

    def describe(self) -> MDPSpec:
        seat = SeatSpec(
            inputs=(InputSpec(name="track", shape=(4,), dtype="float32"),),
            heads=(DiscreteHead(name="pace", n=3, names=("rest", "walk", "sprint"), masked=True),),
            rewards=(RewardHead(name="win"),),
            name="runner",
        )
        return MDPSpec(name="race", seats=(seat, seat), builtin_seats=(0, 1), results=("win", "lead"))

    def reset(self, seats: Sequence[int], seed: int) -> RaceMatch:
        return RaceMatch(self, seats, seed)

    def close(self) -> None:
        """Matches hold nothing but memory."""


class RaceMatch:
    """The world of one match. It moves when every driven runner has chosen a pace."""

    def __init__(self, rules: Race, seats: Sequence[int], seed: int) -> None:
        self.rules = rules
        self.random = random.Random(seed)  # all chance comes from the seed
        self.place = [0, 0]
        self.breath = [BREATH, BREATH]
        self.tick = 0
        self.outcome = RUNNING
        self.paces: dict[int, int] = {}  # chosen for the coming tick, by seat
        self.moved = Signal()  # fires after each tick
        self.controllers: Sequence[Runner] = tuple(Runner(self, seat) for seat in seats)
        self.ticks: Sequence[Coroutine[Any, Any, None]] = ()  # this world has no clock of its own

    def close(self) -> None:
        """A match may be closed before its end."""

    def text(self) -> str:
        """What `lamarck play` draws."""
        return "\n".join("." * place + "R" + "." * (self.rules.length - place) for place in self.place)

    def legal(self, seat: int) -> np.ndarray:
        """Bool [3]: nobody sprints out of breath."""
        return np.array([True, True, self.breath[seat] >= 2])

    def choose(self, seat: int, pace: int) -> bool:
        """Take a runner's choice; True if it was the last one, and the world has moved."""
        self.paces[seat] = pace
        if len(self.paces) < len(self.controllers):
            return False
        for other in (0, 1):
            self._run(other, self.paces.get(other, self._builtin(other)))
        self.paces = {}
        self.tick += 1
        if max(self.place) >= self.rules.length:
            self.outcome = TERMINATED
        elif self.tick >= MAX_TICKS:
            self.outcome = TRUNCATED
        self.moved.fire()
        return True

    def _run(self, seat: int, pace: int) -> None:
        self.breath[seat] = min(BREATH, max(0, self.breath[seat] + {REST: 2, WALK: 0, SPRINT: -2}[pace]))
        stumbled = self.random.random() < self.rules.stumble
        self.place[seat] += 0 if stumbled else (0, 1, 3)[pace]

    def _builtin(self, seat: int) -> int:
        """The game's own runner: never rests."""
        return SPRINT if self.breath[seat] >= 2 else WALK


class Runner:
    """The controller: drives one runner."""

    def __init__(self, match: RaceMatch, seat: int) -> None:
        self._match = match
        self._seat = seat

    def state(self) -> State:
        """Own place, own breath, the other's place and breath, all in [0, 1]; and what is legal."""
        match, own, other = self._match, self._seat, 1 - self._seat
        scale = (match.rules.length, BREATH)
        seen = [
            match.place[own] / scale[0],
            match.breath[own] / scale[1],
            match.place[other] / scale[0],
            match.breath[other] / scale[1],
        ]
        return State(inputs=(np.array(seen, np.float32),), masks=(match.legal(own),))

    async def act(self, action: Action | None) -> Outcome:
        """Choose a pace; done when the tick is over. Who chooses first waits for the other."""
        match = self._match
        if match.outcome is not RUNNING:
            raise RuntimeError("the race is over")
        assert action is not None  # every step of this game takes a decision
        if not match.choose(self._seat, int(action[0])):
            await match.moved.wait()
        return match.outcome

    def reward(self) -> Sequence[float]:
        """One number for each reward head: at the end 1 for a win, -1 for a loss, 0 for a draw."""
        if self._match.outcome is not TERMINATED:
            return (0.0,)
        return (float(np.sign(self._lead())),)

    def result(self) -> dict[str, float]:
        """Numbers for `lamarck eval`; `win` also gives the win rate."""
        lead = self._lead()
        return {"win": 0.5 + 0.5 * float(np.sign(lead)), "lead": float(lead)}

    def _lead(self) -> int:
        return self._match.place[self._seat] - self._match.place[1 - self._seat]
