"""Football is learned on the real engine: in process, where a seed makes a run exact."""

from __future__ import annotations

import numpy as np
import pytest
from football import missing

from lamarckian_cli.launch.evaluate import evaluate
from lamarckian_cli.launch.runfolder import RunFolder
from lamarckian_cli.launch.train import train
from lamarckian_cli.launch.wiring import job_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]


@pytest.mark.usefixtures("no_children_left")
def test_the_empty_goal_is_found(tmp_path):
    run = tmp_path / "run"
    overrides = ["env=gfootball/academy_empty_goal_close", "cluster=inproc", f"run.dir={run}", "seed=0"]
    summary = train(job_of(overrides), json_output=True)
    assert summary["env_steps"] <= 40_000
    goals = evaluate(run, episodes=40, seed=1)["results"]["score_self"]["mean"]
    assert goals >= 0.95


@pytest.mark.usefixtures("no_children_left")
def test_a_seed_makes_a_training_exact(tmp_path):
    learned = []
    for name in ("one", "again"):
        run = tmp_path / name
        job = job_of(
            ["env=gfootball/academy_run_to_score", "cluster=inproc", "cluster.matches=4", "algo.unroll=16"]
            + [f"run.dir={run}", "seed=3", "budget.env_steps=1024", "algo.batch_size=256"]
        )
        train(job, json_output=True)
        tree = RunFolder.open(run).load_checkpoint("latest")
        learned.append(tree["learners"]["main"]["vector"])
    np.testing.assert_array_equal(*learned)
