"""The asynchronous MDP interface: a game hands out controllers, a coroutine drives each.

Most libraries step an environment: every player acts, then the world moves. A commercial
game waits for nobody, so here each player of a match is driven on its own:

    spec    = mdp.describe()
    match   = mdp.reset(seats=(0, 1), seed=7)
    state   = controller.state()
    outcome = await controller.act(action)      # returns when this player may act again
    reward  = controller.reward()
    result  = controller.result()               # after terminated or truncated

A game that runs in this process suspends, if at all, on the primitives of `scheduler.py`
(`Signal`, `sleep`). A game outside it (`external = True`) suspends on asyncio futures: its
`act` returns `asyncio.ensure_future(...)` or any other asyncio future.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from lamarckian_cli.records import Action, MDPSpec, Outcome, State


@runtime_checkable
class Controller(Protocol):
    """The handle through which one player of a match is driven."""

    def state(self) -> State:
        """What this player sees now. After the end: the final observation."""

    def act(self, action: Action | None) -> Awaitable[Outcome]:
        """Play `action` (None on a step without decision); done when the player may act again."""

    def reward(self) -> Sequence[float]:
        """K rewards that the last `act` brought, one for each reward head.

        Whoever asks keeps the sequence: an array that is written anew later must be copied.
        """

    def result(self) -> dict[str, float]:
        """What the game reports of this player at the end, beside the return."""


@runtime_checkable
class Match(Protocol):
    """One episode. `controllers` are in the order of the seats asked for."""

    controllers: Sequence[Controller]
    ticks: Sequence[Coroutine[Any, Any, None]]  # game-side coroutines, run beside the players

    def close(self) -> None:
        """Give everything back; a match may be closed before its end."""


@runtime_checkable
class MDP(Protocol):
    """A game or task; creates matches, of which many may run at once."""

    external: bool  # True: its controllers suspend on asyncio futures, its ticks are asyncio tasks

    def describe(self) -> MDPSpec:
        """What each seat sees, does and is rewarded with."""

    def reset(self, seats: Sequence[int], seed: int) -> Match:
        """A new match whose `seats` are driven through controllers; the game plays the rest.

        The same seats, seed and actions give the same match.
        """

    def close(self) -> None:
        """End every match and give everything back."""


class Renderable(Protocol):
    """A match that can be looked at; optional."""

    def frame(self) -> np.ndarray:
        """The picture now, `[H, W, 3]` uint8."""

    def text(self) -> str:
        """The picture as lines of text for a terminal."""
