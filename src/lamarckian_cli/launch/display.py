"""What a person sees of a training: a live table, and at the end what to type next.

The table is drawn on a terminal alone; elsewhere nothing is written but the last lines.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

REFRESHES_PER_S = 2.0  # each costs some milliseconds of the process that may be training itself


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyProgress:
    """How one policy plays, over recent matches; None before the first has ended, or without `win`.

    With self-play it also has a rating.
    """

    name: str
    return_mean: float | None = None
    win_rate: float | None = None
    rating: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How a training stands."""

    env_steps: int = 0
    seconds: float = 0.0  # since the first update
    env_steps_per_s: float = 0.0
    staleness: float | None = None  # mean of the last batch
    version: int = 0
    policies: tuple[PolicyProgress, ...] = ()


class Display:
    """A live table between `with` and its end; `finish` says where the run is afterwards.

    With `enabled` False it writes nothing at all, which is what `--json` asks for.
    """

    def __init__(
        self,
        total_env_steps: int | None,
        total_seconds: float | None,
        enabled: bool = True,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total_env_steps = total_env_steps
        self.total_seconds = total_seconds
        self.enabled = enabled
        self.progress: Progress | None = None
        self._console = console or Console(highlight=False)
        self._notes = Console(stderr=True, highlight=False)
        self._clock = clock
        self._began = clock()
        self._phase = "starting"
        self._live: Live | None = None

    def __enter__(self) -> Display:
        if self.enabled and self._console.is_terminal:
            # Transient: the terminal is as it was when training ends, however it ends.
            self._live = Live(self, console=self._console, refresh_per_second=REFRESHES_PER_S, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def phase(self, what: str) -> None:
        """Say what is going on before the first update, such as `starting Ray`."""
        self._phase = what

    def note(self, lines: list[str]) -> None:
        """Tell what happened to the machines, on standard error, once: the list is emptied."""
        for line in lines:
            self._notes.print(f"lamarck: {line}", markup=False, soft_wrap=True)
        lines.clear()

    def update(self, progress: Progress) -> None:
        """Take in how training stands; drawn at the next refresh."""
        self.progress = progress

    def finish(self, run: Path, interrupted: bool = False, reason: str = "") -> None:
        """After the end: what was reached and why it is the end, where the run is, what to type next."""
        if not self.enabled:
            return
        if self.progress is not None:
            self._say(closing_line(self.progress))
        if reason:
            self._say(f"it ended at {reason}")
        self._say(f"{'interrupted: ' if interrupted else ''}the run is in {shown_path(run)}")
        for command in next_commands(run, interrupted=interrupted):
            self._say(f"  {command}")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._picture()

    # -------------------------------------------------------------- parts

    def _say(self, line: str) -> None:
        # Not wrapped, and no markup: a command must be there as it is to be typed.
        with contextlib.suppress(OSError):  # whoever read has gone; the run is as good without
            self._console.print(line, markup=False, soft_wrap=True)

    def _picture(self) -> RenderableType:
        progress = self.progress
        if progress is None:
            return Text(f"{self._phase} … {duration_text(self._clock() - self._began)}")
        return Group(_policies(progress.policies), self._facts(progress))

    def _facts(self, progress: Progress) -> Table:
        steps = f"{progress.env_steps:,}"
        if self.total_env_steps:
            share = min(1.0, progress.env_steps / self.total_env_steps)
            steps += f" of {self.total_env_steps:,} ({share:.0%})"
        left = seconds_left(progress, self.total_env_steps, self.total_seconds)
        table = Table.grid(padding=(0, 2))
        for name, value in (
            ("env steps", steps),
            ("env steps/s", f"{progress.env_steps_per_s:,.0f}"),
            ("staleness", _number(progress.staleness)),
            ("version", f"{progress.version:,}"),
            ("time left", "-" if left is None else duration_text(left)),
        ):
            table.add_row(Text(f" {name}", style="dim"), Text(value))
        return table


def seconds_left(
    progress: Progress, total_env_steps: int | None, total_seconds: float | None
) -> float | None:
    """Seconds until the budget is spent, at the present pace; None where that cannot be told."""
    ends = []
    if total_seconds is not None:
        ends.append(total_seconds - progress.seconds)
    if total_env_steps is not None and progress.env_steps_per_s > 0:
        ends.append((total_env_steps - progress.env_steps) / progress.env_steps_per_s)
    return max(0.0, min(ends)) if ends else None


def closing_line(progress: Progress) -> str:
    """What a training came to, in one line."""
    parts = [
        f"{progress.env_steps:,} env steps in {duration_text(progress.seconds)}",
        f"{progress.env_steps_per_s:,.0f} env steps/s",
    ]
    for policy in progress.policies:
        who = f"{policy.name}: " if len(progress.policies) > 1 else ""
        if policy.return_mean is not None:
            parts.append(f"{who}return {policy.return_mean:.2f}")
        if policy.win_rate is not None:
            parts.append(f"{who}win rate {policy.win_rate:.0%}")
    return ", ".join(parts)


def next_commands(run: Path, *, interrupted: bool = False, argv: Sequence[str] | None = None) -> list[str]:
    """What to type next, ready to paste."""
    program, place = program_text(argv), shown_path(run)
    if interrupted:
        return [f"{program} train {shlex.quote(f'resume={place}')}", f"{program} eval {shlex.quote(place)}"]
    return [f"{program} {verb} {shlex.quote(place)}" for verb in ("eval", "play")]


def program_text(argv: Sequence[str] | None = None) -> str:
    """How the user started this program, quoted for a shell: `.venv/bin/lamarck`, or `lamarck`.

    `argv` is the interpreter's own command line, which Hydra leaves alone (it writes to
    sys.argv): interpreter, script, and so on.
    """
    words = list(sys.orig_argv if argv is None else argv)
    for at, word in enumerate(words[1:], start=1):
        if word == "-m" and words[at + 1 : at + 2] == ["lamarckian_cli"]:
            return shlex.join([*words[:at], "-m", "lamarckian_cli"])
        if Path(word).name == "lamarck":
            return shlex.quote(_as_typed(word))
        if not word.startswith("-"):
            break
    return "lamarck"


def shown_path(path: Path) -> str:
    """`path` as one would type it from here: relative where it lies below the current folder."""
    absolute = Path(os.path.abspath(path))
    here = Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(absolute)


def duration_text(seconds: float) -> str:
    """`42 s`, `3:05 min`, `2:03:04 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d} h"


def _as_typed(script: str) -> str:
    """A shell hands the full path of what it found on PATH; `lamarck` was typed then."""
    on_path = shutil.which("lamarck")
    if os.path.isabs(script) and on_path is not None and os.path.exists(script):
        return "lamarck" if os.path.samefile(script, on_path) else script
    return script


def _policies(policies: Sequence[PolicyProgress]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("policy")
    table.add_column("return", justify="right")
    table.add_column("win rate", justify="right")
    rated = any(policy.rating is not None for policy in policies)
    if rated:
        table.add_column("rating", justify="right")
    for policy in policies:
        rate = "-" if policy.win_rate is None else f"{policy.win_rate:.0%}"
        rating = [_number(policy.rating)] if rated else []
        table.add_row(Text(policy.name), _number(policy.return_mean), rate, *rating)
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"
