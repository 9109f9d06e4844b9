"""Self-play as a whole: the pool grows, stays as it was, teaches, and goes on after a kill."""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from lamarckian_cli.errors import MDPError, RunError
from lamarckian_cli.launch.evaluate import evaluate
from lamarckian_cli.launch.pool_keeper import PoolKeeper
from lamarckian_cli.launch.pool_table import read_pool
from lamarckian_cli.launch.runfolder import RunFolder
from lamarckian_cli.launch.train import train
from lamarckian_cli.launch.wiring import job_of, run_train
from lamarckian_cli.records import MatchResult
from lamarckian_cli.selfplay.league import League
from lamarckian_cli.selfplay.settings import SelfPlay

SMALL = (
    "env=pong",
    "env.rounds=2",
    "env.max_steps=60",
    "tuned=none",
    "selfplay=pfsp",
    "selfplay.add_every_env_steps=1024",
    "cluster=inproc",
    "cluster.matches=8",
    "algo.batch_size=512",
    "algo.unroll=16",
    "algo.normalize_observations=true",
    "model.policy=[16]",
    "model.critic=[8]",
    "run.checkpoint_every_env_steps=2048",
    "run.keep_checkpoints=50",
)
PROGRAM = [sys.executable, "-m", "lamarckian_cli.cli"]


def lamarck(*words, status=0):
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == status, done.stderr
    return done


def snapshots(state):
    return state["selfplay"]["league"]["pool"]["snapshots"]


