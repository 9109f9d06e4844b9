"""Populations learn: from a bad start PBT finds hyperparameters that work, which few fixed ones do."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamarckian_cli.launch.evolution.lineage import read_lineage
from lamarckian_cli.launch.evolution.wiring import run_evolve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROUNDS, MEMBERS = 4, 8
# Learning rates spread over (0, 0.1] and critic weights over (0, 1], as in the paper's Table III.
BAD_START = (
    "evo=pbt",
    "cluster=inproc",
    f"evo.population={MEMBERS}",
    f"evo.evaluations={ROUNDS * MEMBERS}",
    "problem.search={algo: {lr: {low: 1.0e-4, high: 0.1}, value_weight: {low: 0.01, high: 1.0}}}",
    "~problem.search.algo.entropy_weight",
    "problem.env_steps=32768",
    "algo.batch_size=2048",
    "algo.minibatch_size=512",
    "algo.reuse=2",
    "algo.unroll=32",
    "algo.entropy_weight=0.003",
    "run.plots=false",
)


def win_rates(run: Path, *words: str) -> list[float]:
    """Of all members in the last round, best first."""
    run_evolve([*BAD_START, *words, f"run.dir={run}"], json_output=True)
    last = [row for row in read_lineage(run) if row["id"] >= (ROUNDS - 1) * MEMBERS]
    return sorted((row["objectives"][0] for row in last), reverse=True)


def test_pbt_wins_pong_from_learning_rates_of_which_few_would(tmp_path: Path) -> None:
    population = win_rates(tmp_path / "pbt", "seed=1")
    fixed = win_rates(tmp_path / "fixed", "seed=1", "evo.interval=1000")  # nobody ever copies
    assert sum(rate >= 0.9 for rate in fixed) <= MEMBERS / 2, fixed
    assert population[0] >= 0.9, population
    assert sum(population) > sum(fixed) + 1, (population, fixed)
