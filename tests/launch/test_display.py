"""The live table, the silence elsewhere, and commands that can be pasted."""

from __future__ import annotations

import io
import shlex
import sys
from pathlib import Path

import pytest
from rich.console import Console

from lamarckian_cli.launch.display import (
    Display,
    PolicyProgress,
    Progress,
    closing_line,
    duration_text,
    next_commands,
    program_text,
    seconds_left,
    shown_path,
)

MAIN = PolicyProgress(name="main", return_mean=12.5, win_rate=0.91)
PROGRESS = Progress(
    env_steps=500_000, seconds=20.0, env_steps_per_s=25_000.0, staleness=1.25, version=61, policies=(MAIN,)
)


def console(terminal: bool, width: int = 80) -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, force_terminal=terminal, width=width, highlight=False), written


def picture(display: Display, width: int = 80) -> str:
    plain, written = console(terminal=False, width=width)
    plain.print(display)
    return written.getvalue()


@pytest.mark.parametrize("width", [80, 50])
def test_the_table_shows_everything_that_is_promised(width: int) -> None:
    display = Display(2_000_000, None, enabled=False)
    display.update(PROGRESS)
    lines = {tuple(line.split()) for line in picture(display, width).splitlines()}
    assert ("policy", "return", "win", "rate") in lines
    assert ("main", "12.50", "91%") in lines
    assert ("env", "steps", "500,000", "of", "2,000,000", "(25%)") in lines
    assert ("env", "steps/s", "25,000") in lines
    assert ("staleness", "1.25") in lines
    assert ("version", "61") in lines
    assert ("time", "left", "1:00", "min") in lines


def test_each_policy_has_its_row_and_unknown_numbers_a_dash() -> None:
    display = Display(None, None, enabled=False)
    display.update(Progress(policies=(MAIN, PolicyProgress(name="[red]second"))))
    text = picture(display)
    assert "[red]second" in text
    assert ("[red]second", "-", "-") in {tuple(line.split()) for line in text.splitlines()}
    assert ("time", "left", "-") in {tuple(line.split()) for line in text.splitlines()}


def test_before_the_first_update_it_says_what_is_going_on() -> None:
    times = iter([10.0, 13.0])
    display = Display(None, None, clock=lambda: next(times))
    display.phase("starting Ray")
    assert picture(display) == "starting Ray … 3 s\n"


def test_nothing_but_the_last_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    out, written = console(terminal=False, width=20)
    with Display(10, None, console=out) as display:
        display.update(PROGRESS)
        assert written.getvalue() == ""
    run = tmp_path / "a very long name that would be wrapped [bold]"
    display.finish(run)
    lines = written.getvalue().splitlines()
    assert "\x1b" not in written.getvalue()
    assert lines[0].startswith("500,000 env steps in 20 s")
    assert lines[1] == f"the run is in {run}"
    assert shlex.split(lines[2])[1:] == ["eval", str(run)]


def test_nothing_at_all_with_json() -> None:
    out, written = console(terminal=True)
    with Display(10, None, enabled=False, console=out) as display:
        display.update(PROGRESS)
    display.finish(Path("runs/a"))
    assert written.getvalue() == ""


def test_ctrl_c_leaves_the_terminal_as_it_was() -> None:
    out, written = console(terminal=True)
    stdout = sys.stdout

    def interrupted() -> None:
        with Display(10, None, console=out) as display:
            display.update(PROGRESS)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    text = written.getvalue()
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l") >= 0  # the cursor is shown again
    assert text.count("\n") == text.count("\x1b[1A")  # every line drawn is taken back
    assert sys.stdout is stdout


def test_time_left_is_that_of_the_end_that_comes_first() -> None:
    assert seconds_left(PROGRESS, 1_000_000, None) == 20.0
    assert seconds_left(PROGRESS, 1_000_000, 25.0) == 5.0
    assert seconds_left(PROGRESS, None, 10.0) == 0.0
    assert seconds_left(Progress(), 1_000_000, None) is None


def test_the_closing_line_names_policies_only_if_there_are_several() -> None:
    assert closing_line(PROGRESS).endswith("25,000 env steps/s, return 12.50, win rate 91%")
    two = Progress(policies=(MAIN, PolicyProgress(name="second", return_mean=1.0)))
    assert "main: win rate 91%, second: return 1.00" in closing_line(two)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["/x/python", ".venv/bin/lamarck", "train"], ".venv/bin/lamarck"),
        (["/x/python", "-I", "my venv/bin/lamarck"], "'my venv/bin/lamarck'"),
        (["python3", "-m", "lamarckian_cli", "train"], "python3 -m lamarckian_cli"),
        (["python", "-m", "pytest", "lamarck"], "lamarck"),
        (["python", "worker.py", "lamarck"], "lamarck"),
        (["python"], "lamarck"),
    ],
)
def test_the_program_is_named_as_it_was_typed(argv: list[str], expected: str) -> None:
    assert program_text(argv) == expected


def test_what_was_found_on_path_is_named_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "lamarck"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program_text(["python", str(script)]) == "lamarck"
    monkeypatch.setenv("PATH", "/nowhere")
    assert program_text(["python", str(script)]) == str(script)


def test_next_commands_are_quoted_for_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    argv = ["python", ".venv/bin/lamarck"]
    run = tmp_path / "runs" / "it's a run"
    place = shlex.quote("runs/it's a run")
    assert next_commands(run, argv=argv) == [f".venv/bin/lamarck {v} {place}" for v in ("eval", "play")]
    resume = next_commands(run, interrupted=True, argv=argv)[0]
    assert shlex.split(resume) == [".venv/bin/lamarck", "train", "resume=runs/it's a run"]


def test_paths_are_shown_as_one_would_type_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shown_path(Path("runs/a")) == "runs/a"
    assert shown_path(tmp_path / "runs" / "a") == "runs/a"
    assert shown_path(Path("/elsewhere/a")) == "/elsewhere/a"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.7, "1:00 min"), (185, "3:05 min"), (7384, "2:03:04 h")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
