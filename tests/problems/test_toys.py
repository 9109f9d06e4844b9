"""The toy problem of PBT against its closed form; arm and projection against geometry written out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lamarckian_cli.problems.behaviour import Arm, Projection
from lamarckian_cli.problems.pbt_toy import PBTToy

SEEDS = np.arange(3)


def test_pbt_toy_starts_where_the_paper_does() -> None:
    genomes = PBTToy().initialize(5, np.random.default_rng(0))
    np.testing.assert_array_equal(genomes["weights"], np.full((5, 2), np.float32(0.9)))
    assert ((genomes["h"] >= 0.0) & (genomes["h"] <= 1.0)).all()


def test_pbt_toy_trains_by_the_gradient_of_the_surrogate() -> None:
    problem = PBTToy(steps=7, lr=0.02)
    h = np.array([[1.0, 0.0], [0.0, 1.0], [0.3, 0.6]])
    weights = np.array([[0.9, 0.9], [0.9, 0.9], [0.2, -0.5]], np.float32)
    results = problem.evaluate({"h": h, "weights": weights}, SEEDS)
    # A step of gradient ascent on 1.2 - h w^2 multiplies w by 1 - 2 lr h.
    expected = weights * (1.0 - 2 * 0.02 * h) ** 7
    assert results.genomes is not None
    np.testing.assert_allclose(results.genomes["weights"], expected, rtol=1e-6)
    np.testing.assert_allclose(results.objectives[:, 0], 1.2 - (expected**2).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(results.cost, [7.0, 7.0, 7.0])


def test_pbt_toy_needs_the_other_member() -> None:
    """With h = (1, 0) training never gets beyond 1.2 - 0.9^2; with the other's h from there on it does."""
    problem = PBTToy(steps=50)
    genomes = {"h": np.array([[1.0, 0.0]]), "weights": np.full((1, 2), 0.9, np.float32)}
    for _ in range(20):
        results = problem.evaluate(genomes, SEEDS[:1])
        assert results.genomes is not None
        genomes = results.genomes
    assert results.objectives.item() == pytest.approx(1.2 - 0.81, abs=1e-6)
    genomes["h"] = np.array([[0.0, 1.0]])
    for _ in range(20):
        results = problem.evaluate(genomes, SEEDS[:1])
        assert results.genomes is not None
        genomes = results.genomes
    assert results.objectives.item() == pytest.approx(1.2, abs=1e-6)


def test_the_arm_reaches_where_its_links_lead() -> None:
    problem = Arm(joints=4)
    x = np.array([[0.0, 0.0, 0.0, 0.0], [math.pi / 2] * 4, [0.3, -0.7, 1.1, 0.2]])
    results = problem.evaluate({"x": x}, SEEDS)
    for row, measures, objective in zip(x, results.measures, results.objectives, strict=True):
        angle, tip = 0.0, 0j
        for turn in row:
            angle += turn
            tip += 0.25 * complex(math.cos(angle), math.sin(angle))
        np.testing.assert_allclose(measures, [tip.real, tip.imag], atol=1e-12)
        mean = sum(row) / 4
        assert objective[0] == pytest.approx(sum((v - mean) ** 2 for v in row) / 4, abs=1e-12)
    np.testing.assert_allclose(results.measures[:2], [[1.0, 0.0], [0.0, 0.0]], atol=1e-12)


@pytest.mark.parametrize("function", ["sphere", "rastrigin"])
def test_projection_sums_halves_and_clips(function: str) -> None:
    problem = Projection(function=function, dim=5)  # type: ignore[arg-type]
    x = np.array([[1.0, 10.24, -3.0, -10.24, 5.12], [2.048] * 5])
    results = problem.evaluate({"x": x}, SEEDS[:2])
    np.testing.assert_allclose(results.measures, [[1.0 + 0.5, -3.0 - 0.5 + 5.12], [4.096, 6.144]])
    expected = 0.0
    for v in x[0] - 2.048:
        expected += v**2 + (10 - 10 * math.cos(2 * math.pi * v) if function == "rastrigin" else 0.0)
    np.testing.assert_allclose(results.objectives[:, 0], [expected, 0.0], atol=1e-12)
