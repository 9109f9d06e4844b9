"""Many matches at once in one thread: coroutines wait, one forward pass answers them all.

while training:
    rollout.step()                        # every match goes on until its policy must answer
    unrolls = rollout.take(minimum)       # what is complete
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lamarckian_cli.actor.opponents import Opponents
from lamarckian_cli.actor.players import Player, check_state, spar, train
from lamarckian_cli.actor.policy import Policy
from lamarckian_cli.errors import LamarckError, MDPError
from lamarckian_cli.mdp.interface import MDP, Controller, Match
from lamarckian_cli.mdp.scheduler import Scheduler, Signal, Task
from lamarckian_cli.records import MatchResult, Unrolls
from lamarckian_cli.seeding import derive_seed, stream

SILENCE_S = 60.0  # after which games outside this process count as gone
FAILURES_IN_A_ROW = 10  # matches of one slot that may fail one after the other before the game is given up


@dataclass
class Slot:
    """A place for one match after another."""

    index: int
    players: list[Player]
    matches: int = 0
    failures: int = 0
    match: Match | None = None
    opponent: str = ""  # whom of the pool it is against
    tasks: list[Task] = field(default_factory=list)
    game_side: list[asyncio.Task[None]] = field(default_factory=list)


class Rollout:
    """Runs `matches` matches of `mdp`; `seats` maps each driven seat to the policy that plays it.

    `opponents` are those of `seats` that each match is against one of.
    """

    def __init__(
        self,
        mdp: MDP,
        seats: dict[int, Policy],
        *,
        matches: int,
        seed: int,
        limit: int | None = None,
        opponents: Opponents | None = None,
    ) -> None:
        self.mdp = mdp
        self.spec = mdp.describe()
        self.seats = seats
        self.seed = seed
        self.limit = limit  # matches to play in all; None: for ever
        self.opponents = opponents
        self.env_steps = 0
        self.failures = 0  # matches given up because the game failed
        self.first_failure = ""
        self.results: list[tuple[int, MatchResult]] = []  # (number of the match, its result)
        self.scheduler = Scheduler()
        self.policies = list(dict.fromkeys(seats.values()))
        self._next_match = 0
        used = dict.fromkeys(self.policies, 0)
        self._slots = []
        for index in range(matches):
            players = []
            for seat, policy in seats.items():
                players.append(Player(seat, policy, used[policy]))
                used[policy] += 1
            self._slots.append(Slot(index, players))
        self._begun = False
        self._moved_at = time.monotonic()

    @property
    def finished(self) -> bool:
        """All matches of `limit` have been played."""
        return self._begun and not self._slots

    def step(self) -> None:
        """Let every match go on as far as it can, then answer all that wait for a policy."""
        self._begin()
        self.scheduler.run()
        self._handle_failures()
        if not self._answer() and not self.scheduler.ready and not self.scheduler.advance() and self._slots:
            raise MDPError(
                f"{self.spec.name} hangs: every player waits and nothing in the game will wake one; "
                "check_mdp() shows where"
            )

    async def step_outside(self, timeout_s: float = 1.0) -> None:
        """`step` for games outside this process: waits at most `timeout_s` for one of them."""
        self._begin()
        self.scheduler.run()
        self._handle_failures()
        if self._answer():
            await asyncio.sleep(0)
            self._moved_at = time.monotonic()
        elif self.scheduler.outside or self.scheduler.ready or not self.scheduler.advance():
            if await self.scheduler.wait_outside(timeout_s):
                self._moved_at = time.monotonic()
            elif self._slots and time.monotonic() - self._moved_at > SILENCE_S:
                raise MDPError(
                    f"{self.spec.name} is silent: no player of any match moved for {SILENCE_S:g} s; "
                    "is the game still running?"
                )

    def take(self, minimum: int) -> list[Unrolls]:
        """Complete unrolls of every policy that has at least `minimum`."""
        return [unrolls for policy in self.policies for unrolls in policy.take(minimum)]

    def pop_results(self) -> list[MatchResult]:
        """Results of matches that ended since the last call."""
        results, self.results = self.results, []
        return [result for _, result in results]

    def restart(self, seed: int) -> None:
        """Give up all running matches and unfinished unrolls, and begin anew from `seed`."""
        self.seed = seed
        self._next_match = 0
        for slot in self._slots:
            self._give_up(slot)
            slot.matches = 0
        for number, policy in enumerate(self.policies):
            policy.reseed(derive_seed(seed, ("policy", number)))
            policy.waiting = []
        self.scheduler = Scheduler()  # whose clock begins anew too
        self._begun = False

    def close(self) -> None:
        for slot in self._slots:
            self._give_up(slot)
        self.mdp.close()

    # -------------------------------------------------------------- matches

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            for slot in list(self._slots):
                self._start(slot)

    def _start(self, slot: Slot) -> None:
        if self.limit is not None and self._next_match >= self.limit:
            self._slots.remove(slot)
            return
        number, self._next_match = self._next_match, self._next_match + 1
        # In training a slot's matches must not depend on the order in which others end.
        path = ("match", number) if self.limit is not None else ("slot", slot.index, slot.matches)
        slot.matches += 1
        task = self.scheduler.spawn(self._play(slot, number, derive_seed(self.seed, path)), "match")
        slot.tasks = [task]

    async def _play(self, slot: Slot, number: int, seed: int) -> None:
        match = slot.match = self.mdp.reset(tuple(self.seats), seed)
        controllers = match.controllers
        if len(controllers) != len(slot.players):
            raise MDPError(
                f"{self.spec.name}: reset() gave {len(controllers)} controllers for "
                f"{len(slot.players)} seats {list(self.seats)}"
            )
        self._meet(slot, seed)
        for player, controller in zip(slot.players, controllers, strict=True):
            player.begin()
            check_state(player.policy.seat, controller.state(), player.seat, self.spec.name)
        self._start_ticks(slot, match)
        if len(controllers) == 1:
            await self._drive(controllers[0], slot.players[0])
        else:
            await self._drive_all(slot, controllers)
        for task in slot.tasks[1:]:
            self.scheduler.cancel(task)
        self._finish(slot, number, controllers)

    def _meet(self, slot: Slot, seed: int) -> None:
        """Draw the opponent of a match that begins, by the match's own seed."""
        if self.opponents is None:
            return
        learning = next(player for player in slot.players if player.policy.buffer is not None)
        learner = learning.policy.identity(learning)[0]
        slot.opponent = self.opponents.meet(_against(slot, self.opponents), learner, stream(seed, "opponent"))

    def _part(self, slot: Slot) -> None:
        if self.opponents is not None and slot.opponent:
            self.opponents.part(_against(slot, self.opponents))
            slot.opponent = ""

    def _drive(self, controller: Controller, player: Player) -> Coroutine[Any, Any, None]:
        return (train if player.policy.buffer is not None else spar)(controller, player)

    async def _drive_all(self, slot: Slot, controllers: Sequence[Controller]) -> None:
        left, over = len(controllers), Signal()

        async def drive(controller: Controller, player: Player) -> None:
            nonlocal left
            await self._drive(controller, player)
            left -= 1
            if left == 0:
                over.fire()

        for controller, player in zip(controllers, slot.players, strict=True):
            slot.tasks.append(self.scheduler.spawn(drive(controller, player), f"seat {player.seat}"))
        await over.wait()

    def _start_ticks(self, slot: Slot, match: Match) -> None:
        for tick in match.ticks:
            if self.mdp.external:
                slot.game_side.append(asyncio.ensure_future(tick))
            else:
                slot.tasks.append(self.scheduler.spawn(tick, "tick"))

    def _finish(self, slot: Slot, number: int, controllers: Sequence[Controller]) -> None:
        opponent = slot.opponent
        for player, controller in zip(slot.players, controllers, strict=True):
            result = {"return": float(sum(player.returns))}
            if len(player.returns) > 1:
                for head, value in zip(player.policy.seat.rewards, player.returns, strict=True):
                    result[f"return_{head.name}"] = float(value)
            result.update({name: float(value) for name, value in controller.result().items()})
            steps = player.steps
            name, version = player.policy.identity(player)
            met = ""
            if opponent and player.policy.buffer is not None:
                met, opponent = opponent, ""
            self.results.append(
                (
                    number,
                    MatchResult(
                        policy=name,
                        seat=player.seat,
                        version=version,
                        first_version=player.began,
                        env_steps=steps,
                        frames=steps * self.spec.frames_per_step,
                        result=result,
                        opponent=met,
                    ),
                )
            )
        slot.failures = 0
        self._release(slot)
        self._start(slot)

    def _release(self, slot: Slot) -> None:
        for task in slot.game_side:
            task.cancel()
        slot.game_side, slot.tasks = [], []
        self._part(slot)
        match, slot.match = slot.match, None
        if match is not None:
            try:
                match.close()
            except Exception as error:  # the match was played; the next one may do better
                self._count_failure("close", error)

    # -------------------------------------------------------------- policies and failures

    def _answer(self) -> bool:
        waited = False
        for policy in self.policies:
            if policy.waiting:
                if policy.buffer is not None:
                    self.env_steps += len(policy.waiting)
                policy.answer()
                waited = True
        return waited

    def _handle_failures(self) -> None:
        failed, self.scheduler.failed = self.scheduler.failed, []
        for task in failed:
            error = task.error
            slot = next((s for s in self._slots if task in s.tasks), None)
            if slot is None:
                continue
            self._count_failure(task.name, error)
            slot.failures += 1
            if isinstance(error, LamarckError):
                raise error
            if slot.failures >= FAILURES_IN_A_ROW:
                raise MDPError(
                    f"{slot.failures} matches in a row failed; the first error: {self.first_failure}"
                ) from error
            self._give_up(slot)
            self._start(slot)

    def _count_failure(self, where: str, error: BaseException | None) -> None:
        self.failures += 1
        text = f"{self.spec.name}: {where}: {type(error).__name__}: {error}{_place(error)}"
        self.first_failure = self.first_failure or " ".join(text.split())

    def _give_up(self, slot: Slot) -> None:
        for task in slot.tasks:
            self.scheduler.cancel(task)
        for player in slot.players:
            if player.policy.buffer is not None:
                player.policy.buffer.abandon([player.slot])
            if player in player.policy.waiting:
                player.policy.waiting.remove(player)
            player.begin()
        self._release(slot)


def _against(slot: Slot, opponents: Opponents) -> list[Player]:
    return [player for player in slot.players if player.policy is opponents]


def _place(error: BaseException | None) -> str:
    """` (game.py, line 12)`: where it was raised."""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
