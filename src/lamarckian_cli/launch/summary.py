"""`summary.json`: what a run came to, on what it ran, and the command that repeats it."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from lamarckian_cli.metrics import finite

PACKAGES = ("torch", "ray", "numpy", "gymnasium", "pyzmq", "hydra-core", "moocore", "cma", "lamarckian-cli")
GIT_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Totals:
    """The counters at a run's end."""

    env_steps: int
    frames: int
    seconds: float  # of training, over all sessions of the run
    env_steps_per_s: float
    best_return: float | None  # the best mean over a full window; None before there was one
    last_return: float | None
    staleness_mean: float
    staleness_max: float
    versions: int  # optimizer steps
    seed: int
    command: Sequence[str]  # as typed


def summarize(totals: Totals, *, folder: Path | None = None) -> dict[str, Any]:
    """The document of `summary.json`, without NaN or infinities.

    `git` is there if `folder` (the current one if None) belongs to a repository: that is
    where a user's own games and configuration live.
    """
    summary: dict[str, Any] = {
        "env_steps": totals.env_steps,
        "frames": totals.frames,
        "seconds": round(totals.seconds, 3),
        "env_steps_per_s": totals.env_steps_per_s,
        "best_return": totals.best_return,
        "last_return": totals.last_return,
        "staleness_mean": totals.staleness_mean,
        "staleness_max": totals.staleness_max,
        "versions": totals.versions,
        "seed": totals.seed,
    }
    git = git_state(folder or Path.cwd())
    if git is not None:
        summary["git"] = git
    summary["packages"] = package_versions()
    summary["command"] = shlex.join(totals.command)
    result: dict[str, Any] = finite(summary)
    return result


def package_versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that a run's numbers depend on; None if not installed."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def git_state(folder: Path) -> dict[str, Any] | None:
    """The commit that `folder` is at, and whether tracked files differ from it; None without git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _git(folder: Path, *words: str) -> str | None:
    try:
        ended = subprocess.run(
            ["git", *words],
            cwd=folder,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},  # a look must not get in anyone's way
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return ended.stdout.strip()
