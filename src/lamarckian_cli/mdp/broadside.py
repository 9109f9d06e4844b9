"""Broadside: the example game. Two ships fire at buoys; copy this file to begin your own.

It is small, but nothing of the MDP interface is missing: two inputs of different dtype; a
helm, a choice of target with a mask and a gun's elevation, all in one action; two rewards
with discounts of their own; steps that a script plays and steps that nobody decides; a
built-in player; and a clock that waits for nobody. The world moves once in `TICK_S` of
virtual time. A player whose order has not come by then holds course and holds fire, and
whoever came in time never notices the difference.

A match goes like this. Six buoys are moored at places 0..5, each worth 1 to 3 points, and
two ships sail up and down beside them. A shot scores the worth of its target, less for the
distance, and less for wind that the elevation does not allow for; it is in the air for one
tick, in which the gun is loaded again and nothing can be ordered. A buoy that was hit is
under water for a while. Every tenth tick a squall drives the ships towards the middle.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lamarckian_cli.errors import MDPError, require
from lamarckian_cli.mdp.scheduler import Signal, sleep
from lamarckian_cli.records import (
    RUNNING,
    TERMINATED,
    Action,
    ContinuousHead,
    DiscreteHead,
    InputSpec,
    MDPSpec,
    Outcome,
    RewardHead,
    SeatSpec,
    State,
)

TICK_S = 0.1
PLACES = 6  # of buoys, and of ships beside them
RANGE = 3  # a shot at a buoy so many places off scores nothing
SUNK_TICKS = 3
SALUTE = 0.5  # points that both ships get in the first tick, before anything is decided
SQUALL_EVERY = 10  # ticks
HELM = (0, 1, -1)  # places that each choice of the helm moves the ship by
HOLD_FIRE = 0  # the target head: 0, or 1 + the place of a buoy
NO_OP: Action = (0, HOLD_FIRE, np.zeros(1, np.float32))

SEAT = SeatSpec(
    name="ship",
    inputs=(
        InputSpec(name="bridge", shape=(6,), dtype="float32"),
        InputSpec(name="chart", shape=(3, PLACES), dtype="int64"),
    ),
    heads=(
        DiscreteHead(name="helm", n=3, names=("hold", "up", "down")),
        DiscreteHead(name="target", n=1 + PLACES, names=("none", *"012345"), masked=True),
        ContinuousHead(name="elevation", low=(-1.0,), high=(1.0,)),
    ),
    rewards=(
        RewardHead(name="points", discount=0.9),
        RewardHead(name="victory", discount=0.99, weight=0.5),
    ),
)


class Broadside:
    """The MDP. Its arguments are the keys of `conf/env/broadside.yaml`."""

    external = False

    def __init__(self, *, length: int = 40, skill: float = 0.7) -> None:
        require(length >= 2, "env.length", length, "it must be at least 2 ticks (40 is the usual match)")
        require(0.0 <= skill <= 1.0, "env.skill", skill, "it must lie in [0, 1]; 1 is the strongest opponent")
        self.length = length
        self.skill = skill

    def describe(self) -> MDPSpec:
        return MDPSpec(
            name="broadside",
            seats=(replace(SEAT, name="left ship"), replace(SEAT, name="right ship")),
            builtin_seats=(0, 1),
            results=("score_self", "score_enemy", "win"),
        )

    def reset(self, seats: Sequence[int], seed: int) -> BroadsideMatch:
        return BroadsideMatch(self, seats, seed)

    def close(self) -> None:
        """Matches hold nothing but memory."""


class BroadsideMatch:
    """The world: ships, buoys, wind, and the clock that moves them."""

    def __init__(self, rules: Broadside, seats: Sequence[int], seed: int) -> None:
        if not seats or len(set(seats)) != len(seats) or not set(seats) <= {0, 1}:
            raise MDPError(f"seats is {tuple(seats)}; broadside has seats 0 and 1: ask for one or both")
        self.length = rules.length
        self.skill = rules.skill
        self.random = random.Random(seed)
        self.opponent = random.Random(seed + 1)  # its own: the world's chance does not depend on who plays

        self.time = 0  # ticks so far
        self.over = False
        self.moved = Signal()  # fires after each tick
        self.ships = [1, PLACES - 2]
        self.loaded = [True, True]
        self.flying = [SALUTE, SALUTE]  # points of the shots that are in the air
        self.worth = [self.random.randint(1, 3) for _ in range(PLACES)]
        self.sunk = [0] * PLACES  # ticks until the buoy is up again
        self.wind = self.random.uniform(-1.0, 1.0)
        self.scores = [0.0, 0.0]

        self.controllers: Sequence[Helm] = tuple(Helm(self, seat) for seat in seats)
        self.ticks: Sequence[Coroutine[Any, Any, None]] = (self._clock(),)

    def close(self) -> None:
        """May come before the end. A clock that never ran is closed, else it ends at its next tick."""
        self.over = True
        for tick in self.ticks:
            if inspect.getcoroutinestate(tick) == inspect.CORO_CREATED:
                tick.close()

    def text(self) -> str:
        """The bay as lines of text: ships on both sides of the buoys, place 0 at the bottom."""
        lines = [f"{self.scores[0]:6.1f}  wind {self.wind:+.2f} {self.scores[1]:6.1f}"]
        for place in reversed(range(PLACES)):
            buoy = "~" if self.sunk[place] else str(self.worth[place])
            left, right = ("▲" if ship == place else " " for ship in self.ships)
            lines.append(f"     {left}      {buoy}      {right}")
        return "\n".join(lines)

    @property
    def squall(self) -> bool:
        """Whether a script sails the ships in the coming tick."""
        return not self.over and self.time % SQUALL_EVERY == SQUALL_EVERY - 1

    def decides(self, seat: int) -> bool:
        """Nothing is ordered before the ships have put to sea, nor while a gun is loaded again."""
        return self.over or self.squall or (self.time > 0 and self.loaded[seat])

    def script(self, seat: int) -> Action:
        """What a squall makes a ship do: one place towards the middle, the gun silent."""
        return (1 if self.ships[seat] < PLACES // 2 else 2, HOLD_FIRE, np.zeros(1, np.float32))

    async def _clock(self) -> None:
        while not self.over:
            await sleep(TICK_S)
            if not self.over:
                self._tick()
                self.moved.fire()

    def _tick(self) -> None:
        """Take the orders that are there, move everything on, and hand out the rewards."""
        given = {controller.seat: controller.take_order() for controller in self.controllers}
        orders = [given[seat] if seat in given else self._builtin(seat) for seat in (0, 1)]
        points = self.flying
        self.flying = [self._play(seat, order) for seat, order in enumerate(orders)]
        self._move_buoys({target for seat, (_, target, _) in enumerate(orders) if not self.loaded[seat]})
        self.wind = self.random.uniform(-1.0, 1.0)
        self.time += 1
        self.over = self.time >= self.length
        if self.over:  # the last shots count at once
            points = [landed + last for landed, last in zip(points, self.flying, strict=True)]

        self.scores = [score + new for score, new in zip(self.scores, points, strict=True)]
        lead = self.scores[0] - self.scores[1]
        victory = float((lead > 0) - (lead < 0)) if self.over else 0.0
        for controller in self.controllers:
            controller.earn(points[controller.seat], victory if controller.seat == 0 else -victory)

    def _play(self, seat: int, order: Action) -> float:
        """Sail and fire as ordered, or as must be; the points of the shot."""
        if self.squall:
            order = self.script(seat)
        elif not self.decides(seat):
            order = NO_OP
        helm, target, elevation = order
        self.ships[seat] = min(max(self.ships[seat] + HELM[helm], 0), PLACES - 1)
        if target == HOLD_FIRE or self.sunk[target - 1]:  # a late order may be for a buoy that is gone
            self.loaded[seat] = True
            return 0.0
        self.loaded[seat] = False
        near = max(0.0, 1.0 - abs(self.ships[seat] - (target - 1)) / RANGE)
        true = max(0.0, 1.0 - abs(float(elevation[0]) - self.wind))
        return self.worth[target - 1] * near * true

    def _move_buoys(self, hit: set[int]) -> None:
        self.sunk = [max(0, ticks - 1) for ticks in self.sunk]
        for target in sorted(hit):
            self.sunk[target - 1] = SUNK_TICKS
            self.worth[target - 1] = self.random.randint(1, 3)

    def _builtin(self, seat: int) -> Action:
        """The game's own player: fires at the best buoy, and allows for the wind as well as it can."""
        error = self.opponent.uniform(-1.0, 1.0) * (1.0 - self.skill)
        careless = self.opponent.random() > self.skill
        ship = self.ships[seat]
        afloat = [place for place in range(PLACES) if not self.sunk[place]]
        best = max(afloat, key=lambda p: 0 if careless else self.worth[p] * (RANGE - abs(ship - p)))
        helm = 0 if best == ship else 1 if best > ship else 2
        elevation = min(max(self.wind + error, -1.0), 1.0)
        return (helm, 1 + best, np.array([elevation], np.float32))


