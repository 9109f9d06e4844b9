"""Pong: two bats, one ball, 20 rounds; each player may be trained, or played by the game.

The field spans x from -1 (the line of seat 0's bat) to 1 (seat 1's) and y from -1 to 1.
The angle at which the ball leaves a bat depends only on where it hit: in the middle it goes
straight, at the end steeply, and faster. Every hit speeds it up, while the bats stay as
they are, so rounds end, and a player who aims beats one who merely returns: the built-in
opponent at full skill hardly misses what it can reach, but does not aim.

A step costs about two microseconds, because nothing is simulated frame by frame: bats and
ball move in straight lines, so the meeting of ball and bat inside a step is computed
exactly. Numbers are Python floats; NumPy comes in for the observation alone.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lamarckian_cli.errors import MDPError, require
from lamarckian_cli.mdp.pong_render import PongView, draw, draw_text
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

BAT = 0.25  # half the length of a bat
BALL = 0.03  # half the height of the ball
REACH = BAT + BALL  # a bat hits a ball whose centre is no farther off than this
LIMIT = 1.0 - BAT  # how far from the middle a bat can go
BAT_SPEED = 0.036  # per frame
SERVE_SPEED = 0.054  # of the ball along x, per frame
MAX_SPEED = 0.2
RISE = 0.036  # the n-th hit of a round makes the ball RISE * n * n faster than the serve, as a share
SLOPE = 0.9  # of a ball that was hit at the very end of the bat, before the smash
SMASH = 0.2  # a ball hit at the very end is faster along x by this share
WOBBLE = 0.15 * REACH  # how far from the middle of its bat the built-in player hits at most
BLUNDER = 1.0  # how far off it is at most at skill 0
SERVE_ORIGIN = 0.3  # a ball is served from x = 0 and at most this far from the middle ...
SERVE_TARGET = 0.6  # ... to a point at most this far from the middle, which a bat can reach

MOVES = ("stay", "up", "down")
VIEW = ("own_bat", "other_bat", "ball_x", "ball_y", "ball_vx", "ball_vy", "rounds_left", "lead")
_pack_view = struct.Struct("8f").pack_into


class Pong:
    """The MDP. Its arguments are the keys of `conf/env/pong.yaml`."""

    external = False

    def __init__(
        self, *, rounds: int = 20, skill: float = 1.0, frames_per_step: int = 4, max_steps: int = 4000
    ) -> None:
        require(rounds >= 1, "env.rounds", rounds, "it must be at least 1 (20 is the usual match)")
        require(0.0 <= skill <= 1.0, "env.skill", skill, "it must lie in [0, 1]; 1 is the strongest opponent")
        require(1 <= frames_per_step <= 8, "env.frames_per_step", frames_per_step, "it must lie in [1, 8]")
        require(max_steps >= 1, "env.max_steps", max_steps, "it must be at least 1 (4000 is ample)")
        self.rounds = rounds
        self.skill = skill
        self.frames_per_step = frames_per_step
        self.max_steps = max_steps

    def describe(self) -> MDPSpec:
        left = SeatSpec(
            inputs=(self._input(),),
            heads=(DiscreteHead(name="move", n=len(MOVES), names=MOVES),),
            rewards=(RewardHead(name="score"),),
            name="left bat",
        )
        return MDPSpec(
            name="pong",
            seats=(left, replace(left, name="right bat")),
            builtin_seats=(0, 1),
            frames_per_step=self.frames_per_step,
            results=("score_self", "score_enemy", "win", "moves"),
        )

    def reset(self, seats: Sequence[int], seed: int) -> PongMatch:
        return PongMatch(self, seats, seed)

    def close(self) -> None:
        """Matches hold nothing but memory."""

    def _input(self) -> InputSpec:
        return InputSpec(name="view", shape=(len(VIEW),), dtype="float32")


class PongMatch:
    """One match. A step moves the world once every player has acted; the game plays the others."""

    def __init__(self, rules: Pong, seats: Sequence[int], seed: int) -> None:
        check_seats(seats)
        frames = rules.frames_per_step
        self.bat_step = BAT_SPEED * frames
        self.serve_speed = SERVE_SPEED * frames
        self.max_speed = MAX_SPEED * frames
        self.moves = {0: 0.0, 1: self.bat_step, 2: -self.bat_step}
        self.rounds = self.rounds_left = rules.rounds
        self.max_steps = rules.max_steps
        self.scale = 1.0 / self.max_speed  # of the velocities that players see
        self.share = 1.0 / self.rounds
        self.error = WOBBLE + (1.0 - rules.skill) * BLUNDER
        self.random = random.Random(seed)

        self.x = self.y = self.vx = self.vy = 0.0
        self.bats = [0.0, 0.0]
        self.aims = [0.0, 0.0]  # where the built-in player of each seat wants its bat
        self.hits = 0  # in this round
        self.scores = [0, 0]
        self.lead = 0.0  # of seat 0, as a share of the rounds
        self.point = 0.0  # seat 0's reward for the last step
        self.steps = 0
        self.outcome = RUNNING
        self.orders = [0.0, 0.0]  # how far each bat is to move in this step
        self.owed = len(seats)  # players who have not acted in this step yet
        self.moved = Signal()

        self.controllers: Sequence[PongController] = tuple(self._controller(seat, seats) for seat in seats)
        self.ticks: Sequence[Coroutine[Any, Any, None]] = ()
        self._serve(to_right=self.random.random() < 0.5)

    def close(self) -> None:
        """Nothing to give back."""

    def frame(self) -> np.ndarray:
        """The picture now, `[H, W, 3]` uint8, seat 0 on the left."""
        return draw(self.view())

    def text(self) -> str:
        """The picture as lines of text."""
        return draw_text(self.view())

    def view(self) -> PongView:
        """What there is to draw, seat 0 on the left."""
        left, right = self.bats
        return PongView((left, right), self.x, self.y, (self.scores[0], self.scores[1]), BAT, BALL)

    def advance(self) -> None:
        """Move the world by one step, on the orders of both seats."""
        bats = self.bats
        left, right = bats
        move_left, move_right = self.orders
        new_left = left + move_left
        if move_left:
            new_left = LIMIT if new_left > LIMIT else -LIMIT if new_left < -LIMIT else new_left
        new_right = right + move_right
        if move_right:
            new_right = LIMIT if new_right > LIMIT else -LIMIT if new_right < -LIMIT else new_right
        bats[0] = new_left
        bats[1] = new_right
        self.point = 0.0
        x = self.x + self.vx
        if -1.0 < x < 1.0:
            self.x = x
            y = self.y + self.vy
            if y > 1.0:
                y = 2.0 - y
                self.vy = -self.vy
            elif y < -1.0:
                y = -2.0 - y
                self.vy = -self.vy
            self.y = y
        elif x < 0.0:
            self._arrive(0, left, new_left)
        else:
            self._arrive(1, right, new_right)
        self.steps += 1
        if self.steps >= self.max_steps and self.outcome is RUNNING:
            self.outcome = TRUNCATED

    def builtin_order(self, seat: int) -> float:
        """The game's own move: to where it expects the ball, to the middle while the ball leaves."""
        distance = self.aims[seat] - self.bats[seat]
        step = self.bat_step
        half = 0.5 * step
        return step if distance > half else -step if distance < -half else 0.0

    def _controller(self, seat: int, seats: Sequence[int]) -> PongController:
        return PongController(self, seat, alone=len(seats) == 1)

    def _arrive(self, seat: int, bat: float, new_bat: float) -> None:
        """The ball reaches the line of `seat` within this step, in which its bat goes to `new_bat`."""
        line = 1.0 if seat else -1.0
        part = (line - self.x) / self.vx  # of the step, until they meet
        y = _fold(self.y + self.vy * part)
        offset = (y - (bat + (new_bat - bat) * part)) / REACH
        if offset > 1.0 or offset < -1.0:
            self._score(1 - seat)
            return
        self.hits += 1
        speed = min(self.serve_speed * (1.0 + RISE * self.hits * self.hits), self.max_speed)
        vx = -line * speed * (1.0 + SMASH * offset * offset)
        vy = SLOPE * speed * offset
        landing = _fold(y + vy * 2.0 / abs(vx))
        self._expect(1 - seat, landing)
        rest = 1.0 - part
        self.x = line + vx * rest
        y += vy * rest
        if y > 1.0 or y < -1.0:
            y = _fold(y)
            vy = -vy
        self.y, self.vx, self.vy = y, vx, vy

    def _score(self, winner: int) -> None:
        self.scores[winner] += 1
        self.rounds_left -= 1
        self.point = -1.0 if winner else 1.0
        self.lead = (self.scores[0] - self.scores[1]) * self.share
        if self.rounds_left == 0:
            self.x = -1.0 if winner else 1.0
            self.outcome = TERMINATED
        else:
            self._serve(to_right=self.vx < 0.0)

    def _serve(self, to_right: bool) -> None:
        """Bats to the middle, the ball from the middle to the player who did not get the last one."""
        draw = self.random.random
        self.bats = [0.0, 0.0]
        self.hits = 0
        self.x = 0.0
        self.y = SERVE_ORIGIN * (2.0 * draw() - 1.0)
        landing = SERVE_TARGET * (2.0 * draw() - 1.0)
        self.vx = self.serve_speed if to_right else -self.serve_speed
        self.vy = (landing - self.y) * self.serve_speed
        self._expect(int(to_right), landing)

    def _expect(self, seat: int, landing: float) -> None:
        """Send the built-in player of `seat` to about `landing`, the other one to the middle.

        Drawn for seats that it does not play too: the stream of chance is the same whoever plays.
        """
        error = self.error * (2.0 * self.random.random() - 1.0)
        self.aims[seat] = landing + error
        self.aims[1 - seat] = 0.0


