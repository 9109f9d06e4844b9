"""A whole training over Ray and ZeroMQ: real processes, one of them killed, and what is left after."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
from waiting import wait_until

from lamarckian_cli.errors import ClusterError, RunError
from lamarckian_cli.launch.distributed import DistributedTraining
from lamarckian_cli.launch.runfolder import RunFolder
from lamarckian_cli.launch.signals import Stop
from lamarckian_cli.launch.train import Session
from lamarckian_cli.launch.wiring import job_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SMALL = (
    "env=pong",
    "cluster=local",
    "cluster.start_timeout_s=240",  # the machine may be busy; no test is about that
    "cluster.matches=16",
    "algo.batch_size=1024",
    "algo.minibatch_size=1024",
    "algo.unroll=32",
    "algo.reuse=1",
)
ENOUGH = f"cluster.actors={min(2, len(os.sched_getaffinity(0)))}"


def test_a_killed_actor_is_started_again_and_training_goes_on(no_children_left):
    training = DistributedTraining(job_of([*SMALL, ENOUGH, "run.dir=unused"]), threading.Event())
    try:
        training.start(None)
        wait_until(lambda: training.progress()["counters"]["env_steps"] > 0)
        before = training.pids()
        os.kill(before["actor 0"], signal.SIGKILL)
        wait_until(lambda: training.progress()["actor_restarts"] == 1)
        steps = training.progress()["counters"]["env_steps"]
        wait_until(lambda: training.progress()["counters"]["env_steps"] > steps + 4096)
        wait_until(lambda: training.pids().get("actor 0", before["actor 0"]) != before["actor 0"])
        assert training.pids()["learner"] == before["learner"]
        state = training.state()
        assert state["counters"]["env_steps"] >= steps
        # Without its learner the job is over, and the cause is what is told.
        os.kill(before["learner"], signal.SIGKILL)
        with pytest.raises(
            RunError, match=r"learner's process, .* was lost .*worker process has died"
        ) as lost:
            wait_until(lambda: training.progress() is None)
        assert "ray stop" not in str(lost.value)  # one of the causes that Ray can think of
    finally:
        training.stop()


def test_an_actor_that_hangs_is_done_without_until_it_answers(no_children_left):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two actors need two cores")
    job = job_of([*SMALL, "cluster.actors=2", "cluster.silence_s=4", "run.dir=unused"])
    training = DistributedTraining(job, threading.Event())
    try:
        training.start(None)
        wait_until(lambda: training.progress()["counters"]["env_steps"] > 0)
        hung = training.pids()["actor 1"]
        os.kill(hung, signal.SIGSTOP)
        wait_until(lambda: training.progress()["actors"] == 1)
        steps = training.progress()["counters"]["env_steps"]
        wait_until(lambda: training.progress()["counters"]["env_steps"] > steps + 8192)
        os.kill(hung, signal.SIGCONT)
        wait_until(lambda: training.progress()["actors"] == 2)
        assert [note.partition(" on ")[0] for note in training.notes] == ["actor 1", "actor 1"]
        assert ["does not answer" in training.notes[0], "answers again" in training.notes[1]] == [True, True]
        assert training.pids()["actor 1"] == hung
    finally:
        training.stop()


def test_more_actors_than_cores_are_refused_with_both_numbers():
    cores = len(os.sched_getaffinity(0))
    training = DistributedTraining(job_of(["cluster.actors=999", "run.dir=unused"]), threading.Event())
    try:
        with pytest.raises(
            ClusterError, match=rf"cluster\.actors is 999, but this machine gives {cores} cores"
        ):
            training.start(None)
    finally:
        training.stop()


def command(*arguments):
    return [sys.executable, "-m", "lamarckian_cli.cli", *arguments]


def test_ctrl_c_saves_ends_every_process_and_resume_goes_on(tmp_path):
    run = tmp_path / "run"
    arguments = [*SMALL, ENOUGH, f"run.dir={run}", "budget.env_steps=100_000_000"]
    process = subprocess.Popen(command("train", *arguments), stdout=subprocess.PIPE, text=True)
    started: set[psutil.Process] = set()
    try:

        def trains():
            started.update(psutil.Process(process.pid).children(recursive=True))
            return (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size > 0

        wait_until(trains)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert RunFolder.open(run).state == "interrupted"
    _, alive = psutil.wait_procs(started, timeout=20)
    assert not alive, [p.cmdline() for p in alive if p.is_running()]
    before = json.loads((run / "summary.json").read_text())
    more = before["env_steps"] + 2048
    subprocess.run(command("train", f"resume={run}", f"budget.env_steps={more}"), check=True, timeout=200)
    after = json.loads((run / "summary.json").read_text())
    assert after["env_steps"] >= more
    assert after["versions"] > before["versions"]
    assert RunFolder.open(run).state == "finished"


def test_sigterm_saves_as_ctrl_c_does(tmp_path):
    run = tmp_path / "run"
    arguments = [*SMALL, ENOUGH, f"run.dir={run}", "budget.env_steps=100_000_000"]
    process = subprocess.Popen(
        command("train", *arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: (run / "metrics.jsonl").exists())
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, err) == (130, "lamarck: interrupted\n")
    assert RunFolder.open(run).state == "interrupted"


KILLER = """
import os
from lamarckian_cli.mdp.pong import Pong
class Game(Pong):
    def reset(self, seats, seed):
        os._exit(1)
