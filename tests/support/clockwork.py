"""Tiny games whose observations say which match and step they are, so that records can be checked."""

from __future__ import annotations

import numpy as np

from lamarckian_cli.mdp.scheduler import Signal
from lamarckian_cli.records import (
    RUNNING,
    TERMINATED,
    TRUNCATED,
    DiscreteHead,
    InputSpec,
    MDPSpec,
    RewardHead,
    SeatSpec,
    State,
)


class Clockwork:
    """Observation [match, step]; the seed decides how long a match is and how it ends."""

    external = False

    def __init__(
        self,
        *,
        seats=1,
        skip_every=0,
        script_every=0,
        fail_at=None,
        hang_at=None,
        shape=(2,),
        controller=None,
    ):
        self.seats, self.skip_every, self.script_every = seats, skip_every, script_every
        self.fail_at, self.hang_at, self.shape = fail_at, hang_at, shape
        self.controller = controller or ClockworkController
        self.started = 0
        self.open = 0

    def describe(self):
        seat = SeatSpec(
            inputs=(InputSpec(name="where", shape=self.shape, dtype="float32"),),
            heads=(DiscreteHead(name="a", n=3),),
            rewards=(RewardHead(name="x"), RewardHead(name="y")),
        )
        return MDPSpec(name="clockwork", seats=(seat,) * self.seats, frames_per_step=4, results=("length",))

    def reset(self, seats, seed):
        self.started += 1
        self.open += 1
        return ClockworkMatch(self, seats, self.started, seed)

    def close(self):
        pass


class ClockworkMatch:
    def __init__(self, game, seats, number, seed):
        self.game, self.number = game, number
        self.length = 3 + seed % 7
        self.end = TERMINATED if seed % 2 else TRUNCATED
        self.controllers = [game.controller(self, seat) for seat in seats]
        self.ticks = ()
        self.turn = Signal()
        self.acted = 0

    def close(self):
        self.game.open -= 1


class ClockworkController:
    def __init__(self, match, seat):
        self.match, self.seat, self.step, self.last = match, seat, 0, (0.0, 0.0)

    def state(self):
        game = self.match.game
        where = np.array([self.match.number, self.step], np.float32)
        if game.skip_every and self.step % game.skip_every == 0 and self.step < self.match.length:
            return State((where,), decision=False)
        if game.script_every and self.step % game.script_every == 1:
            return State((where,), script=(2,))
        return State((where,))

    async def act(self, action):
        match = self.match
        game = match.game
        if game.fail_at is not None and match.number in game.fail_at and self.step == 1:
            raise ConnectionError("the game went away")
        if game.hang_at is not None and self.step == game.hang_at:
            await Signal().wait()
        if len(match.controllers) > 1:
            match.acted += 1
            if match.acted == len(match.controllers):
                match.acted = 0
                match.turn.fire()
            else:
                await match.turn.wait()
        self.last = reward_of(match.number, self.step, action)
        self.step += 1
        return match.end if self.step == match.length else RUNNING

    def reward(self):
        return self.last

    def result(self):
        return {"length": float(self.match.length)}


def reward_of(match, step, action):
    """Two heads: which match and step it was, and what was played."""
    return (match + step / 100, -1.0 if action is None else float(action[0]))
