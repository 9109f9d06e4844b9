"""Who plays the seats: one shared policy, two separate ones, a frozen run, the game itself."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lamarckian_cli.errors import ConfigError
from lamarckian_cli.launch.evaluate import evaluate
from lamarckian_cli.launch.runfolder import RunFolder
from lamarckian_cli.launch.train import train
from lamarckian_cli.launch.wiring import job_of

SMALL = (
    "cluster=inproc",
    "cluster.matches=8",
    "algo.batch_size=512",
    "algo.minibatch_size=256",
    "algo.unroll=32",
    "algo.reuse=1",
    "budget.env_steps=4096",
    "evaluation.window=5",
)


def run(path, *overrides):
    game = "env=pong" if not any(o.startswith("env=") for o in overrides) else ""
    words = [word for word in (game, *SMALL, *overrides, f"run.dir={path}") if word]
    summary = train(job_of(words), json_output=True)
    return summary, RunFolder.open(path).load_checkpoint("latest")


def test_one_shared_policy_learns_from_both_seats(tmp_path):
    summary, state = run(tmp_path / "run", "players=shared")
    assert list(state["learners"]) == ["main"]
    assert summary["env_steps"] >= 4096
    returns = [row["return"] for row in state["counters"]["recent"]["main"]]
    assert sum(returns) <= 2, "what one seat wins, the other loses"


def test_two_separate_policies_learn_apart(tmp_path):
    _, state = run(tmp_path / "run", "players=separate")
    first, second = state["learners"].values()
    assert first["env_steps"] > 0
    assert second["env_steps"] > 0
    assert not np.array_equal(first["vector"], second["vector"])
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert row["main/loss"] != row["second/loss"]
    for name in state["learners"]:
        assert evaluate(tmp_path / "run", episodes=3, policy=name)["episodes"] == 3


def test_a_frozen_run_plays_and_does_not_change(tmp_path):
    _, before = run(tmp_path / "old")
    _, state = run(
        tmp_path / "new", "players=frozen", f"opponent={tmp_path / 'old'}", "seed=1", "evaluation.window=100"
    )
    assert list(state["learners"]) == ["main"]
    returns = [row["return"] for row in state["counters"]["recent"]["main"]]
    assert any(a + b for a, b in zip(returns[::2], returns[1::2], strict=False)), "the frozen seat counts too"
    after = RunFolder.open(tmp_path / "old").load_checkpoint("latest")
    np.testing.assert_array_equal(before["learners"]["main"]["vector"], after["learners"]["main"]["vector"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["players.seats=[main]"], r"players\.seats is \['main'\]; .* has 2 seats"),
        (["players.seats=[builtin,random]"], r"at least one seat must be played by a policy that trains"),
        (["env=cartpole", "players.seats=[builtin]"], r"at least one seat"),
        (["env=cartpole", "players.seats=[main,other]"], r"has 1 seat, so"),
    ],
)
def test_a_cast_that_cannot_be_is_refused_by_name(tmp_path, overrides, message):
    with pytest.raises(ConfigError, match=message):
        run(tmp_path / "run", *overrides)
    assert not (tmp_path / "run").exists()
