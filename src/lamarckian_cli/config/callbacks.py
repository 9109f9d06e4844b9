"""What Hydra tells about a sweep while it runs; named in `conf/config.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

sweep_dirs: list[Path] = []
"""Where sweeps of this process write; Hydra makes its callbacks itself, so it is left here."""


class SweepFolder(Callback):
    """Remembers the folder of a sweep, so that one that never ran leaves nothing behind."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        sweep_dirs.append(Path(str(config.hydra.sweep.dir)))


@contextmanager
def sweep_jobs() -> Iterator[list[JobReturn]]:
    """Fills with the jobs of a sweep as they end, whichever process a launcher runs them in.

    Hydra's own line on standard error about one that failed is left out.
    """
    ended: list[JobReturn] = []
    instantiate = Plugins.instantiate_launcher

    def watched(plugins: Plugins, **named: Any) -> Any:
        launcher = instantiate(plugins, **named)
        launch = launcher.launch

        def keep(job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
            returns = launch(job_overrides, initial_job_idx)
            ended.extend(returns)
            return returns

        launcher.launch = keep  # type: ignore[method-assign]
        return launcher

    def value(job: JobReturn) -> Any:
        if job.status is JobStatus.FAILED:
            raise job._return_value
        return job._return_value

    quiet = property(value, JobReturn.return_value.fset)  # type: ignore[attr-defined]
    with (
        mock.patch.object(Plugins, "instantiate_launcher", watched),
        mock.patch.object(JobReturn, "return_value", quiet),
    ):
        yield ended


def failure(job: JobReturn) -> Exception | None:
    """What ended a job of a sweep, where it failed."""
    return job._return_value if job.status is JobStatus.FAILED else None


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
        except FileNotFoundError:
            continue
        except OSError:
            return  # it holds something
