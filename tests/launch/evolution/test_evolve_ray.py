"""Evolutions over Ray and the exchange: real worker processes, some of them hung or killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from lamarckian_cli.launch.evolution.front import read_front
from lamarckian_cli.launch.evolution.lineage import read_lineage
from lamarckian_cli.launch.runfolder import RunFolder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

OVER_RAY = (
    "cluster=local",
    "cluster.start_timeout_s=240",  # the machine may be busy; no test is about that
    f"cluster.actors={min(2, len(os.sched_getaffinity(0)))}",
)


def run(folder: Path, *overrides: str) -> dict:
    """The summary; in a process of its own, since a process that has met one Ray refuses another's token."""
    words = [*overrides, f"run.dir={folder}", "run.plots=false", "--json"]
    command = [sys.executable, "-m", "lamarckian_cli.cli", "evolve", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    summary: dict = json.loads(done.stdout)
    return summary


@pytest.mark.usefixtures("no_children_left")
def test_an_exact_evolution_is_the_same_over_ray(tmp_path: Path) -> None:
    words = ["problem=zdt4", "evo.population=20", "evo.max_staleness=0", "evo.evaluations=330"]
    run(tmp_path / "here", *words)
    summary = run(tmp_path / "ray", *words, *OVER_RAY)
    assert summary["staleness_max"] == 0
    here, ray = read_front(tmp_path / "here"), read_front(tmp_path / "ray")
    assert np.array_equal(here.ids, ray.ids)
    assert np.array_equal(here.objectives, ray.objectives)
    assert np.array_equal(here.genomes["x"], ray.genomes["x"])


@pytest.mark.usefixtures("no_children_left")
def test_hung_and_dead_workers_cost_a_retry_and_no_individual(tmp_path: Path) -> None:
    faults = ["problem.raises=0.05", "problem.kills=0.02", "problem.hangs=0.02"]
    summary = run(
        tmp_path / "run",
        *OVER_RAY,
        *("problem=waiting", "problem.mean_s=0.001", *faults, f"problem.marks={tmp_path / 'marks'}"),
        *("evo.population=20", "evo.evaluations=150", "evo.deadline_s=5"),
    )
    struck = len(list((tmp_path / "marks").iterdir()))
    assert struck >= 3
    assert summary["retries"] >= struck
    assert summary["worker_restarts"] >= 1
    assert (summary["evaluations"], summary["failed"]) == (150, 0)
    rows = list(read_lineage(tmp_path / "run"))
    assert sorted(row["id"] for row in rows) == list(range(150))
    assert sum(row["attempts"] > 1 for row in rows) >= struck


def test_what_fails_again_has_failed_with_its_reason(tmp_path: Path) -> None:
    faults = ["problem.raises=0.1", "problem.kills=0.04", "problem.hangs=0.0", "problem.mean_s=0.001"]
    summary = run(
        tmp_path / "run",
        *(*OVER_RAY, "problem=waiting", *faults),
        *("evo.population=20", "evo.evaluations=80", "evo.retries=0"),
    )
    rows = list(read_lineage(tmp_path / "run"))
    errors = [row["error"] for row in rows if row["error"]]
    assert len(rows) == 80
    assert len(errors) == summary["failed"] >= 4
    assert any("died" in error for error in errors)
    assert any("RuntimeError" in error and "waiting.py, line" in error for error in errors)
    assert summary["retries"] == 0


def test_ctrl_c_saves_and_ends_every_process(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    words = ["problem=waiting", "problem.mean_s=0.02", "evo.evaluations=100000", f"run.dir={run_dir}"]
    command = [
        sys.executable,
        "-m",
        "lamarckian_cli.cli",
        "evolve",
        *words,
        *OVER_RAY,
        "run.plots=false",
        "run.log_every_s=0.1",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    started: set[psutil.Process] = set()
    deadline, pause = time.monotonic() + 240, threading.Event()
    try:
        while not (run_dir / "metrics.jsonl").exists():
            assert time.monotonic() < deadline
            started.update(psutil.Process(process.pid).children(recursive=True))
            pause.wait(0.1)
        started.update(psutil.Process(process.pid).children(recursive=True))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, err) == (130, "lamarck: interrupted\n")
    folder = RunFolder.open(run_dir)
    assert folder.state == "interrupted"
    _, alive = psutil.wait_procs(started, timeout=20)
    assert not alive
    assert len(list(read_lineage(run_dir))) == int(folder.checkpoints()[0].stem)