class PongController:
    """Drives one bat."""

    __slots__ = ("_alone", "_match", "_moved", "_seat", "_sign")

    def __init__(self, match: PongMatch, seat: int, alone: bool) -> None:
        self._match = match
        self._seat = seat
        self._sign = -1.0 if seat else 1.0  # seat 1 sees the world mirrored in x
        self._alone = alone  # the other bat is the game's
        self._moved = 0

    def state(self) -> State:
        """One float32 array of 8 in about [-1, 1], as `VIEW` names them, from the player's own side.

        Velocities are in units of the greatest ball speed, a step. Own bat: x = -1.
        """
        match = self._match
        sign = self._sign
        scale = match.scale
        left, right = match.bats
        view = np.empty(8, np.float32)
        _pack_view(
            view,  # type: ignore[arg-type]
            0,
            left if sign > 0.0 else right,
            right if sign > 0.0 else left,
            sign * match.x,
            match.y,
            sign * match.vx * scale,
            match.vy * scale,
            match.rounds_left * match.share,
            sign * match.lead,
        )
        return State((view,))

    async def act(self, action: Action | None) -> Outcome:
        """Move; waits only for another player who has not acted yet."""
        match = self._match
        if match.outcome is not RUNNING:
            raise MDPError(f"seat {self._seat} of pong acted after the end of the match; reset a new one")
        try:
            order = match.moves[action[0]]  # type: ignore[index]
        except (KeyError, TypeError, IndexError):
            raise MDPError(
                f"seat {self._seat} of pong played {action!r}; head 'move' takes one of 0, 1, 2, as in (1,)"
            ) from None
        if order:
            self._moved += 1
        seat = self._seat
        match.orders[seat] = order
        if self._alone:
            match.orders[1 - seat] = match.builtin_order(1 - seat)
            match.advance()
            return match.outcome
        match.owed -= 1
        if match.owed:
            await match.moved.wait()
        else:
            match.owed = 2
            match.advance()
            match.moved.fire()
        return match.outcome

    def reward(self) -> Sequence[float]:
        """One head: 1 for a round won in the last step, -1 for one lost, else 0."""
        return (self._sign * self._match.point,)

    def result(self) -> dict[str, float]:
        """Rounds won and lost, whether that wins the match (0.5: a draw), the share of actions that move."""
        match = self._match
        own, enemy = match.scores[self._seat], match.scores[1 - self._seat]
        return {
            "score_self": float(own),
            "score_enemy": float(enemy),
            "win": 1.0 if own > enemy else 0.5 if own == enemy else 0.0,
            "moves": self._moved / max(1, match.steps),
        }


def check_seats(seats: Sequence[int]) -> None:
    """Raise an MDPError unless `seats` are one or both of 0 and 1."""
    if not seats or len(set(seats)) != len(seats) or not set(seats) <= {0, 1}:
        raise MDPError(f"seats is {tuple(seats)}; pong has seats 0 and 1: ask for one of them, or for both")


def _fold(y: float) -> float:
    """`y` of a ball that flew straight on, reflected by the walls at -1 and 1."""
    y = (y + 1.0) % 4.0
    return y - 1.0 if y <= 2.0 else 3.0 - y
