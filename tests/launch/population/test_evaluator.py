"""A training is an evaluator like any other."""

import numpy as np
import pytest

from lamarckian_cli.errors import ConfigError
from lamarckian_cli.launch.population.evaluator import Training
from lamarckian_cli.launch.population.search import Range
from lamarckian_cli.launch.population.settings import TrainingSettings
from lamarckian_cli.launch.wiring import job_of
from lamarckian_cli.problems.check import check_evaluator

SEARCH = {"algo": {"lr": Range(low=1e-4, high=1e-2, scale="log")}}
JOB = ("env=pong", "tuned=none", "cluster=inproc", "cluster.matches=2", "env.max_steps=20")
SMALL = ("model.policy=[8]", "model.critic=[]", "algo.batch_size=32", "algo.unroll=8", "algo.precision=fp32")


def training(**keys):
    settings = TrainingSettings(**{"search": SEARCH, "env_steps": 32, "matches": 1, **keys})
    return Training(settings, job_of([*JOB, *SMALL]))


def test_it_keeps_the_interface():
    check_evaluator(training())


def test_objectives_are_numbers_that_matches_report():
    evaluator = training(objectives=("moves", "return"))
    assert [(o.name, o.sense) for o in evaluator.describe().objectives] == [
        ("moves", "max"),
        ("return", "max"),
    ]
    genomes = evaluator.initialize(2, np.random.default_rng(0))
    results = evaluator.evaluate(genomes, np.array([1, 2]))
    assert results.objectives.shape == (2, 2)
    assert results.cost.tolist() == [32.0, 32.0]
    with pytest.raises(ConfigError, match=r"problem\.objectives has 'fame'; matches of pong report return"):
        training(objectives=("fame",))
