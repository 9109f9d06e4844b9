"""Pong seen as images: the same game, rules and keys; only what a player sees is different."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lamarckian_cli.mdp.pong import BALL, BAT, Pong, PongController, PongMatch
from lamarckian_cli.records import Action, InputSpec, Outcome, State

STACK = 4  # pictures of the last env steps, the newest last
SIZE = 84  # rows and columns

_MARGIN = 3  # between the edge and where the middle of the ball can be, on all sides
_SCALE = (SIZE - 1 - 2 * _MARGIN) / 2
_MIDDLE = (SIZE - 1) / 2
_BAT_ROWS = round(BAT * _SCALE)  # above and below its middle row
_BALL_ROWS = round(BALL * _SCALE)
_BAT_COLUMNS = 2
_OWN, _OTHER, _BALL = 255, 150, 255


class PongPixels(Pong):
    """The MDP. Its arguments are those of Pong."""

    def reset(self, seats: Sequence[int], seed: int) -> PongMatch:
        return PixelMatch(self, seats, seed)

    def _input(self) -> InputSpec:
        return InputSpec(name="pictures", shape=(STACK, SIZE, SIZE), dtype="uint8")


class PixelMatch(PongMatch):
    """One match, whose players see pictures."""

    def _controller(self, seat: int, seats: Sequence[int]) -> PongController:
        return PixelController(self, seat, alone=len(seats) == 1)


class PixelController(PongController):
    """Drives one bat. Both players see themselves on the left."""

    __slots__ = ("_stack",)

    def __init__(self, match: PongMatch, seat: int, alone: bool) -> None:
        super().__init__(match, seat, alone)
        self._stack: np.ndarray | None = None  # [4, 84, 84] uint8, never written to again

    def state(self) -> State:
        """One array `[4, 84, 84]` uint8; before the match moves, four times the same picture."""
        if self._stack is None:
            self._stack = np.empty((STACK, SIZE, SIZE), np.uint8)
            self._draw(self._stack[0])
            self._stack[1:] = self._stack[0]
        return State((self._stack,))

    async def act(self, action: Action | None) -> Outcome:
        before = self.state().inputs[0]
        outcome = await super().act(action)
        stack = np.empty((STACK, SIZE, SIZE), np.uint8)
        stack[:-1] = before[1:]
        self._draw(stack[-1])
        self._stack = stack
        return outcome

    def _draw(self, picture: np.ndarray) -> None:
        match = self._match
        own, other = match.bats if self._seat == 0 else (match.bats[1], match.bats[0])
        picture.fill(0)
        row = round(_MIDDLE - own * _SCALE)
        picture[row - _BAT_ROWS : row + _BAT_ROWS + 1, :_BAT_COLUMNS] = _OWN
        row = round(_MIDDLE - other * _SCALE)
        picture[row - _BAT_ROWS : row + _BAT_ROWS + 1, -_BAT_COLUMNS:] = _OTHER
        row = round(_MIDDLE - match.y * _SCALE)
        column = round(_MIDDLE + match.x * _SCALE)
        column = column if self._seat == 0 else SIZE - 1 - column
        picture[row - _BALL_ROWS : row + _BALL_ROWS + 1, column - 1 : column + 2] = _BALL
