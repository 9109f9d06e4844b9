"""Populations learn: from a bad start PBT finds hyperparameters that work, which few fixed ones do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lamarckian_cli.launch.evolution.lineage import read_lineage
from lamarckian_cli.launch.evolution.wiring import run_evolve
from lamarckian_cli.launch.population.inproc import InprocTrainer
from lamarckian_cli.launch.population.members import Placing, Trained
from lamarckian_cli.launch.population.trainer import Plan
from lamarckian_cli.launch.wiring import job_of

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


def trained(trainer: InprocTrainer, member: str, placing: Placing) -> Trained:
    trainer.place(member, placing)
    while not (done := trainer.advance(10.0)):
        pass
    return done[0]


def test_a_childs_first_evaluation_lies_within_its_donors_noise() -> None:
    """On another member, by a learning rate that changes nothing: only what was handed down plays so well."""
    job = job_of(
        [
            *("env=pong", "cluster=inproc", "seed=1", "run.dir=unused", "algo.batch_size=2048"),
            *("algo.minibatch_size=512", "algo.reuse=2", "algo.unroll=32", "algo.lr=2e-3"),
        ]
    )
    job = replace(job, members=("a", "b"))
    trainer = InprocTrainer(job, Plan(env_steps=24576, matches=40))
    try:
        scratch = trained(trainer, "a", Placing(individual=0, algorithm=job.algo, seed=1))
        for number in (1, 2, 3):
            parent = trained(trainer, "a", Placing(individual=number, algorithm=job.algo, parent=number - 1))
        still = replace(job.algo, lr=1e-9)
        donor = trained(trainer, "a", Placing(individual=4, algorithm=still, parent=3))
        child = trained(trainer, "b", Placing(individual=5, algorithm=still, parent=3))
    finally:
        trainer.close()
    assert parent.results["return"] > scratch.results["return"] + 5
    noise = 10 / 40**0.5  # a Pong match is within about 10 points of its mean
    assert abs(child.results["return"] - donor.results["return"]) < 3 * noise
