"""`lamarck bench sampling`: the document that scripts rely on, from a real run."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

KEYS = (
    "env",
    "env_steps_per_s",
    "limit",
    "of_limit",
    "step_rate",
    "forward_rate",
    "update_rate",
    "staleness_mean",
    "cores",
)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_sampling_prints_one_document_whose_limit_is_the_formula():
    cores = len(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "lamarckian_cli.cli", "bench", "sampling", "--seconds", "2", "--json"]
    arguments = ["env=pong", f"cluster.actors={min(2, cores)}", "cluster.matches=16", "algo.batch_size=1024"]
    done = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=250,
    )
    document = json.loads(done.stdout)
    assert document["kind"] == "sampling"
    (result,) = document["results"]
    assert set(KEYS) <= result.keys()
    cost = sum(1 / result[name] for name in ("step_rate", "forward_rate", "update_rate"))
    assert result["limit"] == pytest.approx(cores / cost)
    assert result["of_limit"] == pytest.approx(result["env_steps_per_s"] / result["limit"])
    assert result["env_steps_per_s"] > 0
    assert set(result["cpu_percent"]) == {"learner", *(f"actor {i}" for i in range(min(2, cores)))}
