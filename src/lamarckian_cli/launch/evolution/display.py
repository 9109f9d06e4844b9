"""What a person sees of an evolution: a live table, and at the end what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from lamarckian_cli.launch.display import Display, duration_text, program_text, shown_path
from lamarckian_cli.launch.evolution.quality import Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How an evolution stands."""

    generation: int
    evaluations: int
    evaluations_per_s: float
    seconds: float
    failed: int
    numbers: Numbers
    workers: int
    busy: int
    staleness: float  # mean, in generations


class EvolutionDisplay(Display):
    """The table of `lamarck evolve`; see `Display` for when it is drawn."""

    def __init__(
        self,
        total_evaluations: int | None,
        total_seconds: float | None,
        enabled: bool = True,
        *,
        console: Console | None = None,
    ) -> None:
        super().__init__(None, total_seconds, enabled, console=console)
        self.total_evaluations = total_evaluations
        self.standing: Standing | None = None

    def show(self, standing: Standing) -> None:
        """Take in how the evolution stands; drawn at the next refresh."""
        self.standing = standing

    def end(self, run: Path, interrupted: bool = False, reason: str = "", failure: str = "") -> None:
        """After the end: what was reached and why it is the end, where the run is, what to type next."""
        if not self.enabled:
            return
        if self.standing is not None:
            self._say(closing_line(self.standing))
            if self.standing.failed:
                self._say(f"{self.standing.failed:,} evaluations failed; the first: {failure}")
        if reason:
            self._say(f"it ended at {reason}")
        self._say(f"{'interrupted: ' if interrupted else ''}the run is in {shown_path(run)}")
        for command in commands_after(run, interrupted=interrupted):
            self._say(f"  {command}")

    def _picture(self) -> RenderableType:
        standing = self.standing
        if standing is None:
            return super()._picture()
        numbers = standing.numbers
        evaluations = f"{standing.evaluations:,}"
        if self.total_evaluations:
            share = min(1.0, standing.evaluations / self.total_evaluations)
            evaluations += f" of {self.total_evaluations:,} ({share:.0%})"
        rows = [
            ("generation", f"{standing.generation:,}"),
            ("evaluations", evaluations),
            ("evaluations/s", f"{standing.evaluations_per_s:,.0f}"),
            ("best", _number(numbers.best)),
            ("hypervolume", _number(numbers.hypervolume)),
            ("IGD", _number(numbers.igd)),
            ("front", f"{numbers.front_size:,}" if numbers.hypervolume is not None else ""),
            ("workers busy", f"{standing.busy} of {standing.workers}"),
            ("staleness", f"{standing.staleness:.2f} generations"),
            ("failed", f"{standing.failed:,}" if standing.failed else ""),
            ("time", duration_text(standing.seconds)),
        ]
        table = Table.grid(padding=(0, 2))
        for name, value in rows:
            if value:
                table.add_row(Text(f" {name}", style="dim"), Text(value))
        return table


def closing_line(standing: Standing) -> str:
    """What an evolution came to, in one line."""
    numbers = standing.numbers
    parts = [
        f"{standing.evaluations:,} evaluations in {_duration(standing.seconds)}",
        f"{standing.generation:,} generations",
    ]
    for name, value in (("best", numbers.best), ("hypervolume", numbers.hypervolume), ("IGD", numbers.igd)):
        if value is not None:
            parts.append(f"{name} {_number(value)}")
    if numbers.best is None:
        parts.append(f"{numbers.front_size:,} in the front")
    return ", ".join(parts)


def commands_after(run: Path, *, interrupted: bool = False, argv: Sequence[str] | None = None) -> list[str]:
    """What to type next, ready to paste."""
    program, place = program_text(argv), shown_path(run)
    front = f"{program} front {shlex.quote(place)}"
    return [f"{program} evolve {shlex.quote(f'resume={place}')}", front] if interrupted else [front]


def _duration(seconds: float) -> str:
    """With a decimal where it is short, for many evolutions are."""
    return f"{seconds:.1f} s" if seconds < 10 else duration_text(seconds)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}"
