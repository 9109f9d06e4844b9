"""Runs `lamarck` in this process, the launcher replaced by one that records what it is given."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lamarckian_cli.cli import main
from lamarckian_cli.launch.job import Job

LAUNCHER = "lamarckian_cli.launch.train"


@dataclass
class Answer:
    """What a command left on its streams, and its exit status."""

    status: int
    out: str
    err: str


@dataclass
class Lamarck:
    """The command line; `jobs` is what reached the launcher."""

    capture: pytest.CaptureFixture[str]
    patch: pytest.MonkeyPatch
    jobs: list[Job] = field(default_factory=list)
    error: BaseException | None = None  # raised by the launcher, if given

    def __call__(self, *arguments: str) -> Answer:
        self.patch.setattr(sys, "argv", ["lamarck", *arguments])
        self.capture.readouterr()
        try:
            status = main.run()
        except SystemExit as stop:
            status = int(stop.code or 0)
        out, err = self.capture.readouterr()
        return Answer(status, out, err)

    def launch(self, job: Job, *, json_output: bool) -> dict[str, Any]:
        self.jobs.append(job)
        if self.error is not None:
            raise self.error
        folder = Path(job.run.dir)
        folder.mkdir(parents=True, exist_ok=True)
        summary = {"best_return": float(job.seed), "seed": job.seed}
        (folder / "summary.json").write_text(json.dumps(summary))
        return {"run": str(folder), **summary}


@pytest.fixture
def lamarck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lamarck:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.delenv("LAMARCK_CONFIG_PATH", raising=False)
    monkeypatch.delenv("LAMARCK_TRACEBACK", raising=False)
    runner = Lamarck(capsys, monkeypatch)
    launcher = ModuleType(LAUNCHER)
    monkeypatch.setattr(launcher, "train", runner.launch, raising=False)
    monkeypatch.setitem(sys.modules, LAUNCHER, launcher)
    return runner
