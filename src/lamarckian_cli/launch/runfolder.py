"""A run folder: everything that a run leaves, and the one place that knows the names in it.

    config.yaml       the composed configuration, resolved
    command.txt       the exact command, one line for each time the run was started
    state.json        running, finished, interrupted or failed, with the reason; where its code was
    lock              who writes here; held as long as that process lives
    metrics.jsonl     one JSON object a line
    tensorboard/      the same numbers as events
    lineage.jsonl     of an evolution: every individual
    checkpoints/      000000500000.ckpt (by env steps), best.ckpt
    summary.json      at the end

A run is written by one process and may be read by any.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lamarckian_cli.config.folders import user_code
from lamarckian_cli.errors import RunError
from lamarckian_cli.launch import checkpoint
from lamarckian_cli.launch.runlock import LOCK, RunLock, writer_is_alive
from lamarckian_cli.metrics import EventsFile, MetricsFile, Row, finite, progress_of, read_rows

CONFIG, COMMAND, STATE, SUMMARY = "config.yaml", "command.txt", "state.json", "summary.json"
METRICS, EVENTS, CHECKPOINTS = "metrics.jsonl", "tensorboard", "checkpoints"
BEST = f"best{checkpoint.SUFFIX}"
STATES = ("running", "finished", "interrupted", "failed")
KILLED, DAMAGED = "killed", "damaged"  # what a reader may find besides
RUN_ROOTS = (Path("runs"), Path("multirun"))


class RunFolder:
    """A run folder. `create`, and `open` with `lock`, make this process its writer."""

    def __init__(self, path: Path, *, keep_checkpoints: int = 3, lock: RunLock | None = None) -> None:
        self.path = path
        self.keep_checkpoints = keep_checkpoints  # so many of the newest stay
        self._lock = lock
        self._metrics = MetricsFile(path / METRICS)
        self._events = EventsFile(path / EVENTS)
        self._best_score: float | None = None
        self._best_known = False
        self._made = False  # by us, and not by the user

    @classmethod
    def create(
        cls, path: Path, config: Mapping[str, Any], command: Sequence[str], *, keep_checkpoints: int = 3
    ) -> RunFolder:
        """A new run folder, in state running; raises RunError where it exists or cannot be written."""
        from omegaconf import OmegaConf

        path = Path(path)
        try:
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise RunError(
                    f"run.dir is {str(path)!r}, which exists and is not empty; give another run.dir, "
                    f"or continue that run with resume={shlex.quote(str(path))}"
                )
            made = not path.exists()
            (path / CHECKPOINTS).mkdir(parents=True)
            folder = cls(path, keep_checkpoints=keep_checkpoints, lock=RunLock(path))
            folder._made = made
        except OSError as error:
            raise RunError(
                f"run.dir is {str(path)!r}, which cannot be written ({error.strerror or error}); "
                "give another run.dir"
            ) from error
        try:
            _write_text(path / COMMAND, shlex.join(command) + "\n")
            _write_json(path / STATE, {"started": time.time(), **told_by(config), **_code_now()})
            folder.set_state("running")
            # It comes last: a folder without it is no run folder.
            _write_text(path / CONFIG, OmegaConf.to_yaml(OmegaConf.create(dict(config))))
        except BaseException:
            folder.discard()
            raise
        return folder

    @classmethod
    def open(
        cls, path: Path | str, *, lock: bool = False, command: Sequence[str] = (), keep_checkpoints: int = 3
    ) -> RunFolder:
        """An existing run: its folder, that folder's name inside ./runs, or `last`.

        With `lock` it is opened to go on with, by `command`: it is in state running then. Raises
        RunError where there is no such run, and with `lock` while another process writes it.
        """
        found = find_run(path)
        if not lock:
            return cls(found)
        try:
            folder = cls(found, keep_checkpoints=keep_checkpoints, lock=RunLock(found))
            (found / CHECKPOINTS).mkdir(exist_ok=True)
            for partial in [*found.glob(f".*{checkpoint.PARTIAL}"), *found.glob(f"*/.*{checkpoint.PARTIAL}")]:
                partial.unlink(missing_ok=True)  # of a process that was killed while it wrote
        except OSError as error:
            raise RunError(
                f"{found} cannot be written ({error.strerror or error}); it can only be read here"
            ) from error
        if command:
            lines = [*folder.commands(), shlex.join(command)]
            _write_text(found / COMMAND, "".join(line + "\n" for line in lines))
            _write_json(found / STATE, {**(read_json(found / STATE) or {}), **_code_now()})
        folder.set_state("running")
        return folder

    def finish(self, state: str, reason: str = "") -> None:
        """Record how the run ended, close its files and let go of the lock."""
        self.set_state(state, reason)
        self.close()

    def close(self) -> None:
        """Close files and let go of the lock; twice is fine."""
        self._metrics.close()
        self._events.close()
        if self._lock is not None:
            self._lock.release()

    def discard(self) -> None:
        """Remove a run that never got going; what the user put there stays. For its creator alone."""
        self.close()
        for name in (CHECKPOINTS, EVENTS):
            shutil.rmtree(self.path / name, ignore_errors=True)
        for name in (METRICS, CONFIG, COMMAND, STATE, SUMMARY, LOCK):
            (self.path / name).unlink(missing_ok=True)
        if self._made:
            with contextlib.suppress(OSError):
                self.path.rmdir()

    # -------------------------------------------------------------- what it says of itself

    def config(self) -> dict[str, Any]:
        """The configuration that the run was started with; RunError where it cannot be read."""
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
        from yaml import YAMLError

        try:
            config = OmegaConf.to_container(OmegaConf.load(self.path / CONFIG), resolve=True)
        except (OSError, YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
            raise RunError(
                f"{self.path / CONFIG} cannot be read: {error}; restore it, or start a new run"
            ) from error
        if not isinstance(config, dict):
            raise RunError(f"{self.path / CONFIG} is no configuration; restore it, or start a new run")
        return {str(key): value for key, value in config.items()}

    def commands(self) -> list[str]:
        """The commands that started the run and went on with it, oldest first."""
        try:
            return (self.path / COMMAND).read_text(encoding="utf-8").splitlines()
        except OSError:
            return []

    def code(self) -> list[Path]:
        """The folders that the classes of the user's own came from; they may be gone by now."""
        named = (read_json(self.path / STATE) or {}).get("code")
        return [Path(p) for p in named if isinstance(p, str)] if isinstance(named, list) else []

    @property
    def state(self) -> str:
        """One of STATES; killed where the run's process is gone, damaged where nothing can be told."""
        return self.state_and_reason()[0]

    def state_and_reason(self) -> tuple[str, str]:
        """The state, and why it failed (or empty)."""
        record = read_json(self.path / STATE)
        name = None if record is None else record.get("state")
        if record is None or name not in STATES:
            return DAMAGED, f"{STATE} cannot be read"
        if name == "running" and not writer_is_alive(self.path):
            return KILLED, "its process is gone"
        return str(name), str(record.get("reason") or "")

    def set_state(self, state: str, reason: str = "") -> None:
        """Record one of STATES, with the reason where it failed."""
        if state not in STATES:
            raise ValueError(f"state {state!r}; one of {STATES}")
        kept = read_json(self.path / STATE) or {}
        _write_json(self.path / STATE, {**kept, "state": state, "reason": reason, "when": time.time()})

    # -------------------------------------------------------------- checkpoints

    def save_checkpoint(self, tree: Any, env_steps: int, version: int, score: float | None = None) -> Path:
        """Save `tree`; keeps the newest few, and as `best.ckpt` the one with the highest score.

        An evolution counts evaluations in place of env steps, and generations as versions.
        """
        if not self._best_known:
            self._best_known, self._best_score = True, self._score_of_best()
        path = self._checkpoint(env_steps)
        head = {"env_steps": env_steps, "version": version, "score": score, "when": time.time()}
        checkpoint.save(path, {**head, "state": tree})
        if score is not None and (self._best_score is None or score > self._best_score):
            self._best_score = score
            _link(path, path.with_name(BEST))
        for old in self.checkpoints()[self.keep_checkpoints :]:
            old.unlink(missing_ok=True)
        return path

    def load_checkpoint(self, which: Path | str = "latest") -> Any:
        """The tree of `latest`, of `best`, or of a checkpoint's file.

        Raises RunError where there is none or it is damaged; nothing falls back silently.
        """
        return self._load(self._find_checkpoint(which))["state"]

    def checkpoints(self) -> list[Path]:
        """Checkpoints by their env steps, newest first; the best one's own file is not among them."""
        numbered = [p for p in (self.path / CHECKPOINTS).glob(f"*{checkpoint.SUFFIX}") if p.stem.isdigit()]
        return sorted(numbered, key=lambda p: int(p.stem), reverse=True)

    def has_metrics(self) -> bool:
        """Whether something was learned."""
        file = self.path / METRICS
        return file.exists() and file.stat().st_size > 0

    def has_checkpoint(self) -> bool:
        """Whether the run can be resumed."""
        return bool(self.checkpoints())

    # -------------------------------------------------------------- numbers

    def rewind(self, env_steps: int) -> None:
        """Cut what lies behind `env_steps`, the checkpoint from which the run goes on."""
        self._metrics.close()
        self._events.close()
        path = self.path / METRICS
        if path.exists():
            rows = [row for row in read_rows(path) if progress_of(row) <= env_steps]
            _write_text(path, "".join(json.dumps(finite(row)) + "\n" for row in rows))
        self._events = EventsFile(self.path / EVENTS, purge_env_steps=env_steps + 1)
        best = self.path / CHECKPOINTS / BEST
        if best.exists() and self._env_steps_of(best) > env_steps:
            best.unlink()  # of a future that is about to be played again

    def log(self, row: Row) -> None:
        """Append a row of numbers, with `env_steps` or `evaluations` among them, to metrics and events."""
        self._metrics.append(row)
        self._events.append(row)

    def rows(self) -> list[dict[str, Any]]:
        """All rows so far."""
        return list(read_rows(self.path / METRICS))

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write `summary.json`; NaN and infinities become null."""
        _write_json(self.path / SUMMARY, summary)

    def summary(self) -> dict[str, Any] | None:
        """What `summary.json` holds; None where there is none that can be read."""
        return read_json(self.path / SUMMARY)

    # -------------------------------------------------------------- parts

    def _checkpoint(self, env_steps: int) -> Path:
        return self.path / CHECKPOINTS / f"{env_steps:012d}{checkpoint.SUFFIX}"

    def _find_checkpoint(self, which: Path | str) -> Path:
        if str(which) == "best":
            best = self.path / CHECKPOINTS / BEST
            if not best.exists():
                raise RunError(
                    f"{self.path} has no best checkpoint yet (there is one once evaluation.window matches "
                    "have ended); take latest"
                )
            return best
        if str(which) != "latest":
            inside = self.path / CHECKPOINTS / Path(which).name
            return Path(which) if Path(which).exists() or not inside.exists() else inside
        newest = self.checkpoints()
        if not newest:
            raise RunError(
                f"{self.path} has no checkpoint yet ({self.state}); wait until the run has saved one, "
                "or lower run.checkpoint_every_s or run.checkpoint_every_env_steps in the next run"
            )
        return newest[0]

    def _load(self, path: Path) -> dict[str, Any]:
        head = checkpoint.load(path)
        if not isinstance(head, dict) or "state" not in head or not isinstance(head.get("env_steps"), int):
            raise checkpoint.refusal(path, "is not one of a run")
        return head

    def _score_of_best(self) -> float | None:
        best = self.path / CHECKPOINTS / BEST
        try:
            score = self._load(best).get("score") if best.exists() else None
        except RunError:
            return None  # damaged: the next checkpoint with a score replaces it
        return float(score) if isinstance(score, int | float) else None

    def _env_steps_of(self, path: Path) -> float:
        try:
            return int(self._load(path)["env_steps"])
        except RunError:
            return float("inf")


def find_run(path: Path | str) -> Path:
    """The run folder that a person means by `path`; raises RunError where there is none."""
    if str(path) == "last":
        return newest_run()
    for place in (Path(path), *(root / path for root in RUN_ROOTS)):
        if (place / CONFIG).is_file():
            return place
    if not Path(path).exists():
        raise RunError(f"there is no run folder {str(path)!r}; `lamarck runs` lists what there is")
    inside = sorted(p.parent for p in Path(path).glob(f"*/{CONFIG}"))
    hint = f"it holds {len(inside)}, such as {inside[0]}" if inside else f"it has no {CONFIG}"
    raise RunError(f"{str(path)!r} is no run folder ({hint}); `lamarck runs` lists what there is")


def newest_run(roots: Sequence[Path] = RUN_ROOTS) -> Path:
    """The run that was started last, by the time of its first file."""
    found = [config for root in roots for config in [*root.glob(f"*/{CONFIG}"), *root.glob(f"*/*/{CONFIG}")]]
    if not found:
        raise RunError("there is no run below runs/ or multirun/ here; `lamarck train` makes one")
    # config.yaml is written once, when a run is made.
    return max(found, key=lambda config: config.stat().st_mtime_ns).parent


def told_by(config: Mapping[str, Any]) -> dict[str, str]:
    """What to call a run's algorithm and environment in a list: as they were chosen, or by their id.

    Of an evolution those are its strategy and its problem, told as `evo` and `problem`.
    """
    # Imported here because it brings Hydra, which a run that is only read does not need.
    from lamarckian_cli.config.compose import choice

    groups = ("evo", "problem") if "evo" in config else ("algo", "env")
    names = {group: choice(group) or _class_name(config.get(group)) for group in groups}
    env = config.get("env")
    if isinstance(env, Mapping) and isinstance(env.get("id"), str):
        names["env"] = env["id"]
    return names


def _code_now() -> dict[str, list[str]]:
    return {"code": [str(folder) for folder in user_code()]}


def _class_name(node: Any) -> str:
    target = node.get("_target_") if isinstance(node, Mapping) else None
    return str(target or "?").rpartition(".")[2].removesuffix("Settings").lower()


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None where it is missing or damaged."""
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def _write_text(path: Path, text: str) -> None:
    with checkpoint.atomic_file(path) as file:
        file.write(text.encode())


def _write_json(path: Path, record: Mapping[str, Any]) -> None:
    _write_text(path, json.dumps(finite(record), indent=2) + "\n")


def _link(source: Path, target: Path) -> None:
    """Let `target` be the same file as `source`; either name may go. A copy where links are not known."""
    beside = target.with_name(f".{target.name}.{os.getpid()}{checkpoint.PARTIAL}")
    try:
        beside.unlink(missing_ok=True)
        os.link(source, beside)
        beside.replace(target)
    except OSError:
        with checkpoint.atomic_file(target) as file:
            file.write(source.read_bytes())
