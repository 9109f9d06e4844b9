"""The presets that ship learn: in process, where a seed makes a run exact."""

from __future__ import annotations

import pytest

from lamarckian_cli.launch.evaluate import evaluate
from lamarckian_cli.launch.train import train
from lamarckian_cli.launch.wiring import job_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("overrides", "score", "reached", "env_steps"),
    [
        (("env=cartpole",), "return_mean", 475.0, 150_528),
        (("env=cartpole", "algo=impala"), "return_mean", 475.0, 500_224),
        (("env=pendulum",), "return_mean", -200.0, 400_000),
        (("env=pong",), "win_rate", 0.9, 1_500_000),
    ],
    ids=["cartpole-ppo", "cartpole-impala", "pendulum-ppo", "pong-ppo"],
)
def test_a_preset_reaches_its_score(tmp_path, overrides, score, reached, env_steps):
    run = tmp_path / "run"
    job = job_of([*overrides, "cluster=inproc", f"run.dir={run}", "seed=0"])
    summary = train(job, json_output=True)
    assert summary["env_steps"] <= env_steps
    assert evaluate(run, episodes=100, seed=1)[score] >= reached
