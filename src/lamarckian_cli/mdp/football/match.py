"""One football match and its controllers."""

from __future__ import annotations

import json
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lamarckian_cli.errors import ConfigError, MDPError
from lamarckian_cli.mdp.football.actions import NAMES, legal
from lamarckian_cli.mdp.football.captions import caption
from lamarckian_cli.mdp.football.engine import TERMINATED as ENDED
from lamarckian_cli.mdp.football.engine import TRUNCATED as CUT
from lamarckian_cli.mdp.football.host import FRAME, FRAME_HEIGHT, FRAME_WIDTH, LOAD, RESET, SAVE, STEP
from lamarckian_cli.mdp.football.pitch import pitch_text
from lamarckian_cli.mdp.football.process import Engine, EngineProcess
from lamarckian_cli.mdp.scheduler import Signal, sleep
from lamarckian_cli.records import RUNNING, TERMINATED, TRUNCATED, Action, Outcome, State

if TYPE_CHECKING:
    from lamarckian_cli.mdp.football.mdp import Football

HEADER = 4  # numbers of a reply before the checkpoint rewards


class FootballMatch:
    """One match. A step moves the world once every player has acted."""

    def __init__(
        self, mdp: Football, engine: Engine, index: int, slot: int, seats: tuple[int, ...], seed: int
    ) -> None:
        self.mdp = mdp
        self._engine, self._index, self._slot = engine, index, slot
        self._ticket: int | None = None  # of the reply that is under way
        self._closed = False
        self.agents, agents, self.driven = agents_of(mdp, seats)
        self.goals = [0, 0]
        self.moved = Signal()
        self.orders = bytearray(len(seats))
        self.owed = len(seats)  # players who have not acted in this step yet
        self.steps = 0
        self.possession = [0, 0]  # steps that each side had the ball
        self.outcome = RUNNING
        self.controllers: Sequence[FootballController] = tuple(
            FootballController(self, place, seat) for place, seat in enumerate(seats)
        )
        self.ticks: Sequence[Coroutine[Any, Any, None]] = ()
        self._take(self._ask(RESET, json.dumps([seed, agents, self.driven]).encode()))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._ticket is not None:
                self._engine.forget(self._ticket)
            self.mdp.give_back(self._engine, self._index, self._slot)

    def frame(self) -> np.ndarray:
        """The pitch, the players, the score and the actions, `[360, 640, 3]` uint8.

        Raises ConfigError unless made with `render`.
        """
        if not self.mdp.render:
            raise ConfigError(f"{self.mdp.id} draws no picture; set env.render=true")
        picture = np.frombuffer(self._ask(FRAME, b""), np.uint8).reshape(FRAME_HEIGHT, FRAME_WIDTH, 3)
        orders = self.orders if self.steps else b""
        return caption(picture, self.raw, self.driven, orders, self.duration)

    def text(self) -> str:
        """The pitch from above as lines of text, with the score."""
        return pitch_text(self.raw)

    def save(self) -> bytes:
        """The match as it is now, for `load`: some 30 to 110 kB."""
        head = json.dumps([self.steps, self.possession]).encode()
        return len(head).to_bytes(4, "little") + head + self._ask(SAVE, b"")

    def load(self, state: bytes) -> None:
        """Continue from what a match of this MDP with the same seats saved; rewards become 0."""
        size = int.from_bytes(state[:4], "little")
        self.steps, self.possession = json.loads(state[4 : 4 + size])
        self.outcome = RUNNING
        self._take(self._ask(LOAD, state[4 + size :]))

    async def advance(self) -> None:
        """Move the world by one step, on everyone's orders.

        Sleeping for no time lets every other match add its orders, before this one waits.
        """
        self._ticket = self._engine.send(STEP, self._slot, bytes(self.orders))
        if isinstance(self._engine, EngineProcess):
            await sleep(0.0)
            self.mdp.flush()
        reply = self._engine.receive(self._ticket)
        self._ticket = None
        self.steps += 1
        self._take(reply)
        owner = int(self.raw[9])
        if owner >= 0:
            self.possession[owner] += 1

    def stop_unless_running(self, seat: int) -> None:
        if self.outcome is not RUNNING or self._closed:
            raise MDPError(f"seat {seat} of {self.mdp.id} acted after the end of the match; reset a new one")

    def _ask(self, what: int, payload: bytes) -> bytes:
        ticket = self._engine.send(what, self._slot, payload)
        self.mdp.flush()
        return self._engine.receive(ticket)

    def _take(self, reply: bytes) -> None:
        """Take over the engine's reply (`Game.step`)."""
        numbers = np.frombuffer(reply, np.float32)
        count = HEADER + len(self.driven)
        outcome, scored, duration, offsides, *checkpoints = numbers[:count].tolist()
        raw = self.raw = numbers[count:]
        self.outcome = TERMINATED if outcome == ENDED else TRUNCATED if outcome == CUT else RUNNING
        self.goals = [int(raw[12]), int(raw[13])]
        self.duration = int(duration)  # steps of the engine that a whole match has
        inputs = self.mdp.encoding.encode(raw, self.driven, duration)
        masks = legal(raw, self.driven, offsides=bool(offsides)) if self.mdp.mask else None
        order, heads = self.agents, self.mdp.rewards
        for controller, row in zip(self.controllers, order, strict=True):
            controller.seen = State((inputs[row],), None if masks is None else (masks[row],))
            score = -scored if controller.side else scored
            controller.earned = tuple(score if head.name == "score" else checkpoints[row] for head in heads)


