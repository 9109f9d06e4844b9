"""Population based bandits: the model against slow formulas, and what copies are given by it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from strategies import evaluated, make

from lamarckian_cli.ec.coding import Coding, Integer, NetworkWeights, Real
from lamarckian_cli.errors import ConfigError
from lamarckian_cli.evolution.pb2 import PB2Settings
from lamarckian_cli.evolution.surrogate import Surrogate
from lamarckian_cli.problems.evaluator import Description, Evaluator, Objective, Results

BEST = 1e-3


class Peaked(Evaluator):
    """Training adds the more to a member's score, the nearer its rate is to BEST, in orders of magnitude."""

    def describe(self):
        parts = {
            "rate": Real(low=np.array([1e-5]), high=np.array([1e-1]), log=True),
            "n": Integer(low=np.ones(1, np.int64), high=np.array([9])),
            "w": NetworkWeights(layers=(1,)),
        }
        return Description(coding=Coding(parts), objectives=(Objective(name="w", sense="max"),))

    def initialize(self, n, rng):
        return {**super().initialize(n, rng), "w": np.zeros((n, 1), np.float32)}

    def evaluate(self, genomes, seeds):
        gain = np.exp(-(np.log10(genomes["rate"] / BEST) ** 2))
        w = (genomes["w"] + gain).astype(np.float32)
        return Results(objectives=w.astype(np.float64), genomes={**genomes, "w": w})


def some_model(rng: np.random.Generator, k: int = 12) -> Surrogate:
    return Surrogate(
        x=rng.random((k, 2)),
        t=rng.integers(0, 6, k).astype(float),
        y=rng.standard_normal(k),
        length=0.3,
        forgetting=0.1,
        noise=0.2,
    )


def slow_kernel(x, t, y, s, length=0.3, forgetting=0.1):
    return np.array(
        [
            [
                np.exp(-(np.linalg.norm(a - b) ** 2) / (2 * length**2)) * (1 - forgetting) ** (abs(u - v) / 2)
                for b, v in zip(y, s, strict=True)
            ]
            for a, u in zip(x, t, strict=True)
        ]
    )


def test_mean_deviation_and_likelihood_are_those_of_a_gaussian_conditioned_on_what_was_seen():
    rng = np.random.default_rng(0)
    model = some_model(rng)
    x, t = rng.random((5, 2)), np.arange(5.0)
    covariance = slow_kernel(model.x, model.t, model.x, model.t) + 0.2 * np.eye(12)
    cross = slow_kernel(x, t, model.x, model.t)
    mean = cross @ np.linalg.inv(covariance) @ model.y
    variance = 1 - np.diag(cross @ np.linalg.inv(covariance) @ cross.T)
    found, deviation = model.at(x, t)
    np.testing.assert_allclose(found, mean, atol=1e-6)
    np.testing.assert_allclose(deviation, np.sqrt(variance), atol=1e-6)
    density = multivariate_normal(np.zeros(12), covariance).logpdf(model.y)
    assert model.log_likelihood() == pytest.approx(density + 6 * np.log(2 * np.pi), abs=1e-4)


def test_what_is_under_way_leaves_less_to_learn_and_changes_no_mean():
    model = some_model(np.random.default_rng(1))
    place, time = np.array([[0.9, 0.9]]), np.array([7.0])
    imagined = model.imagining(place, time)
    others = np.random.default_rng(2).random((20, 2)), np.full(20, 7.0)
    np.testing.assert_allclose(imagined.at(*others)[0], model.at(*others)[0], atol=1e-6)
    assert (imagined.at(*others)[1] <= model.at(*others)[1] + 1e-9).all()
    assert imagined.at(place, time)[1] < 0.8 * model.at(place, time)[1]


def test_it_finds_out_how_far_values_reach_and_how_fast_they_change():
    rng = np.random.default_rng(3)
    x, t = rng.random((80, 1)), rng.integers(0, 20, 80).astype(float)
    smooth = Surrogate.fitted(x, t, np.sin(3 * x[:, 0]) + 0.01 * rng.standard_normal(80))
    assert (smooth.forgetting, smooth.noise) == (0.0, 0.01)
    rough = Surrogate.fitted(x, t, np.sin(25 * x[:, 0]))
    assert rough.length < smooth.length
    noisy = Surrogate.fitted(x, t, np.sin(3 * x[:, 0]) + rng.standard_normal(80))
    assert noisy.noise > 0.1
    moving = Surrogate.fitted(x, t, np.sin(3 * x[:, 0] + 2 * t))
    assert moving.forgetting > 0
    flat = Surrogate.fitted(x, t, np.full(80, 3.0))
    np.testing.assert_allclose(flat.at(x[:3], t[:3])[0], 3.0)


def rates_of(settings, rounds=14):
    """Rates of all copies that explored, oldest first."""
    strategy, found, known = make(settings, Peaked()), [], {}
    for _ in range(rounds):
        candidates = strategy.ask(settings.population)
        for row, parent in enumerate(candidates.parents[:, 0].tolist()):
            rate = float(candidates.genomes["rate"][row, 0])
            if parent >= 0 and rate != known[parent]:
                found.append(rate)
        told = evaluated(candidates, Peaked())
        known |= dict(zip(told.ids.tolist(), told.genomes["rate"][:, 0].tolist(), strict=True))
        strategy.tell(told)
    return np.array(found)


def test_copies_go_where_most_was_gained():
    rates = rates_of(PB2Settings(population=8, fraction=0.25))
    assert ((rates >= 1e-5) & (rates <= 1e-1)).all()
    assert np.abs(np.log10(rates[-8:] / BEST)).mean() < 0.3  # orders of magnitude; anywhere: 1


def test_numbers_that_cannot_work_are_refused():
    for wrong, said in (
        ({"least": 1}, "evo.least is 1"),
        ({"memory": 3}, "evo.memory is 3; it must be at least evo.least"),
        ({"confidence": -1.0}, "evo.confidence is -1.0"),
        ({"population": 1}, "evo.population is 1"),
    ):
        with pytest.raises(ConfigError, match=said):
            PB2Settings(**wrong)
