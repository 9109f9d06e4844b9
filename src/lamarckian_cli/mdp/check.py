"""`check_mdp()`: does a game keep the promises of the MDP interface?

It plays real matches with random legal actions, as an actor would, and raises MDPError at
the first promise broken. Each match is played three times from one seed with the same
actions: twice by itself, which must give the same match, and once beside another match,
which must not notice. What is demanded of each state, reward and result is in `rules.py`.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lamarckian_cli.errors import ConfigError, MDPError, require
from lamarckian_cli.mdp import rules
from lamarckian_cli.mdp.check_player import Log, Player, Tally
from lamarckian_cli.mdp.interface import MDP, Match
from lamarckian_cli.mdp.rules import Fault, fault
from lamarckian_cli.mdp.scheduler import Scheduler, Task
from lamarckian_cli.records import MDPSpec
from lamarckian_cli.seeding import derive_seed

ADVANCES = 100_000  # jumps of the virtual clock without any player's progress: a match that hangs


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What was played when nothing was found."""

    matches: int
    env_steps: int


def check_mdp(
    mdp: MDP,
    *,
    matches: int = 3,
    max_steps: int = 10_000,
    seed: int = 0,
    deadline_s: float = 30.0,
    deterministic: bool | None = None,
) -> CheckReport:
    """Play `matches` matches, several times over, for each set of seats; `mdp` is closed at the end.

    All seats are driven, and, where the game can play the others itself, each seat alone.
    A match must end within `max_steps` steps. For games outside this process
    (`mdp.external`) everything runs under asyncio, so call it from outside an event loop;
    no wait may last longer than `deadline_s`. `deterministic` says whether the same seed and
    actions must give the same match; None demands it of all but external games.

    Raises MDPError that names the match, the seat, the step, what was expected and what came.
    """
    require(matches >= 1, "matches", matches, "it must be at least 1")
    require(max_steps >= 1, "max_steps", max_steps, "it must be at least 1")
    external = getattr(mdp, "external", None)
    if not isinstance(external, bool):
        fault(type(mdp).__name__, f"its attribute external is {external!r}, expected True or False")
    check = _Check(mdp, max_steps, deadline_s, not external if deterministic is None else deterministic)
    whole = check.run(matches, seed)
    if external:
        return asyncio.run(whole)
    try:
        whole.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("only the check of an external game waits for asyncio")


@dataclass(slots=True)
class _Play:
    """One match being played."""

    where: str
    match: Match
    players: list[Player] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)  # the players, and ticks of games in this process
    outside: list[asyncio.Future[Any]] = field(default_factory=list)  # ticks of external games

    @property
    def logs(self) -> list[Log]:
        return [player.log for player in self.players]


