"""The coroutines that drive controllers: `train` records what it does, `spar` does not.

Both run from a controller's first state to its match's end, and suspend only where the
policy has to answer or the game makes them wait.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Generator, Sequence
from types import CoroutineType
from typing import Any

import numpy as np

from lamarckian_cli.actor.policy import Policy, wrong_reward
from lamarckian_cli.errors import MDPError
from lamarckian_cli.mdp.interface import Controller
from lamarckian_cli.mdp.scheduler import Task
from lamarckian_cli.records import RUNNING, Action, DiscreteHead, SeatSpec, State


class Player:
    """One seat of one match slot, over all its matches: who decides, and where it is recorded."""

    __slots__ = ("began", "last", "policy", "returns", "seat", "slot", "state", "steps", "task")

    def __init__(self, seat: int, policy: Policy, slot: int) -> None:
        self.seat = seat
        self.policy = policy
        self.slot = slot  # in the policy's buffer
        self.state: State
        self.task: Task
        self.steps = 0  # of this match that were recorded
        self.began = 0  # version of the weights at the match's start
        self.returns = [0.0] * len(policy.seat.rewards)
        self.last: Sequence[float] = self.returns.copy()  # what the last recorded step brought
        policy.players.append(self)

    def park(self, task: Task) -> None:
        self.task = task
        self.policy.waiting.append(self)

    @types.coroutine
    def decide(self, state: State) -> Generator[Any, Action, Action]:
        self.state = state
        return (yield self)

    def begin(self) -> None:
        self.steps = 0
        self.began = self.policy.identity(self)[1]
        self.returns = [0.0] * len(self.returns)


@types.coroutine
def train(controller: Controller, player: Player) -> Generator[Any, Any, None]:
    """Drive a controller to its match's end with a policy that learns.

    This loop runs once an env step of everything: what it does not need to do, it does not.
    So it is a coroutine of the older kind, which can wait for its policy by a bare `yield`.
    """
    act, see, reward = controller.act, controller.state, controller.reward
    returns = player.returns
    several = len(returns) > 1
    early: Sequence[float] | None = None  # gained before the match's first decision
    steps = 0
    try:
        state = see()
        while True:
            if state.decision:
                player.state = state
                awaited = act((yield player))
            else:
                awaited = act(None)
            way: Any = awaited if type(awaited) is CoroutineType else awaited.__await__()
            outcome = yield from way
            gained = reward()
            returns[0] += gained[0]
            if state.decision:
                steps += 1
                if early is None:
                    player.last = gained
                else:
                    player.last, early = _sum(early, gained), None
            elif steps:
                player.last = _sum(player.last, gained)
            else:
                early = gained if early is None else _sum(early, gained)
            if several:
                for k in range(1, len(returns)):
                    returns[k] += gained[k]
            state = see()
            if outcome is not RUNNING and (outcome.terminated or outcome.truncated):
                break
        if len(gained) != len(returns):
            raise TypeError("rewards and reward heads differ in number")
    except (AttributeError, IndexError, TypeError) as error:
        _explain(error, controller, player)
        raise
    player.steps = steps
    buffer = player.policy.buffer
    if buffer is not None and steps:
        buffer.end(player.slot, terminated=outcome.terminated, final=state.inputs)


def _sum(one: Sequence[float], other: Sequence[float]) -> Sequence[float]:
    return [a + b for a, b in zip(one, other, strict=True)]


def _explain(error: Exception, controller: Controller, player: Player) -> None:
    """Raise an MDPError where the game returned what the interface does not have; else nothing.

    It is looked at when the loop has tripped over it; at every step that would cost more than many games.
    """
    where, heads = f"seat {player.seat}", len(player.policy.seat.rewards)
    if not inspect.iscoroutinefunction(controller.act) and "await" in str(error):
        raise MDPError(f"{where}: act() returned nothing to await; write it as `async def act`") from error
    if "'terminated'" in str(error) or "'truncated'" in str(error):
        raise MDPError(
            f"{where}: act() must return an Outcome, such as RUNNING or TERMINATED; {error}"
        ) from error
    gained = controller.reward()
    if not isinstance(gained, Sequence | np.ndarray) or np.shape(gained) != (heads,):
        raise wrong_reward(player, gained) from error


async def spar(controller: Controller, player: Player) -> None:
    """Drive a controller with a policy that does not learn; nothing is recorded but the return."""
    state = controller.state()
    while True:
        if state.script is not None:
            outcome = await controller.act(state.script)
        elif state.decision:
            outcome = await controller.act(await player.decide(state))
        else:
            outcome = await controller.act(None)
        for i, value in enumerate(controller.reward()):
            player.returns[i] += value
        if outcome.terminated or outcome.truncated:
            return
        state = controller.state()


class RandomPolicy(Policy):
    """Uniformly random legal actions, without a network."""

    def __init__(self, seat: SeatSpec, seed: int) -> None:
        self.name = "random"
        self.seat = seat
        self.version = 0
        self.buffer = None
        self.players = []
        self.waiting = []
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        self._rng = np.random.Generator(np.random.PCG64(seed))

    def answer(self) -> None:
        players, self.waiting = self.waiting, []
        for player in players:
            player.task.wake(random_action(self.seat, player.state, self._rng))


def random_action(seat: SeatSpec, state: State, rng: np.random.Generator) -> Action:
    """A legal action drawn uniformly, head by head."""
    action: list[Any] = []
    for i, head in enumerate(seat.heads):
        if isinstance(head, DiscreteHead):
            mask = None if state.masks is None else state.masks[i]
            action.append(int(rng.integers(head.n) if mask is None else rng.choice(np.flatnonzero(mask))))
        else:
            action.append(rng.uniform(head.low, head.high).astype(np.float32))
    return tuple(action)


def check_state(seat: SeatSpec, state: State, number: int, game: str) -> None:
    """Hold a match's first state against `describe()`; MDPError names seat, expected and actual."""
    where = f"{game}: seat {number}"
    if len(state.inputs) != len(seat.inputs):
        raise MDPError(f"{where} gave {len(state.inputs)} inputs; describe() says {len(seat.inputs)}")
    for spec, value in zip(seat.inputs, state.inputs, strict=True):
        if type(value) is np.ndarray and value.shape == spec.shape and value.dtype == spec.dtype:
            continue
        shape, dtype = np.shape(value), str(np.asarray(value).dtype)
        if shape != spec.shape:
            raise MDPError(
                f"{where} gave input {spec.name!r} of shape {list(shape)}; describe() says {list(spec.shape)}"
            )
        if dtype != spec.dtype:
            raise MDPError(f"{where} gave input {spec.name!r} as {dtype}; describe() says {spec.dtype}")
    if state.masks is not None and len(state.masks) != len(seat.heads):
        raise MDPError(
            f"{where} gave {len(state.masks)} masks; one a head is expected ({len(seat.heads)}), or None"
        )
    for head, mask in zip(seat.heads, state.masks or (None,) * len(seat.heads), strict=True):
        if isinstance(head, DiscreteHead) and head.masked and mask is None and state.decision:
            raise MDPError(f"{where} gave no mask for head {head.name!r}; describe() says that it is masked")
