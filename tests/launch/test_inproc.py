"""In process a run is exact: under its seed, and across a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from lamarckian_cli.errors import RunError
from lamarckian_cli.launch import signals
from lamarckian_cli.launch.runfolder import RunFolder
from lamarckian_cli.launch.signals import Stop
from lamarckian_cli.launch.train import Session, train
from lamarckian_cli.launch.wiring import job_of, run_train

SMALL = (
    "env=cartpole",
    "cluster=inproc",
    "cluster.matches=8",
    "algo.batch_size=256",
    "algo.minibatch_size=128",
    "algo.unroll=16",
    "algo.reuse=2",
    "algo.normalize_observations=true",
    "budget.stop_return=null",
    "run.checkpoint_every_env_steps=2048",
)


def final(run):
    state = RunFolder.open(run).load_checkpoint("latest")
    state["counters"].pop("seconds")
    return state


def assert_equal(one, other):
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        job = job_of([*SMALL, "budget.env_steps=3000", f"seed={seed}", f"run.dir={tmp_path / name}"])
        train(job, json_output=True)
    assert_equal(final(tmp_path / "a"), final(tmp_path / "b"))
    a, c = final(tmp_path / "a"), final(tmp_path / "c")
    assert not np.array_equal(a["learners"]["main"]["vector"], c["learners"]["main"]["vector"])


KILLED = """
import os, signal, sys
from lamarckian_cli.launch import train as module
from lamarckian_cli.launch.wiring import job_of
save = module.Session._save
def save_and_die(self, state):
    save(self, state)
    if self.counters.env_steps >= 4096:
        os.kill(os.getpid(), signal.SIGKILL)
module.Session._save = save_and_die
module.train(job_of(sys.argv[1:]), json_output=True)
"""


@pytest.mark.slow
def test_a_killed_run_that_is_resumed_equals_an_unbroken_one(tmp_path):
    job = job_of([*SMALL, "budget.env_steps=8192", f"run.dir={tmp_path / 'unbroken'}"])
    train(job, json_output=True)
    broken = [*SMALL, "budget.env_steps=8192", f"run.dir={tmp_path / 'broken'}"]
    done = subprocess.run([sys.executable, "-c", KILLED, *broken], env=os.environ, timeout=100, check=False)
    assert done.returncode == -signal.SIGKILL
    assert RunFolder.open(tmp_path / "broken").state == "killed"
    run_train([f"resume={tmp_path / 'broken'}"], json_output=True)
    assert_equal(final(tmp_path / "unbroken"), final(tmp_path / "broken"))
    rows = RunFolder.open(tmp_path / "broken").rows()
    assert [row["env_steps"] for row in rows] == sorted({row["env_steps"] for row in rows})


def everything_in(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ((), r"has reached budget\.env_steps=1024 already .* give a larger budget\.env_steps"),
        (("budget.env_steps=2048", "budget.stop_return=1"), r"has reached budget\.stop_return=1 already"),
    ],
)
def test_a_run_with_nothing_left_to_do_is_not_resumed_and_stays_as_it_is(tmp_path, budget, message):
    run = tmp_path / "run"
    train(
        job_of([*SMALL, "budget.env_steps=1024", "evaluation.window=5", f"run.dir={run}"]), json_output=True
    )
    before = everything_in(run)
    with pytest.raises(RunError, match=message):
        run_train([f"resume={run}", *budget], json_output=True)
    assert everything_in(run) == before


def test_a_damaged_checkpoint_is_refused_and_the_run_stays_as_it_is(tmp_path):
    run = tmp_path / "run"
    train(job_of([*SMALL, "budget.env_steps=1024", f"run.dir={run}"]), json_output=True)
    for path in (run / "checkpoints").glob("0*.ckpt"):
        path.write_bytes(path.read_bytes()[:-10])
    before = everything_in(run)
    with pytest.raises(RunError, match="checkpoint"):
        run_train([f"resume={run}", "budget.env_steps=4096"], json_output=True)
    assert everything_in(run) == before


def test_ctrl_c_before_a_resumed_run_learned_anything_leaves_its_summary(tmp_path):
    run = tmp_path / "run"
    job = job_of([*SMALL, "budget.env_steps=1024", f"run.dir={run}"])
    train(job, json_output=True)
    before = (run / "summary.json").read_bytes()
    stop = Stop()
    stop.event.set()
    session = Session(replace(job, resume=run), RunFolder.open(run, lock=True), stop, quiet=True)
    with pytest.raises(KeyboardInterrupt):
        session.run()
    assert (run / "summary.json").read_bytes() == before


def test_the_last_line_of_the_log_is_what_was_saved(tmp_path, monkeypatch):
    run = tmp_path / "run"
    log = Session._log

    def log_and_signal(self):
        log(self)
        if self.counters.batches == 3 and not self.stop.interrupted:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Session, "_log", log_and_signal)
    with pytest.raises(KeyboardInterrupt):
        train(job_of([*SMALL, "run.log_every_s=100", f"run.dir={run}"]), json_output=True)
    folder = RunFolder.open(run)
    assert folder.rows()[-1]["env_steps"] == folder.summary()["env_steps"]


def test_a_run_whose_budget_ends_as_a_signal_comes_has_finished(tmp_path, monkeypatch):
    run = tmp_path / "run"
    save = Session._save

    def save_and_signal(self, state):
        save(self, state)
        if self.counters.env_steps >= 1024:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Session, "_save", save_and_signal)
    try:
        train(job_of([*SMALL, "budget.env_steps=1024", f"run.dir={run}"]), json_output=True)
    except KeyboardInterrupt:
        pytest.fail("it was told as interrupted")
    assert RunFolder.open(run).state == "finished"


@pytest.mark.parametrize("method", ["create", "discard"])
def test_signals_leave_a_whole_run_folder_or_none(tmp_path, monkeypatch, method):
    run = tmp_path / "run"
    original = getattr(RunFolder, method)

    def signalled(*arguments, **named):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
        return original(*arguments, **named)

    monkeypatch.setattr(RunFolder, method, signalled)
    monkeypatch.setattr(Session, "run", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        train(job_of([*SMALL, f"run.dir={run}"]), json_output=True)
    assert not run.exists()


def test_ctrl_c_does_not_wait_for_a_batch(tmp_path):
    run = tmp_path / "run"
    arguments = ["env=cartpole", "cluster=inproc", "algo.batch_size=10485760", "algo.minibatch_size=null"]
    arguments += ["algo.reuse=1", "budget.env_steps=20000000", f"run.dir={run}"]
    process = subprocess.Popen([sys.executable, "-m", "lamarckian_cli.cli", "train", *arguments])
    try:
        for _ in range(600):
            if (run / "config.yaml").exists():
                break
            time.sleep(0.1)
        time.sleep(3.0)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    finally:
        process.kill()
    assert not run.exists()


def test_a_rate_counts_the_session_alone(tmp_path):
    run = tmp_path / "run"
    train(job_of([*SMALL, "budget.env_steps=8192", f"run.dir={run}"]), json_output=True)
    before = json.loads((run / "summary.json").read_text())
    run_train([f"resume={run}", "budget.env_steps=8704"], json_output=True)
    after = json.loads((run / "summary.json").read_text())
    session_s = after["seconds"] - before["seconds"]
    steps = after["env_steps"] - before["env_steps"]
    assert after["env_steps_per_s"] == pytest.approx(steps / session_s, rel=0.05)


def test_an_interrupt_amid_the_import_system_comes_a_moment_later(monkeypatch):
    monkeypatch.setattr(signals, "_asked", threading.Event())
    importing = SimpleNamespace(f_code=SimpleNamespace(co_filename="<frozen importlib._bootstrap>"))
    signals.interrupt(signal.SIGINT, importing)
    with pytest.raises(KeyboardInterrupt):
        time.sleep(5)


def test_an_interrupt_that_an_import_swallowed_is_not_forgotten(tmp_path):
    code = f"""