class _Check:
    """One game under check."""

    def __init__(self, mdp: MDP, max_steps: int, deadline_s: float, deterministic: bool) -> None:
        self.mdp = mdp
        self.max_steps = max_steps
        self.deadline_s = deadline_s
        self.deterministic = deterministic
        self.scheduler = Scheduler()
        self.tally = Tally()
        self.played = 0

    async def run(self, matches: int, seed: int) -> CheckReport:
        self.spec: MDPSpec = _guard(self.mdp.describe, "describe()")
        rules.check_spec(self.spec)
        for seats in self._seat_sets():
            for number in range(matches):
                await self._check_match(seats, derive_seed(seed, ("check", number)))
        self._check_description()
        _guard(self.mdp.close, f"{self.spec.name}, close()")
        return CheckReport(matches=self.played, env_steps=self.tally.env_steps)

    async def _check_match(self, seats: tuple[int, ...], seed: int) -> None:
        (first,) = await self._play(seats, [seed])
        (again,) = await self._play(seats, [seed])
        beside, _ = await self._play(seats, [seed, derive_seed(seed, ("other",))])
        await self._play(seats, [seed], drive=False)  # a match may be closed before its end
        if self.deterministic:
            where = f"{self.spec.name}, match of seed {seed}"
            _compare(where, first, again, "when it is played again from its seed with the same actions")
            _compare(where, first, beside, "when another match runs beside it; the two share state")

    def _seat_sets(self) -> list[tuple[int, ...]]:
        seats = tuple(range(len(self.spec.seats)))
        builtin = set(self.spec.builtin_seats)
        alone = [(seat,) for seat in seats if len(seats) > 1 and set(seats) - {seat} <= builtin]
        return [seats, *alone]

    def _check_description(self) -> None:
        where = f"{self.spec.name}, describe()"
        again = _guard(self.mdp.describe, where)
        if again != self.spec:
            fault(where, f"it changed between two calls, from {self.spec} to {again}")

    # -------------------------------------------------------------- playing matches

    async def _play(
        self, seats: tuple[int, ...], seeds: Sequence[int], drive: bool = True
    ) -> list[list[Log]]:
        """Play one match for each of `seeds`, all at once; the log of each player."""
        plays: list[_Play] = []
        try:
            for seed in seeds:
                play = self._open(seats, seed)
                plays.append(play)
                self._start(play, seats, seed, drive)
            await self._finish(plays)
            if drive:
                _look(plays[0])
        finally:
            # Also when a fault was found, so that no coroutine is left behind half-way.
            for play in plays:
                self._stop(play)
        for play in plays:
            _guard(play.match.close, f"{play.where}, match.close()")
        self.played += len(plays)
        return [play.logs for play in plays]

    def _open(self, seats: tuple[int, ...], seed: int) -> _Play:
        where = f"{self.spec.name}, match of seed {seed}"
        self._check_description()
        match = _guard(lambda: self.mdp.reset(seats, seed), f"{where}, reset({seats})")
        return _Play(where=where, match=match)

    def _start(self, play: _Play, seats: tuple[int, ...], seed: int, drive: bool) -> None:
        match = play.match
        for index, tick in enumerate(match.ticks):
            if not inspect.iscoroutine(tick):
                fault(play.where, f"ticks[{index}] is {type(tick).__name__}, expected a coroutine")
            if self.mdp.external:
                play.outside.append(asyncio.ensure_future(tick))
            else:
                play.tasks.append(self.scheduler.spawn(tick, f"tick {index}"))
        if len(match.controllers) != len(seats):
            fault(play.where, f"reset() gave {len(match.controllers)} controllers, expected {len(seats)}")
        watch = len(seats) == 1 and not match.ticks
        for controller, seat in zip(match.controllers, seats if drive else (), strict=drive):
            player = Player(self.tally, self.spec, controller, seat=seat, seed=seed, where=play.where)
            play.players.append(player)
            play.tasks.append(player.start(self.scheduler, max_steps=self.max_steps, watch=watch))

    async def _finish(self, plays: Sequence[_Play]) -> None:
        """Run until every player is through."""
        scheduler = self.scheduler
        env_steps, advances = -1, 0
        while True:
            scheduler.run()
            self._raise_failures(plays)
            if not self._unfinished(plays):
                return
            if self.tally.env_steps != env_steps:
                env_steps, advances = self.tally.env_steps, 0
                end_s = time.monotonic() + self.deadline_s
            if self.mdp.external and (scheduler.outside or not scheduler.advance()):
                if not await scheduler.wait_outside(max(0.0, end_s - time.monotonic())):
                    self._raise_failures(plays)
                    self._raise_hang(plays, f"it waited for {self.deadline_s:g} s")
            elif not self.mdp.external:
                advances += 1
                if not scheduler.advance():
                    self._raise_hang(plays, "nobody is left who could wake it")
                if advances > ADVANCES:
                    self._raise_hang(plays, f"the game's clock went on {ADVANCES} times without it")

    def _stop(self, play: _Play) -> None:
        """End whatever still runs of this match."""
        for task in play.tasks:
            self.scheduler.cancel(task)
            self.tally.at.pop(task, None)
        for future in play.outside:
            future.cancel()
        for tick in play.match.ticks:
            if inspect.iscoroutine(tick) and not self.mdp.external:
                tick.close()  # those that were never started

    def _unfinished(self, plays: Sequence[_Play]) -> list[Task]:
        at = self.tally.at
        return [task for play in plays for task in play.tasks if task in at and not task.done]

    def _raise_failures(self, plays: Sequence[_Play]) -> None:
        for task in self.scheduler.failed:
            if isinstance(task.error, Fault):
                raise task.error
            _raise_from(task.error, self.tally.at.get(task, f"{self.spec.name}, {task.name}"))
        for play in plays:
            for future in play.outside:
                if future.done() and not future.cancelled() and future.exception() is not None:
                    _raise_from(future.exception(), f"{play.where}, a tick")

    def _raise_hang(self, plays: Sequence[_Play], why: str) -> None:
        doing = "; ".join(self.tally.at[task] for task in self._unfinished(plays))
        fault(doing, f"this never returns: {why}")


def _guard(call: Callable[[], Any], where: str) -> Any:
    """Call into the game; what it raises becomes an MDPError."""
    try:
        return call()
    except Exception as error:
        _raise_from(error, where)


def _raise_from(error: BaseException | None, where: str) -> None:
    raise MDPError(f"{where}: it raised {type(error).__name__}: {error}") from error


def _look(play: _Play) -> None:
    """Matches that can be looked at have pictures; ConfigError says that none were asked for."""
    match: Any = play.match
    if not hasattr(match, "frame"):
        return
    try:
        picture = match.frame()
    except ConfigError:
        return
    except Exception as error:
        _raise_from(error, f"{play.where}, frame()")
    rules.check_picture(picture, _guard(match.text, f"{play.where}, text()"), play.where)


def _compare(where: str, one: list[Log], two: list[Log], when: str) -> None:
    """Two runs of one match must be alike in everything that was seen."""
    for player, (log, other) in enumerate(zip(one, two, strict=True)):
        for step, (ours, theirs) in enumerate(zip(log, other, strict=False)):
            for (name, value), (_, again) in zip(ours, theirs, strict=False):
                if value != again:
                    fault(f"{where}, player {player}, step {step}", f"{name} differs {when}")
        if len(log) != len(other):
            fault(f"{where}, player {player}", f"it takes {len(log) - 1} steps, and {len(other) - 1} {when}")