def test_snapshots_are_taken_on_schedule_and_never_change(tmp_path):
    train(job_of([*SMALL, "budget.env_steps=6144", f"run.dir={tmp_path / 'run'}"]), json_output=True)
    digests = {}
    checkpoints = sorted((tmp_path / "run/checkpoints").glob("0*.ckpt"))
    assert len(checkpoints) >= 3
    folder = RunFolder.open(tmp_path / "run")
    for path in checkpoints:
        for snapshot in snapshots(folder.load_checkpoint(path)):
            vector = np.asarray(snapshot["vector"], "<f4")
            digest = hashlib.blake2b(vector.tobytes(), digest_size=16).hexdigest()
            assert snapshot["digest"] == digest
            assert digests.setdefault(snapshot["number"], digest) == digest
    assert len(set(digests.values())) == 7
    last = snapshots(folder.load_checkpoint("latest"))
    assert [s["env_steps"] for s in last] == [1024 * i for i in range(7)]


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
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for mine, its in zip(one, other, strict=True):
            assert_equal(mine, its)
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other


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
@pytest.mark.parametrize("rule", ["pfsp", "mixed", "nash"])
def test_a_killed_run_that_is_resumed_equals_an_unbroken_one(tmp_path, rule):
    words = [*SMALL, f"selfplay={rule}", "selfplay.capacity=3", "budget.env_steps=8192"]
    train(job_of([*words, f"run.dir={tmp_path / 'unbroken'}"]), json_output=True)
    broken = [*words, f"run.dir={tmp_path / 'broken'}"]
    done = subprocess.run([sys.executable, "-c", KILLED, *broken], env=os.environ, timeout=100, check=False)
    assert done.returncode == -signal.SIGKILL
    before = final(tmp_path / "broken")
    run_train([f"resume={tmp_path / 'broken'}"], json_output=True)
    after = final(tmp_path / "broken")
    assert_equal(final(tmp_path / "unbroken"), after)
    assert len(snapshots(after)) == 3
    assert snapshots(after)[-1]["number"] > snapshots(before)[-1]["number"]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A short training of Pong; a score that it reaches early would end it without self-play."""
    run = tmp_path_factory.mktemp("learned") / "run"
    words = ["env=pong", "selfplay=pfsp", "selfplay.add_every_env_steps=40000", "cluster=inproc", "seed=2"]
    budget = ["budget.env_steps=360000", "budget.stop_win_rate=0.2", "budget.stop_return=0"]
    train(job_of([*words, *budget, f"run.dir={run}"]), json_output=True)
    return run


@pytest.mark.slow
def test_who_learned_from_its_own_past_alone_beats_the_builtin_opponent(learned):
    assert evaluate(learned, episodes=50, seed=3)["win_rate"] > 0.75


@pytest.mark.slow
def test_ratings_rise_and_scores_against_the_pool_are_no_end(learned):
    document = read_pool(learned)
    rated = [player for player in document["players"] if player["env_steps"] is not None]
    first, newest = rated[0], rated[-1]
    deviation = math.hypot(first["deviation"], newest["deviation"])
    assert newest["rating"] - first["rating"] > 4 * deviation
    folder = RunFolder.open(learned)
    assert folder.summary()["env_steps"] >= 360000
    rows = folder.rows()
    assert rows[-1]["pool"] == len(rated) == 9
    assert rows[-1]["rating"] == pytest.approx(document["players"][0]["rating"])
    assert rows[-1]["rating"] > rows[0]["rating"]


@pytest.mark.slow
def test_the_command_shows_the_pool(learned):
    document = json.loads(lamarck("pool", str(learned), "--json").stdout)
    names = [player["name"] for player in document["players"]]
    assert names == ["main", *(f"main#{i}" for i in range(9))]
    assert (document["matchmaking"], document["rating"]) == ("pfsp", "bayes")
    assert sum(player["nash"] for player in document["players"]) == pytest.approx(1)
    wins, matches = np.array(document["win_rates"]), np.array(document["matches"])
    np.testing.assert_allclose(wins + wins.T, 1)
    np.testing.assert_allclose(matches, matches.T)
    assert matches[0, 1:].sum() > 100
    table = lamarck("pool", str(learned)).stdout
    assert all(name in table for name in names)
    assert "against" not in table, "there are not so many that some were left out"


def test_a_run_without_a_pool_says_so(tmp_path):
    run = tmp_path / "run"
    words = [word for word in SMALL if "selfplay" not in word]
    train(job_of([*words, "budget.env_steps=512", f"run.dir={run}"]), json_output=True)
    with pytest.raises(RunError, match=r"has no pool of opponents; train with selfplay=pfsp"):
        read_pool(run)
    done = lamarck("pool", str(run), status=2)
    assert "has no pool of opponents" in " ".join(done.stderr.split())
    assert done.stdout == ""


@pytest.mark.parametrize("win", [{}, {"win": 0.3}, {"win": math.nan}])
def test_a_game_that_does_not_say_who_won_is_told_so(win):
    keeper = PoolKeeper(League(SelfPlay(matchmaking="pfsp")), ["main"])
    keeper.league.offer("main", np.zeros(3, np.float32), version=0, env_steps=0)
    result = {"return": 1.0, **win}
    played = {"policy": "main", "seat": 0, "version": 0, "first_version": 0, "env_steps": 5, "frames": 5}
    with pytest.raises(MDPError, match=r"a match reported win=(None|0\.3|nan); self-play needs 1 "):
        keeper.add_results([MatchResult(**played, result=result, opponent="main#0")])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_over_ray_snapshots_reach_the_actors_and_results_come_back(tmp_path):
    words = [word for word in SMALL if not word.startswith(("cluster=", "run."))]
    cluster = ["cluster=local", "cluster.actors=1", "cluster.start_timeout_s=240"]
    more = ["selfplay.capacity=4", "budget.env_steps=40960", "run.dir=run", "--json"]
    command = [*PROGRAM, "train", *words, *cluster, *more]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["env_steps"] >= 40960
    document = read_pool(tmp_path / "run")
    main, *rated = document["players"]
    assert len(rated) == 4
    assert rated[-1]["env_steps"] >= 40960 - 1024
    assert main["matches"] >= 50
    assert sum(player["matches"] > 0 for player in rated) >= 2, "later ones than the first are met"
    assert RunFolder.open(tmp_path / "run").rows()[-1]["pool"] == 4
