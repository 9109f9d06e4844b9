"""Standard output that is closed, full or not read: one message or none, a status, no traceback."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from lamarckian_cli.cli.main import app
from lamarckian_cli.launch.runfolder import RunFolder

LAMARCK = (sys.executable, "-m", "lamarckian_cli.cli")
CLOSED = f"cannot write to standard output: {os.strerror(errno.EBADF)}"
FULL = f"cannot write to standard output: {os.strerror(errno.ENOSPC)}"
THAT_PRINT = [
    ("--version",),
    ("--help",),
    ("doctor",),
    ("list", "--json"),
    ("runs",),
    ("train", "--help"),
    ("train", "--cfg", "job"),
    ("train", "-sc", "install=bash"),
    ("cluster", "plan", "cluster=10cores", "--json"),
    ("cluster", "status"),
]


def commands(group: object, *before: str) -> Iterator[tuple[str, ...]]:
    """Every command that there is."""
    for name, command in getattr(group, "commands", {}).items():
        if getattr(command, "commands", None):
            yield from commands(command, *before, name)
        else:
            yield (*before, name)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LAMARCK_TRACEBACK", raising=False)
    return tmp_path


def shell(redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command with its streams redirected as a shell does it."""
    line = f'exec "$@" {redirection}'
    return subprocess.run(
        ["sh", "-c", line, "sh", *LAMARCK, *arguments], capture_output=True, text=True, timeout=120
    )


def unread(*arguments: str) -> tuple[int, str]:
    """Status and errors of the command where nobody reads what it prints."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*LAMARCK, *arguments], stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120
        )
    finally:
        os.close(writing)
    return done.returncode, done.stderr


@pytest.mark.parametrize("command", list(commands(typer.main.get_command(app))), ids=" ".join)
def test_no_command_begins_without_an_output(home: Path, command: tuple[str, ...]) -> None:
    done = shell(">&-", *command)
    assert done.returncode == 1
    assert done.stderr == f"lamarck: {CLOSED}; send it to a file, to another program, or to /dev/null\n"
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("arguments", THAT_PRINT, ids=" ".join)
def test_an_output_that_is_full_is_one_message(home: Path, arguments: tuple[str, ...]) -> None:
    done = shell(">/dev/full", *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith(f"lamarck: {FULL}; send it ")


@pytest.mark.parametrize("arguments", THAT_PRINT, ids=" ".join)
def test_an_output_that_nobody_reads_is_no_message(home: Path, arguments: tuple[str, ...]) -> None:
    assert unread(*arguments) == (128 + 13, "")  # as a shell shows what SIGPIPE ended


def test_an_output_for_reading_alone_is_one_message(home: Path) -> None:
    done = shell("1</dev/null", "--version")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert CLOSED in done.stderr


def test_what_is_wrong_with_the_command_is_told_whatever_the_output_is(home: Path) -> None:
    for redirection in (">/dev/full", "1</dev/null"):
        done = shell(redirection, "trian")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "no such command 'trian'" in done.stderr
    status, said = unread("cluster", "plan", "--bandwidth", "0")
    assert (status, "--bandwidth" in said) == (2, True)


def test_errors_that_cannot_be_told_leave_the_status(home: Path) -> None:
    for redirection in ("2>&-", "2>/dev/full", "2>&- <&-"):
        done = shell(redirection, "trian")
        assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_closed_input_and_errors_are_no_obstacle(home: Path) -> None:
    done = shell("<&- 2>&-", "list", "algo", "--json")
    assert done.returncode == 0
    assert "ppo" in {option["name"] for option in json.loads(done.stdout)["algo"]}


@pytest.mark.slow
def test_a_training_whose_output_nobody_reads_is_whole(home: Path) -> None:
    keys = ("env=cartpole", "cluster=inproc", "budget.env_steps=2000", "run.dir=mine", "model.policy=[8]")
    assert unread("train", *keys) == (128 + 13, "")
    summary = json.loads((home / "mine" / "summary.json").read_text())
    assert summary["env_steps"] >= 2000
    assert RunFolder.open(home / "mine").state == "finished"
