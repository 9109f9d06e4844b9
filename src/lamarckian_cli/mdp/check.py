"""`check_mdp()`: does a game keep the promises of the MDP interface?

It plays real matches with random legal actions, as an actor would, and raises MDPError at
the first promise broken. Each match is played three times from one seed with the same
actions: twice by itself, which must give the same match, and once beside another match,
which must not notice. What is demanded of each state, reward and result is in `rules.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lamarckian_cli.errors import ConfigError, LamarckError, MDPError, require
from lamarckian_cli.mdp import rules
from lamarckian_cli.mdp.interface import MDP, Controller, Match
from lamarckian_cli.mdp.rules import fault
from lamarckian_cli.mdp.scheduler import Scheduler, Task
from lamarckian_cli.records import Action, ContinuousHead, MDPSpec, SeatSpec, State
from lamarckian_cli.seeding import derive_seed, stream

OUTSIDE = 0.2  # share of continuous actions outside their bounds: a Gaussian policy has such
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
    """Play `matches` matches for each set of seats, and close `mdp` at the end.

    All seats are driven, and, where the game can play seats itself, each of the others alone.
    A match must end within `max_steps` steps. For games outside this process
    (`mdp.external`) everything runs under asyncio, so call it from outside an event loop;
    no wait may last longer than `deadline_s`. `deterministic` says whether the same seed and
    actions must give the same match; None demands it of all but external games.

    Raises MDPError that names the match, the seat, the step, what was expected and what came.
    """
    require(matches >= 1, "matches", matches, "it must be at least 1")
    require(max_steps >= 1, "max_steps", max_steps, "it must be at least 1")
    check = _Check(mdp, max_steps, deadline_s, not mdp.external if deterministic is None else deterministic)
    whole = check.run(matches, seed)
    if mdp.external:
        return asyncio.run(whole)
    try:
        whole.send(None)
    except StopIteration as stop:
        return stop.value
    whole.close()
    raise AssertionError("only external games wait for asyncio")


@dataclass(slots=True)
class _Play:
    """One match being played."""

    where: str
    match: Match
    seed: int  # of the actions
    log: list[list[tuple[Any, ...]]]  # per controller and step: what happened, as digests
    tasks: list[Task] = field(default_factory=list)
    outside: list[asyncio.Future[Any]] = field(default_factory=list)  # ticks of external games


class _Turn:
    """Lets every other task that is ready run first."""

    def park(self, task: Task) -> None:
        task.wake()

    def __await__(self) -> Any:
        yield self


class _Check:
    def __init__(self, mdp: MDP, max_steps: int, deadline_s: float, deterministic: bool) -> None:
        self.mdp = mdp
        self.max_steps = max_steps
        self.deadline_s = deadline_s
        self.deterministic = deterministic
        self.scheduler = Scheduler()
        self.env_steps = 0
        self.progress = 0
        self.at: dict[Task, str] = {}  # what each player is doing, for a match that hangs
        self.spec: MDPSpec = self._describe()

    async def run(self, matches: int, seed: int) -> CheckReport:
        played = 0
        for seats in self._seat_sets():
            for number in range(matches):
                match_seed = derive_seed(seed, ("check", number))
                first = await self._play_logs(seats, [match_seed])
                second = await self._play_logs(seats, [match_seed])
                self._compare(
                    first[0], second[0], seats, match_seed, "a second match with the same seed and actions"
                )
                both = await self._play_logs(seats, [match_seed, derive_seed(match_seed, ("other",))])
                self._compare(
                    first[0],
                    both[0],
                    seats,
                    match_seed,
                    "the same match beside another one; they share state",
                )
                await self._close_early(seats, match_seed)
                played += 5
        self._same_description()
        self._guard(self.mdp.close, f"{self.spec.name}, close()")
        return CheckReport(matches=played, env_steps=self.env_steps)

    # -------------------------------------------------------------- what is played

    def _describe(self) -> MDPSpec:
        spec = self._guard(self.mdp.describe, "describe()")
        rules.check_spec(spec)
        return spec

    def _same_description(self) -> None:
        again = self._guard(self.mdp.describe, f"{self.spec.name}, describe()")
        if again != self.spec:
            fault(
                f"{self.spec.name}, describe()", f"it changed between two calls, from {self.spec} to {again}"
            )

    def _seat_sets(self) -> list[tuple[int, ...]]:
        seats = tuple(range(len(self.spec.seats)))
        others = set(self.spec.builtin_seats)
        alone = [(seat,) for seat in seats if len(seats) > 1 and set(seats) - {seat} <= others]
        return [seats, *alone]

    async def _play_logs(
        self, seats: tuple[int, ...], seeds: Sequence[int]
    ) -> list[list[list[tuple[Any, ...]]]]:
        """Play one match for each of `seeds`, all at once; what happened in each."""
        plays = [self._start(seats, seed) for seed in seeds]
        try:
            await self._finish(plays)
        except BaseException:
            self._abandon(plays)
            raise
        for play in plays:
            self._abandon([play])
            self._guard(play.match.close, f"{play.where}: match.close()")
        return [play.log for play in plays]

    async def _close_early(self, seats: tuple[int, ...], seed: int) -> None:
        """A match may be closed before its end; here before its first step."""
        play = self._start(seats, seed, drive=False)
        self._abandon([play])
        self._guard(play.match.close, f"{play.where}: match.close() before the end")

    def _start(self, seats: tuple[int, ...], seed: int, drive: bool = True) -> _Play:
        where = f"{self.spec.name}, match of seed {seed}"
        self._same_description()
        match = self._guard(lambda: self.mdp.reset(seats, seed), f"{where}: reset({seats})")
        if len(match.controllers) != len(seats):
            fault(where, f"reset() gave {len(match.controllers)} controllers, expected {len(seats)}")
        play = _Play(where=where, match=match, seed=seed, log=[[] for _ in seats])
        for index, tick in enumerate(match.ticks):
            if not inspect.iscoroutine(tick):
                fault(where, f"match.ticks[{index}] is {type(tick).__name__}, expected a coroutine")
        for tick in match.ticks:
            if self.mdp.external:
                play.outside.append(asyncio.ensure_future(tick))
            else:
                task = self.scheduler.spawn(tick, "a tick")
                play.tasks.append(task)
        for index, seat in enumerate(seats if drive else ()):
            player = _Player(self, play, index, seat, watch=len(seats) == 1 and not match.ticks)
            play.tasks.append(player.start())
        return play

    # -------------------------------------------------------------- running it

    async def _finish(self, plays: Sequence[_Play]) -> None:
        """Run until every player is through."""
        scheduler = self.scheduler
        end = time.monotonic() + self.deadline_s
        progress, advances = self.progress, 0
        while True:
            scheduler.run()
            self._raise_failures(plays)
            if not any(not task.done for play in plays for task in play.tasks if task in self.at):
                return
            if self.progress != progress:
                progress, advances = self.progress, 0
                end = time.monotonic() + self.deadline_s
            if self.mdp.external and (scheduler.outside or not scheduler.advance()):
                if not await scheduler.wait_outside(max(0.0, end - time.monotonic())):
                    self._raise_failures(plays)
                    self._raise_hang(plays, f"nothing happened for {self.deadline_s:g} s")
            elif not self.mdp.external:
                advances += 1
                if not scheduler.advance():
                    self._raise_hang(plays, "nobody is left who could wake it")
                if advances > ADVANCES:
                    self._raise_hang(plays, f"the game's clock went on {ADVANCES} times without it")

    def _raise_failures(self, plays: Sequence[_Play]) -> None:
        for task in self.scheduler.failed:
            error = task.error
            if isinstance(error, LamarckError):
                raise error
            what = self.at.get(task, f"{self.spec.name}: {task.name}")
            raise MDPError(f"{what} raised {type(error).__name__}: {error}") from error
        for play in plays:
            for future in play.outside:
                if future.done() and not future.cancelled() and future.exception() is not None:
                    error = future.exception()
                    raise MDPError(f"{play.where}: a tick raised {type(error).__name__}: {error}") from error

    def _raise_hang(self, plays: Sequence[_Play], why: str) -> None:
        stuck = [self.at[task] for play in plays for task in play.tasks if task in self.at and not task.done]
        fault("; ".join(stuck), f"it waits for ever, {why}")

    def _abandon(self, plays: Sequence[_Play]) -> None:
        """End whatever still runs of these matches."""
        for play in plays:
            for task in play.tasks:
                self.scheduler.cancel(task)
                self.at.pop(task, None)
            for future in play.outside:
                future.cancel()

    def _guard(self, call: Callable[[], Any], where: str) -> Any:
        """Call into the game; what it raises becomes an MDPError."""
        try:
            return call()
        except LamarckError:
            raise
        except Exception as error:
            raise MDPError(f"{where} raised {type(error).__name__}: {error}") from error

    def _compare(self, one: list[Any], two: list[Any], seats: tuple[int, ...], seed: int, other: str) -> None:
        if not self.deterministic:
            return
        for index, seat in enumerate(seats):
            where = f"{self.spec.name}, match of seed {seed}, seat {seat}"
            for step, (ours, theirs) in enumerate(zip(one[index], two[index], strict=False)):
                for (name, value), (_, again) in zip(ours, theirs, strict=False):
                    if value != again:
                        fault(f"{where}, step {step}", f"{name} differs in {other}")
            if len(one[index]) != len(two[index]):
                fault(where, f"it took {len(one[index]) - 1} steps, but {len(two[index]) - 1} in {other}")


class _Player:
    """Drives one controller with random actions and looks at everything that comes back."""

    def __init__(self, check: _Check, play: _Play, index: int, seat: int, watch: bool) -> None:
        self.check = check
        self.play = play
        self.controller: Controller = play.match.controllers[index]
        self.log = play.log[index]
        self.seat: SeatSpec = check.spec.seats[seat]
        self.where = f"{play.where}, seat {seat}"
        self.rng = stream(play.seed, "actions", seat)
        self.watch = watch  # nobody but this player can change what it sees
        self.task: Task | None = None

    def start(self) -> Task:
        self.task = self.check.scheduler.spawn(self._drive(), self.where)
        self.check.at[self.task] = self.where
        return self.task

    async def _drive(self) -> None:
        for step in range(self.check.max_steps):
            if await self._step(f"{self.where}, step {step}"):
                await self._end(f"{self.where}, after the end (step {step})")
                return
        fault(
            self.where, f"it neither terminated nor truncated within max_steps={self.check.max_steps} steps"
        )

    async def _step(self, where: str) -> bool:
        """One action; True when it was the last."""
        state = self._see(where)
        rules.check_state(state, self.seat, where)
        seen = _digests(state, self.seat)
        await _Turn()
        if self.watch and _digests(self.controller.state(), self.seat) != seen:
            fault(where, "state() changed without act(); only an action or a tick may change what is seen")
        action = None if not state.decision else state.script or self._choose(state)
        outcome = await self._act(action, f"{where}: act({action})")
        rules.check_outcome(outcome, where)
        self._say(f"{where}: reward()")
        reward = self.controller.reward()
        rules.check_reward(reward, self.seat, where)
        self.check.env_steps += 1
        self.check.progress += 1
        self.log.append((*seen, ("the reward", tuple(map(float, reward))), ("the outcome", tuple(outcome))))
        return outcome.terminated or outcome.truncated

    async def _end(self, where: str) -> None:
        state = self._see(where)
        rules.check_inputs(state, self.seat, where)
        self._say(f"{where}: result()")
        result = self.controller.result()
        rules.check_result(result, self.check.spec, where)
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
            low, high = np.float32(head.low), np.float32(head.high)
            drawn = self.rng.uniform(low, high).astype(np.float32)
            return high + drawn - low if self.rng.random() < OUTSIDE else drawn
        return int(self.rng.integers(head.n) if mask is None else self.rng.choice(np.flatnonzero(mask)))

    def _say(self, what: str) -> None:
        assert self.task is not None
        self.check.at[self.task] = what


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