class FootballController:
    """Drives one player: the one whom the engine says is this agent's."""

    __slots__ = ("_match", "_place", "_seat", "earned", "seen", "side")

    seen: State
    earned: tuple[float, ...]

    def __init__(self, match: FootballMatch, place: int, seat: int) -> None:
        self._match = match
        self._seat = seat
        self._place = match.agents[place]
        self.side = match.mdp.sides[seat]

    def state(self) -> State:
        """One input by `env.observation`, and the mask of the 19 actions; arrays are nobody else's."""
        return self.seen

    async def act(self, action: Action | None) -> Outcome:
        """Play; waits for the other players of the match, then for the engine."""
        match = self._match
        match.stop_unless_running(self._seat)
        try:
            order = int(action[0])  # type: ignore[index]
            if not 0 <= order < len(NAMES):
                raise ValueError
        except (TypeError, ValueError, IndexError):
            raise MDPError(
                f"seat {self._seat} of {match.mdp.id} played {action!r}; "
                f"head 'action' takes one of 0 to {len(NAMES) - 1}, as in (0,)"
            ) from None
        match.orders[self._place] = order
        match.owed -= 1
        if match.owed:
            await match.moved.wait()
        else:
            match.owed = len(match.controllers)
            await match.advance()
            match.moved.fire()
        return match.outcome

    def reward(self) -> Sequence[float]:
        """What the last step brought, by reward head."""
        return self.earned

    def result(self) -> dict[str, float]:
        """Goals of both sides, whether that wins (0.5: a draw), the share of steps with the ball."""
        match = self._match
        own, enemy = match.goals[self.side], match.goals[1 - self.side]
        return {
            "score_self": float(own),
            "score_enemy": float(enemy),
            "win": 1.0 if own > enemy else 0.5 if own == enemy else 0.0,
            "possession": match.possession[self.side] / max(1, match.steps),
        }


def agents_of(
    mdp: Football, seats: tuple[int, ...]
) -> tuple[list[int], tuple[int, int], list[tuple[int, int]]]:
    """Row of each of `seats` among the driven; the engine's agents on each side; the driven ones.

    With the built-in opponent the engine has no agent for a seat that nobody drives.
    """
    in_order = sorted(seats)  # left ones first, as the engine counts
    left = mdp.sides.count(0)
    if mdp.opponent == "builtin":
        counts = [0, 0]
        driven = []
        for seat in in_order:
            side = mdp.sides[seat]
            driven.append((side, counts[side]))
            counts[side] += 1
        agents = (counts[0], counts[1])
    else:
        driven = [(mdp.sides[seat], seat - left * mdp.sides[seat]) for seat in in_order]
        agents = (left, mdp.sides.count(1))
    return [in_order.index(seat) for seat in seats], agents, driven
