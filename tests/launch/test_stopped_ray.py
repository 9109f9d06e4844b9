"""Ctrl-C twice, and Ray's own processes stopped or killed: a job ends, and says how to go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from lamarckian_cli.launch.runfolder import RunFolder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

ARGUMENTS = (
    "env=pong",
    "cluster=local",
    f"cluster.actors={min(2, len(os.sched_getaffinity(0)))}",
    "cluster.start_timeout_s=150",
    "cluster.matches=16",
    "algo.batch_size=1024",
    "algo.minibatch_size=1024",
    "algo.unroll=32",
    "algo.reuse=1",
    "budget.env_steps=100_000_000",
)


POPULATION = (
    *(
        "evo=pbt",
        "evo.population=2",
        "evo.evaluations=1000000",
        "problem.env_steps=1024",
        "problem.matches=1",
    ),
    *("env.max_steps=40", "algo.batch_size=1024", "algo.unroll=32", "run.log_every_s=0.1"),
    *(argument for argument in ARGUMENTS if argument.startswith("cluster")),
)


class Job:
    """`lamarck train` in a process of its own, which learns by now."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        words = words or ("train", *ARGUMENTS)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lamarckian_cli.cli", *words, f"run.dir={folder}", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline, pause = time.monotonic() + 120.0, threading.Event()
        while not (folder / "metrics.jsonl").exists() or not (folder / "metrics.jsonl").stat().st_size:
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline, "it took too long"
            pause.wait(0.1)
        self.children = psutil.Process(self.process.pid).children(recursive=True)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        _, alive = psutil.wait_procs(self.children, timeout=30)
        left = [process.cmdline() for process in alive]
        for process in alive:
            process.kill()
        assert not left

    def of_ray(self, *names: str) -> list[psutil.Process]:
        found = [process for process in self.children if process.name() in names]
        assert len(found) == len(names)
        return found


@pytest.mark.parametrize("words", [("train", *ARGUMENTS), ("evolve", *POPULATION)], ids=["train", "evolve"])
def test_a_second_ctrl_c_ends_it_at_once_as_an_interrupted_run(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    with Job(tmp_path / "run", *words) as job:
        job.process.send_signal(signal.SIGINT)
        time.sleep(0.1)  # the user's fingers
        job.process.send_signal(signal.SIGINT)
        _, err = job.process.communicate(timeout=10)
    assert (job.process.returncode, err) == (130, "lamarck: interrupted\n")
    assert RunFolder.open(job.folder).state == "interrupted"


@pytest.mark.parametrize("stopped", [("gcs_server",), ("gcs_server", "raylet")])
def test_one_ctrl_c_ends_a_job_whose_ray_is_stopped(tmp_path: Path, stopped: tuple[str, ...]) -> None:
    """Without its head a learner is still saved; without its raylet it cannot be, which is told."""
    with Job(tmp_path / "run") as job:
        for process in job.of_ray(*stopped):
            process.suspend()
        job.process.send_signal(signal.SIGINT)
        _, err = job.process.communicate(timeout=60)
    run = RunFolder.open(job.folder)
    assert job.process.returncode == 130, err
    assert err.endswith("lamarck: interrupted\n")
    assert run.state == "interrupted"
    saved = stopped == ("gcs_server",)
    assert run.has_checkpoint() == saved
    assert ("is not saved" in err) != saved


def test_a_job_whose_head_is_killed_is_saved_and_says_how_to_go_on(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for process in job.of_ray("gcs_server"):
            process.kill()
        out, err = job.process.communicate(timeout=60)
    run = RunFolder.open(job.folder)
    assert (job.process.returncode, out) == (2, "")
    assert err.startswith("lamarck: Ray's head, process ")
    assert err.rstrip().endswith(f"train resume={job.folder}")
    assert err.count("\n") == 1
    assert run.state == "failed"
    assert run.has_checkpoint()