class Helm:
    """The controller: drives one ship."""

    def __init__(self, match: BroadsideMatch, seat: int) -> None:
        self.seat = seat
        self._match = match
        self._seen: State | None = None  # what the next order is judged by
        self._order: Action | None = None  # for the next tick
        self._earned = [0.0, 0.0]  # since the last act returned; a late player gets several ticks' at once
        self._reward = [0.0, 0.0]
        self._told = False  # that the match is over

    def state(self) -> State:
        """The bridge, float32 [6] in [-1, 1], and the chart, int64 [3, 6].

        The bridge: own place, other's place, wind, own gun loaded, time left, lead. The
        chart: what each buoy is worth (0 under water), and 1 where the own and the other ship are.
        """
        match, seat = self._match, self.seat
        own, other = match.ships[seat], match.ships[1 - seat]
        lead = (match.scores[seat] - match.scores[1 - seat]) / match.length
        bridge = [
            2.0 * own / (PLACES - 1) - 1.0,
            2.0 * other / (PLACES - 1) - 1.0,
            match.wind,
            float(match.loaded[seat]),
            1.0 - match.time / match.length,
            min(max(lead, -1.0), 1.0),
        ]
        afloat = [ticks == 0 for ticks in match.sunk]
        chart = np.zeros((3, PLACES), np.int64)
        chart[0] = np.where(afloat, match.worth, 0)
        chart[1, own] = 1
        chart[2, other] = 1
        self._seen = State(
            inputs=(np.array(bridge, np.float32), chart),
            masks=(None, np.array([True, *afloat]), None),  # to hold fire is always legal
            script=match.script(seat) if match.squall else None,
            decision=match.decides(seat),
        )
        return self._seen

    async def act(self, action: Action | None) -> Outcome:
        """Give the order for the next tick and wait for it."""
        match = self._match
        if self._told:
            raise MDPError(f"seat {self.seat} of broadside acted after the end of the match; reset a new one")
        if not match.over:  # else it ended while this player was late, who is told so now
            self._order = self._checked(action)
            await match.moved.wait()
        self._reward, self._earned = self._earned, [0.0, 0.0]
        self._told = match.over
        return TERMINATED if match.over else RUNNING

    def reward(self) -> Sequence[float]:
        """Points that came in with the last act; at the end 1 for a victory, -1 for a defeat."""
        return tuple(self._reward)

    def result(self) -> dict[str, float]:
        """Points of both ships, and whether that wins the match (0.5: a draw)."""
        own, enemy = self._match.scores[self.seat], self._match.scores[1 - self.seat]
        win = 1.0 if own > enemy else 0.5 if own == enemy else 0.0
        return {"score_self": own, "score_enemy": enemy, "win": win}

    def take_order(self) -> Action:
        """For the clock: the order, which may be used once, or none in time."""
        order, self._order = self._order, None
        return NO_OP if order is None else order

    def earn(self, points: float, victory: float) -> None:
        """For the clock: add to what the next act to return brings."""
        self._earned[0] += points
        self._earned[1] += victory

    def _checked(self, action: Action | None) -> Action:
        """`action` if it was legal when this player last looked; the world may have moved since."""
        seen = self._seen or self.state()
        if seen.script is not None or not seen.decision:
            return NO_OP  # the world knows what to play
        if not isinstance(action, tuple) or len(action) != len(SEAT.heads):
            raise self._illegal("the action", action, "it has one entry each for helm, target and elevation")
        helm, target, elevation = action
        if helm not in (0, 1, 2):
            raise self._illegal("head 'helm'", helm, "it takes 0, 1 or 2")
        legal = np.flatnonzero(seen.masks[1]).tolist()  # type: ignore[index, arg-type]
        if target not in legal:
            raise self._illegal("head 'target'", target, f"legal are {legal}")
        elevation = np.asarray(elevation, np.float32)
        if elevation.shape != (1,) or not np.isfinite(elevation[0]):
            raise self._illegal("head 'elevation'", elevation, "it takes a finite float32 array [1]")
        return (int(helm), int(target), elevation.clip(-1.0, 1.0))  # a Gaussian policy goes beyond the bounds

    def _illegal(self, what: str, value: object, remedy: str) -> MDPError:
        return MDPError(f"seat {self.seat} of broadside: {what} is {value!r}; {remedy}")
