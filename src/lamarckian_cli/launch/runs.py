"""`lamarck runs`: what run folders there are, how they stand, and what they reached.

Each folder costs a few small files; configurations and checkpoints are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from lamarckian_cli.errors import RunError
from lamarckian_cli.launch.runfolder import (
    CHECKPOINTS,
    CONFIG,
    DAMAGED,
    METRICS,
    STATE,
    SUMMARY,
    RunFolder,
    read_json,
)
from lamarckian_cli.metrics import last_row, progress_of

DEPTH = 3  # a sweep's jobs are in multirun/DAY/JOB


def list_runs(root: Path = Path("runs")) -> list[dict[str, Any]]:
    """Every run below `root`, and below the folder `multirun` beside a `root` called runs; newest first.

    Each has `name`, `path`, `state`, `env_steps`, `best_return`, `last_return`, `seconds`,
    `algo`, `env` and `when` (the local time of its start), None where it is not known yet;
    `reason` is added where a run failed or its folder is damaged. An evolution has `evo`, `problem`,
    `evaluations`, `best`, `hypervolume` and `igd` in place of what is a training's. Raises
    RunError where a `root` other than runs is not there.
    """
    roots = [root, root.parent / "multirun"] if root.name == "runs" else [root]
    if not root.is_dir() and root.name != "runs":
        raise RunError(f"there is no folder {str(root)!r}; give one that holds run folders, such as runs")
    # By the moment of its start; a damaged folder may not know its own.
    found = [(_started(path), path, _outermost(path, roots)) for path in _run_folders(roots)]
    found.sort(key=lambda entry: (entry[0], str(entry[1])), reverse=True)
    return [describe_run(path, name=str(path.relative_to(top)), started=when) for when, path, top in found]


def describe_run(path: Path, *, name: str, started: float) -> dict[str, Any]:
    """One entry of the list; never raises for a damaged folder."""
    state, reason = RunFolder(path).state_and_reason()
    about = read_json(path / STATE) or {}
    if not (path / CONFIG).is_file():
        state, reason = DAMAGED, f"{CONFIG} is missing"
    last = last_row(path / METRICS)
    summary = (read_json(path / SUMMARY) or {}) if state != "running" else {}
    source = summary if _at_least(summary, last) else last
    entry = {
        "name": name,
        "path": str(path),
        "state": state,
        **(_of_evolution(about, source) if "evo" in about else _of_training(about, source)),
        "seconds": source.get("seconds"),
        "when": datetime.fromtimestamp(started).isoformat(sep=" ", timespec="seconds"),
    }
    return {**entry, "reason": reason} if reason else entry


def _of_training(about: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
    return {
        "env_steps": source.get("env_steps"),
        "best_return": source.get("best_return"),
        "last_return": _last_return(source),
        "algo": about.get("algo"),
        "env": about.get("env"),
    }


def _of_evolution(about: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
    return {
        "evo": about.get("evo"),
        "problem": about.get("problem"),
        **{name: source.get(name) for name in ("evaluations", "best", "hypervolume", "igd")},
    }


def _last_return(source: dict[str, Any]) -> Any:
    """Of a summary; or of a row, where the first policy's is the one that counts."""
    for name, value in source.items():
        if name in ("last_return", "return") or name.endswith("/return"):
            return value
    return None


def _at_least(summary: dict[str, Any], row: dict[str, Any]) -> bool:
    """Whether the summary is as new as the last row; a resumed run that was killed has an old one."""
    return bool(summary) and progress_of(summary) >= progress_of(row)


def _run_folders(roots: list[Path]) -> Iterator[Path]:
    for root in roots:
        if root.is_dir():
            yield from _walk(root, DEPTH)


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    try:
        inside = [place for place in folder.iterdir() if place.is_dir() and not place.name.startswith(".")]
    except OSError:
        return  # not ours to read
    for place in inside:
        if any((place / mark).exists() for mark in (CONFIG, STATE, CHECKPOINTS)):
            yield place
        elif depth > 1:
            yield from _walk(place, depth - 1)


def _outermost(path: Path, roots: list[Path]) -> Path:
    return next(root for root in roots if path.is_relative_to(root))


def _started(path: Path) -> float:
    """Seconds since the epoch."""
    about = read_json(path / STATE) or {}
    started = about.get("started")
    if isinstance(started, int | float):
        return float(started)
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