import signal, os
from lamarckian_cli.launch import signals
from lamarckian_cli.launch.train import train
from lamarckian_cli.launch.wiring import job_of
signal.signal(signal.SIGINT, signals.interrupt)
try:
    os.kill(os.getpid(), signal.SIGINT)
except:  # as some libraries write it
    pass
job = job_of(["env=pong", "cluster=inproc", "budget.env_steps=1", "run.dir={tmp_path}/run"])
train(job, json_output=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert "KeyboardInterrupt" in done.stderr
    assert not (tmp_path / "run").exists()


PRINTS = """
import os, subprocess
from lamarckian_cli.mdp.pong import Pong

class Game(Pong):
    def reset(self, seats, seed):
        print("hello")
        os.write(1, b"hello")
        subprocess.run(["echo", "hello"])
        return super().reset(seats, seed)
"""


def test_what_a_game_prints_stays_out_of_the_document(tmp_path):
    (tmp_path / "chatty.py").write_text(PRINTS)
    command = [sys.executable, "-m", "lamarckian_cli.cli", "train", *(w for w in SMALL if "env=" not in w)]
    done = subprocess.run(
        [*command, "env=pong", "env._target_=chatty.Game", "budget.env_steps=256", "run.dir=run", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout)["env_steps"] >= 256
    assert done.stderr.count("hello") > 2


def test_a_run_that_never_got_going_leaves_what_the_user_put_there(tmp_path):
    run, linked = tmp_path / "run", tmp_path / "linked"
    run.mkdir()
    linked.symlink_to(run)
    job = job_of([*SMALL, f"run.dir={linked}"])
    folder = RunFolder.create(linked, job.config, ["lamarck"])
    (run / "notes.txt").write_text("mine")
    folder.discard()
    assert [path.name for path in run.iterdir()] == ["notes.txt"]
    (run / "notes.txt").unlink()
    RunFolder.create(run, job.config, ["lamarck"]).discard()
    assert run.is_dir(), "it was there before"
    RunFolder.create(tmp_path / "new", job.config, ["lamarck"]).discard()
    assert not (tmp_path / "new").exists()
