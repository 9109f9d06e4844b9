"""What Hydra tells about a sweep while it runs; named in `conf/config.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

sweep_dirs: list[Path] = []
"""Where sweeps of this process write; Hydra makes its callbacks itself, so it is left here."""


class SweepFolder(Callback):
    """Remembers the folder of a sweep, so that one that never ran leaves nothing behind."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        sweep_dirs.append(Path(str(config.hydra.sweep.dir)))


def forget_sweeps() -> None:
    """Before a run: nothing has been started yet."""
    sweep_dirs.clear()


def remove_unused() -> None:
    """Remove the folders of sweeps in which no job left anything but Hydra's own record."""
    for folder in sweep_dirs:
        files = [p for p in folder.rglob("*") if not p.is_dir()]
        if not folder.is_dir() or any(p != folder / "multirun.yaml" for p in files):
            continue
        for file in files:
            file.unlink()
        for place in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
            place.rmdir()
        remove_if_empty(folder)


def remove_if_empty(folder: Path) -> None:
    """Remove `folder` and then its parent where they hold nothing, never the current folder."""
    for place in (folder, folder.parent):
        if Path.cwd().is_relative_to(place.absolute()):
            return
        try:
            place.rmdir()
        except OSError:
            return  # it holds something, or is gone already
