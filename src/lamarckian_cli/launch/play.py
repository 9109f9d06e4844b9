"""`lamarck play`: one match of a run, drawn in the terminal or recorded."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from lamarckian_cli.errors import MDPError, require
from lamarckian_cli.launch.evaluate import Setup, play_out, prepare
from lamarckian_cli.launch.video import check_video, record
from lamarckian_cli.mdp.interface import MDP, Controller, Match
from lamarckian_cli.mdp.picture import picture_text
from lamarckian_cli.records import Action, MDPSpec, Outcome, State

FRAME_RATE = 60  # frames a second of a game, where nothing else is known
FPS_LOW, FPS_HIGH = 10.0, 30.0

Look = Callable[[Any], None]  # called with the match at its start and after each step


def play(
    run: Path | str,
    *,
    video: Path | None = None,
    seed: int = 0,
    fps: float | None = None,
    checkpoint: Path | str = "latest",
    policy: str | None = None,
    console: Console | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Play match 0 of `lamarck eval`'s with this seed, and show it; what it came to.

    With `video` it is recorded to that file (.mp4 or .gif, replaced if it is there), else
    drawn in the terminal at `fps` steps a second, where its last picture stays; where there is
    no terminal, only the result is told. Raises MDPError where the game cannot be drawn or the
    match failed, MissingPackage where a video cannot be made.
    """
    require(fps is None or 0 < fps < math.inf, "--fps", fps, "it must be a number above 0, such as 30")
    out = console or Console(highlight=False)
    if video is not None:
        check_video(video)
    drawn = video is not None or out.is_terminal
    setup = prepare(run, seed=seed, checkpoint=checkpoint, policy=policy, render=drawn)
    pace = fps or min(FPS_HIGH, max(FPS_LOW, FRAME_RATE / setup.spec.frames_per_step))
    who = _who(setup)
    with _shown(setup.spec.name, who, video, pace, out, sleep) as look:
        watched = Watched(setup.mdp, look)
        rollout = setup.rollout(watched, matches=1)
        results = play_out(rollout, setup.seat)
        if not results:
            raise MDPError(f"the match failed: {rollout.first_failure}")
    result = results[0]
    if who and (video is not None or not out.is_terminal):
        out.print(who, markup=False, soft_wrap=True)
    out.print(", ".join(f"{name} {value:g}" for name, value in result.items()), markup=False, soft_wrap=True)
    if video is not None:
        out.print(f"recorded {watched.steps + 1} frames to {video}", markup=False, soft_wrap=True)
    return {
        "seed": seed,
        "policy": setup.policy,
        "version": setup.version,
        "steps": watched.steps,
        "result": result,
        "video": None if video is None else str(video),
    }


@contextmanager
def _shown(
    game: str, who: str, video: Path | None, fps: float, console: Console, sleep: Callable[[float], None]
) -> Iterator[Look]:
    """Where the match is looked at: a video, the terminal, or nowhere."""
    if video is not None:
        with record(video, fps) as append, _busy(console, f"recording to {video} …"):
            yield lambda match: append(_frame(match, game))
    elif console.is_terminal:
        # The alternate screen: whatever happens, the terminal is as it was afterwards.
        with Live(console=console, screen=True, auto_refresh=False) as live:
            pacing = _Pacing(fps, sleep)
            last = Text()

            def look(match: Any) -> None:
                nonlocal last
                lines = f"{who}\n{_text(match, game)}" if who else _text(match, game)
                last = Text.from_ansi(lines, no_wrap=True, overflow="crop", end="")
                live.update(last, refresh=True)
                pacing.wait()

            yield look
        console.print(last)
    else:
        yield lambda match: None


def _who(setup: Setup) -> str:
    """Which seat the policy plays, where there are several."""
    if len(setup.spec.seats) == 1:
        return ""
    name = setup.spec.seats[setup.seat].name
    return f"{setup.policy} plays seat {setup.seat}" + (f", {name}" if name != "player" else "")


def _busy(console: Console, what: str) -> AbstractContextManager[Any]:
    """A spinner on a terminal, nothing elsewhere."""
    return console.status(what) if console.is_terminal else nullcontext()


def _frame(match: Any, game: str) -> Any:
    if not hasattr(match, "frame"):
        raise MDPError(
            f"{game} draws no picture: its matches have no frame(); "
            "leave out --video, or give its match a frame() that returns [H, W, 3] uint8"
        )
    return match.frame()


def _text(match: Any, game: str) -> str:
    if hasattr(match, "text"):
        return str(match.text())
    if hasattr(match, "frame"):
        return picture_text(match.frame())
    raise MDPError(
        f"{game} cannot be drawn: its matches have neither text() nor frame(); give its match one of them "
        "(`lamarck eval` needs neither)"
    )


class _Pacing:
    """Waits so that calls come `fps` times a second; who is late does not catch up."""

    def __init__(self, fps: float, sleep: Callable[[float], None]) -> None:
        self._period_s = 1.0 / fps
        self._sleep = sleep
        self._next: float | None = None

    def wait(self) -> None:
        now = time.monotonic()
        due = now if self._next is None else self._next
        if due > now:
            self._sleep(due - now)
        self._next = max(now, due) + self._period_s


# ------------------------------------------------------------------ looking on


class Watched:
    """An MDP whose matches are looked at: once at their start, and after each act of their first player."""

    def __init__(self, mdp: MDP, look: Look) -> None:
        self.mdp = mdp
        self.external = mdp.external
        self.look = look
        self.steps = 0

    def describe(self) -> MDPSpec:
        return self.mdp.describe()

    def reset(self, seats: Sequence[int], seed: int) -> Match:
        match = self.mdp.reset(seats, seed)
        self.look(match)
        return _WatchedMatch(match, self)

    def close(self) -> None:
        self.mdp.close()


class _WatchedMatch:
    def __init__(self, match: Match, owner: Watched) -> None:
        self._match = match
        first, *others = match.controllers
        self.controllers: Sequence[Controller] = [_WatchedController(first, match, owner), *others]
        self.ticks: Sequence[Coroutine[Any, Any, None]] = match.ticks

    def close(self) -> None:
        self._match.close()


class _WatchedController:
    def __init__(self, controller: Controller, match: Match, owner: Watched) -> None:
        self._controller, self._match, self._owner = controller, match, owner

    def state(self) -> State:
        return self._controller.state()

    async def act(self, action: Action | None) -> Outcome:
        outcome = await self._controller.act(action)
        self._owner.steps += 1
        self._owner.look(self._match)
        return outcome

    def reward(self) -> Sequence[float]:
        return self._controller.reward()

    def result(self) -> dict[str, float]:
        return self._controller.result()
