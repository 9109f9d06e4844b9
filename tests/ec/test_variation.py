"""What each setting of Variation does to a genome, and operators of one's own."""

import numpy as np
import pytest
from scipy import stats

from lamarckian_cli.ec import crossover, mutation
from lamarckian_cli.ec.coding import Coding, Integer, NetworkWeights, Permutation, Real, bounds
from lamarckian_cli.ec.variation import Operator, Variation
from lamarckian_cli.errors import ConfigError

LOW, HIGH = np.array([0.0, -1.0, 5.0]), np.array([1.0, 1.0, 9.0])
PART = Real(low=LOW, high=HIGH)
CODING = Coding({"x": PART})


def pairs(part, n=40, seed=0):
    return part.sample(2 * n, np.random.default_rng(seed)).reshape(2, n, part.size)


def test_the_defaults_are_debs():
    parents, ours, theirs = pairs(PART), np.random.default_rng(3), np.random.default_rng(3)
    children = Variation().vary({"x": parents}, CODING, ours)["x"]
    expected = crossover.sbx(parents, LOW, HIGH, eta=20, probability=0.9, rng=theirs).reshape(-1, 3)
    expected = mutation.polynomial(expected, LOW, HIGH, eta=20, probability=1 / 3, rng=theirs)
    np.testing.assert_array_equal(children.reshape(-1, 3), expected)


def test_vary_is_cross_and_then_mutate():
    parents, one, other = {"x": pairs(PART)}, np.random.default_rng(4), np.random.default_rng(4)
    variation = Variation(crossover="sbx_clamped", mutation="gaussian")
    crossed = variation.cross(parents, CODING, one)
    mutants = variation.mutate({"x": crossed["x"].reshape(-1, 3)}, CODING, one)
    children = variation.vary(parents, CODING, other)
    np.testing.assert_array_equal(children["x"].reshape(-1, 3), mutants["x"])


def test_none_leaves_everything_as_it_is():
    parents = {"x": pairs(PART)}
    children = Variation(crossover="none", mutation="none").vary(parents, CODING, np.random.default_rng(5))
    np.testing.assert_array_equal(children["x"], parents["x"])
    assert not np.shares_memory(children["x"], parents["x"])


def test_gaussian_mutation_is_measured_by_the_range_or_the_start_box():
    free = Real(low=np.full(2, -np.inf), high=np.full(2, np.inf), start=(-4.0, 6.0))
    rng = np.random.default_rng(6)
    variation = Variation(mutation="gaussian", sigma=0.2, mutation_probability=1.0)
    steps = variation.mutate({"x": np.zeros((4000, 2))}, Coding({"x": free}), rng)["x"]
    assert stats.kstest(steps.ravel(), stats.norm(0, 0.2 * 10).cdf).pvalue > 0.001
    wide = bounds(-1000, 1000, 2)
    steps = variation.mutate({"x": np.zeros((4000, 2))}, Coding({"x": wide}), rng)["x"]
    inside = steps[np.abs(steps) < 1000]
    assert stats.kstest(inside, stats.truncnorm(-2.5, 2.5, 0, 400).cdf).pvalue > 0.001


def test_integers_creep_a_share_of_their_range_and_at_least_one():
    part = Integer(low=np.array([0, 0]), high=np.array([1000, 3]))
    variation = Variation(integer_step=0.01, mutation_probability=1.0)
    before = np.tile([500, 1], (3000, 1))
    after = variation.mutate({"n": before}, Coding({"n": part}), np.random.default_rng(7))["n"]
    steps = np.abs(after - before)
    assert steps.max(axis=0).tolist() == [10, 1]
    assert steps.min() == 1
    far = Variation(integer_mutation="reset", mutation_probability=1.0)
    after = far.mutate({"n": before}, Coding({"n": part}), np.random.default_rng(7))["n"]
    assert np.abs(after - before)[:, 0].max() > 450


def test_probabilities_of_permutations_and_weights_are_their_own():
    coding = Coding({"tour": Permutation(size=9), "net": NetworkWeights(layers=(30, 20))})
    genomes = coding.sample(2000, np.random.default_rng(8))
    variation = Variation(permutation_probability=0.25, weights_probability=0.1, weights_sigma=0.5)
    mutants = variation.mutate(genomes, coding, np.random.default_rng(9))
    moved = (mutants["tour"] != genomes["tour"]).any(axis=1)
    assert stats.binomtest(int(moved.sum()), 2000, 0.25).pvalue > 0.001
    steps = (mutants["net"] - genomes["net"])[mutants["net"] != genomes["net"]]
    assert stats.binomtest(steps.size, 100_000, 0.1).pvalue > 0.001
    assert steps.std() == pytest.approx(0.5, rel=0.03)


class Middle(Operator):
    """Both children in the middle of their parents."""

    def __call__(self, values, part, rng):
        return np.stack([values.mean(axis=0)] * 2)


class Outside(Operator):
    def __call__(self, values, part, rng):
        return values + 100


class Short(Operator):
    def __call__(self, values, part, rng):
        return values[:1]


class Nothing(Operator):
    def __call__(self, values, part, rng):
        return None


def test_an_operator_of_ones_own_takes_the_place_of_a_name():
    parents = pairs(PART)
    children = Variation(crossover=Middle(), mutation="none").vary(
        {"x": parents}, CODING, np.random.default_rng(0)
    )
    np.testing.assert_allclose(children["x"][1], (parents[0] + parents[1]) / 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mutation": Outside()}, r"evo.variation.mutation \(Outside\) gave values that are outside"),
        (
            {"crossover": Short()},
            r"crossover \(Short\) gave float64 \[1, 40, 3\]; it must be float64 \[2, 40, 3\]",
        ),
        ({"crossover": Nothing()}, r"crossover \(Nothing\) gave NoneType"),
    ],
)
def test_an_operator_that_breaks_its_promise_is_named(settings, message):
    with pytest.raises(ConfigError, match=message):
        Variation(**settings).vary({"x": pairs(PART)}, CODING, np.random.default_rng(0))


def test_polynomial_mutation_needs_a_finite_range():
    free = Real(low=np.full(2, -np.inf), high=np.full(2, np.inf), start=(0.0, 1.0))
    endless = bounds(-1.7e308, 1.7e308, 1)
    for part in (free, endless):
        with pytest.raises(
            ConfigError, match=r"part 'w' has no finite range: .* evo.variation.mutation=gaussian"
        ):
            Variation().check(Coding({"x": PART, "w": part}))
        Variation(mutation="gaussian").check(Coding({"x": PART, "w": part}))
    Variation().check(CODING)