"""


def test_a_game_that_kills_its_actor_leaves_standard_output_clean(tmp_path):
    (tmp_path / "killer.py").write_text(KILLER)
    arguments = [*SMALL, "cluster.actors=1", "env._target_=killer.Game", "cluster.restart_limit=1", "--json"]
    done = subprocess.run(
        command("train", *arguments), cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("lamarck: actors died 2 times, more than cluster.restart_limit=1")
    assert done.stderr.count("\n") == 1


def test_the_clock_runs_from_the_first_update_however_late_it_is_heard_of(tmp_path):
    job = job_of([*SMALL, f"run.dir={tmp_path / 'run'}"])
    folder = RunFolder.create(tmp_path / "run", job.config, job.command_line, keep_checkpoints=1)
    session = Session(job, folder, Stop(), quiet=True)
    for since_first_update_s, seconds in [(None, 0.0), (5.0, 5.0)]:
        session._set_clock(since_first_update_s)
        session._tick()
        assert session.counters.seconds == pytest.approx(seconds, abs=0.5)


@pytest.mark.parametrize("after_s", [0.7, 1.5, 3.0])
def test_ctrl_c_while_everything_starts_leaves_nothing(tmp_path, after_s):
    run = tmp_path / "run"
    process = subprocess.Popen(
        command("train", *SMALL, f"run.dir={run}"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode in (130, -signal.SIGINT), err  # the latter while Python itself starts
    assert "Traceback" not in err or process.returncode < 0
    assert "the run is in" not in out
    assert not run.exists()


def test_a_run_that_is_killed_outright_leaves_no_process_behind(tmp_path):
    run = tmp_path / "run"
    process = subprocess.Popen(command("train", *SMALL, ENOUGH, f"run.dir={run}"), stdout=subprocess.DEVNULL)
    started: set[psutil.Process] = set()
    try:

        def trains():
            started.update(psutil.Process(process.pid).children(recursive=True))
            return (run / "metrics.jsonl").exists()

        wait_until(trains)
    finally:
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs(started, timeout=30)
    assert not alive, [p.cmdline() for p in alive if p.is_running()]


def test_what_fails_in_a_process_is_one_message_and_leaves_nothing(tmp_path):
    run = tmp_path / "run"
    arguments = ["env=gym", "env.id=CartPoll-v1", f"run.dir={run}", ENOUGH]
    done = subprocess.run(
        command("train", *arguments), capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 2
    assert "env.id=CartPoll-v1 is no Gymnasium environment" in done.stderr
    assert "Traceback" not in done.stderr
    assert not run.exists()


def test_jobs_follow_each_other_in_one_process(no_children_left):
    """As in a sweep: Ray is started anew for each, and lets its own processes in."""
    for _ in range(2):
        training = DistributedTraining(
            job_of([*SMALL, "cluster.actors=1", "run.dir=unused"]), threading.Event()
        )
        try:
            training.start(None)
            wait_until(lambda training=training: training.progress()["counters"]["env_steps"] > 0)
        finally:
            training.stop()
