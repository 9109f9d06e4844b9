"""The player of `check_mdp()`: drives one controller and looks at everything that comes back."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lamarckian_cli.mdp import rules
from lamarckian_cli.mdp.interface import Controller
from lamarckian_cli.mdp.rules import fault
from lamarckian_cli.mdp.scheduler import Scheduler, Task
from lamarckian_cli.records import Action, ContinuousHead, MDPSpec, SeatSpec, State
from lamarckian_cli.seeding import stream

OUTSIDE = 0.2  # share of continuous actions outside their bounds: a Gaussian policy has such

Log = list[tuple[tuple[str, Any], ...]]
"""For each step, what was seen and what came of the action, by name, as digests."""


@dataclass(slots=True)
class Tally:
    """What all players of a check report to."""

    env_steps: int = 0
    at: dict[Task, str] = field(default_factory=dict)  # what each player is doing now


class Player:
    """Plays random legal actions until the end of its match."""

    def __init__(
        self, tally: Tally, spec: MDPSpec, controller: Controller, *, seat: int, seed: int, where: str
    ) -> None:
        """`seed`: of the actions; `where`: the match, for messages."""
        self.tally = tally
        self.spec = spec
        self.controller = controller
        self.seat = spec.seats[seat]
        self.where = f"{where}, seat {seat}"
        self.log: Log = []
        self.rng = stream(seed, "actions", seat)
        self.task: Task | None = None

    def start(self, scheduler: Scheduler, *, max_steps: int, watch: bool) -> Task:
        """`watch`: nobody but this player can change what it sees, so it must not change by itself."""
        self.watch = watch
        self.task = scheduler.spawn(self._drive(max_steps), self.where)
        self.tally.at[self.task] = self.where
        return self.task

    async def _drive(self, max_steps: int) -> None:
        for step in range(max_steps):
            if await self._step(f"{self.where}, step {step}"):
                await self._end(f"{self.where}, after the end (step {step})")
                return
        fault(self.where, f"it neither terminated nor truncated within max_steps={max_steps} steps")

    async def _step(self, where: str) -> bool:
        """One action; True when it was the last."""
        state = self._see(where)
        rules.check_state(state, self.seat, where)
        seen = _digests(state, self.seat)
        await _Turn()
        if self.watch and _digests(self.controller.state(), self.seat) != seen:
            fault(where, "state() changed while only another match went on; the two share state")
        action = None if not state.decision else state.script or self._choose(state)
        outcome = await self._act(action, f"{where}: act({action})")
        rules.check_outcome(outcome, where)
        self._say(f"{where}: reward()")
        reward = self.controller.reward()
        rules.check_reward(reward, self.seat, where)
        self.tally.env_steps += 1
        self.log.append((*seen, ("the reward", tuple(map(float, reward))), ("the outcome", tuple(outcome))))
        return outcome.terminated or outcome.truncated

    async def _end(self, where: str) -> None:
        state = self._see(where)
        rules.check_inputs(state, self.seat, where)
        self._say(f"{where}: result()")
        result = self.controller.result()
        rules.check_result(result, self.spec, where)
        self.log.append((*_digests(State(state.inputs), self.seat), ("result()", tuple(result.items()))))
        self._say(f"{where}: a further act()")
        action = tuple(self._draw(head, None) for head in self.seat.heads)
        try:
            await self.controller.act(action)
        except Exception:
            return  # as it should: what the game raises here is its own choice
        fault(where, "a further act() was accepted, expected an exception")

    def _see(self, where: str) -> State:
        """The state, asked for twice: looking must not change it."""
        self._say(f"{where}: state()")
        state = self.controller.state()
        rules.check_inputs(state, self.seat, where)
        seen = _digests(state, self.seat)
        if _digests(self.controller.state(), self.seat) != seen:
            fault(where, "state() changed without act(): two calls in a row differ")
        return state

    async def _act(self, action: Action | None, where: str) -> Any:
        self._say(where)
        waiting = self.controller.act(action)
        if not isinstance(waiting, Awaitable):
            fault(where, f"it returned {type(waiting).__name__}, expected something to await (async def act)")
        return await waiting

    def _choose(self, state: State) -> Action:
        masks = state.masks or (None,) * len(self.seat.heads)
        return tuple(self._draw(head, mask) for head, mask in zip(self.seat.heads, masks, strict=True))

    def _draw(self, head: Any, mask: np.ndarray | None) -> Any:
        if isinstance(head, ContinuousHead):
            low, high = np.asarray(head.low, np.float32), np.asarray(head.high, np.float32)
            drawn = self.rng.uniform(low, high).astype(np.float32)
            return high + drawn - low if self.rng.random() < OUTSIDE else drawn
        return int(self.rng.integers(head.n) if mask is None else self.rng.choice(np.flatnonzero(mask)))

    def _say(self, what: str) -> None:
        assert self.task is not None
        self.tally.at[self.task] = what


def _digests(state: State, seat: SeatSpec) -> tuple[tuple[str, Any], ...]:
    """What two equal states have in common; arrays are not kept, for they may be overwritten."""
    masks = state.masks or ()
    return (
        *(
            (f"input {spec.name}", _digest(array))
            for spec, array in zip(seat.inputs, state.inputs, strict=True)
        ),
        ("the mask", tuple(None if mask is None else _digest(mask) for mask in masks)),
        ("the script", repr(state.script)),
        ("the decision", state.decision),
    )


def _digest(array: Any) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).digest()


class _Turn:
    """Lets every other task that is ready run first."""

    def park(self, task: Task) -> None:
        task.wake()

    def __await__(self) -> Any:
        yield self
