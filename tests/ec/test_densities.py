"""Random operators against their published densities: moments and distribution tests at fixed seeds.

A test of p > 0.001 at a fixed seed is exact from run to run; a wrong exponent, bound or half
is off by tens of standard deviations.
"""

import numpy as np
import pytest
from pymoo.operators.crossover.sbx import cross_sbx
from pymoo.operators.mutation.pm import mut_pm
from scipy import integrate, stats

from lamarckian_cli.ec import crossover, mutation

N = 20_000
ENOUGH = 0.001  # the least p-value


class Spread:
    """β of SBX: the density of Deb & Agrawal (1995), cut off at β_b and normalised, all by quadrature."""

    def __init__(self, eta, bound):
        self.eta, self.bound = eta, bound
        self.whole = self.integral(lambda b: 1.0)
        points = np.concatenate((np.linspace(0, 1, 2001), 1 + np.geomspace(1e-4, min(bound, 400) - 1, 4000)))
        self.points = points
        self.values = integrate.cumulative_simpson(self.density(points), x=points, initial=0) / self.whole

    def density(self, b):
        b = np.asarray(b, float)
        tail = np.maximum(b, 1.0) ** -(self.eta + 2)
        return 0.5 * (self.eta + 1) * np.where(b <= 1, b**self.eta, tail)

    def integral(self, of):
        inside = integrate.quad(lambda b: of(b) * self.density(b), 0, 1)[0]
        return inside + integrate.quad(lambda b: of(b) * self.density(b), 1, self.bound, limit=200)[0]

    def mean(self, power):
        return self.integral(lambda b: b**power) / self.whole

    def cdf(self, b):
        return np.interp(b, self.points, self.values)


def crossed(operator, y1, y2, low, high, eta, seed=1):
    """Children [2, K], the lower first, of those of N pairs (y1, y2) that were recombined."""
    parents = np.broadcast_to(np.array([y1, y2])[:, None, None], (2, N, 1)).copy()
    children = operator(
        parents,
        np.array([low]),
        np.array([high]),
        eta=eta,
        probability=1.0,
        rng=np.random.default_rng(seed),
    )[:, :, 0]
    moved = (children != np.array([[y1], [y2]])).any(axis=0)
    assert abs(moved.mean() - 0.5) < 4 * np.sqrt(0.25 / N), "half of the variables are recombined"
    assert abs((children[0] < children[1])[moved].mean() - 0.5) < 4 * np.sqrt(0.5 / N), (
        "and half of those swapped"
    )
    return np.sort(children[:, moved], axis=0)


@pytest.mark.parametrize("eta", [2.0, 5.0, 20.0])
@pytest.mark.parametrize(("y1", "y2"), [(0.1, 0.3), (0.02, 0.9), (0.45, 0.55)])
def test_bounded_sbx_has_its_density(eta, y1, y2):
    low, high = 0.0, 1.0
    lower, upper = crossed(crossover.sbx, y1, y2, low, high, eta)
    for child, to_bound in ((lower, y1 - low), (upper, high - y2)):
        spread = Spread(eta, 1 + 2 * to_bound / (y2 - y1))
        beta = 2 * np.abs(child - (y1 + y2) / 2) / (y2 - y1)
        assert beta.max() <= spread.bound * (1 + 1e-9)
        assert stats.kstest(beta, spread.cdf).pvalue > ENOUGH
        for power in (1, 2):
            error = np.std(beta**power) / np.sqrt(len(beta))
            assert abs(np.mean(beta**power) - spread.mean(power)) < 4 * error


@pytest.mark.parametrize("operator", [crossover.sbx, crossover.sbx_clamped])
def test_sbx_far_from_its_bounds_has_the_density_without_bounds(operator):
    lower, upper = crossed(operator, 1.0, 3.0, -1e4, 1e4, eta=8.0)
    np.testing.assert_allclose(lower + upper, 4.0)  # one spread for both children
    assert stats.kstest(upper - 2.0, Spread(8.0, np.inf).cdf).pvalue > ENOUGH


def test_clamped_sbx_puts_what_would_be_outside_on_the_bound():
    eta, y1, y2 = 3.0, 0.1, 0.5
    lower, _ = crossed(crossover.sbx_clamped, y1, y2, 0.0, 10.0, eta)
    bound = 1 + 2 * y1 / (y2 - y1)
    outside = 0.5 * bound ** -(eta + 1)  # the integral of the density beyond the bound
    assert stats.binomtest(int((lower == 0).sum()), len(lower), outside).pvalue > ENOUGH
    inside = Spread(eta, bound)
    assert stats.kstest(2 * (0.3 - lower[lower > 0]) / (y2 - y1), inside.cdf).pvalue > ENOUGH


def test_sbx_is_pymoos():
    rng = np.random.default_rng(4)
    low, high = np.array([0.0, -5.0, 2.0]), np.array([1.0, 5.0, 2.5])
    parents = rng.uniform(low, high, (2, 1, 3)).repeat(N, axis=1)
    ours = crossover.sbx(parents, low, high, eta=15.0, probability=1.0, rng=rng)
    each = np.full((N, 1), 15.0), np.full((N, 1), 0.5)
    theirs = cross_sbx(parents, low, high, each[0], np.full((N, 1), 0.5), each[1], random_state=rng)
    for d in range(3):
        # Sorted, for which child is which is drawn in different ways.
        for mine, other in zip(np.sort(ours[:, :, d], axis=0), np.sort(theirs[:, :, d], axis=0), strict=True):
            assert stats.ks_2samp(mine, other).pvalue > ENOUGH


class Step:
    """Polynomial mutation of y in [low, high]: each way the density (η+1)(1-δ)^η, cut off at the bound."""

    def __init__(self, y, low, high, eta):
        self.y, self.span, self.eta = y, high - low, eta
        self.down, self.up = (y - low) / self.span, (high - y) / self.span

    def mass(self, delta):
        """The density's integral from 0 to delta."""
        return 1 - (1 - delta) ** (self.eta + 1)

    def cdf(self, x):
        delta = (np.asarray(x) - self.y) / self.span
        with np.errstate(invalid="ignore", divide="ignore"):
            below = 0.5 * (1 - self.mass(np.clip(-delta, 0, self.down)) / self.mass(self.down))
            above = 0.5 + 0.5 * self.mass(np.clip(delta, 0, self.up)) / self.mass(self.up)
        return np.where(delta < 0, below, above)

    def moment(self, power):
        """The mean of (x - y)^power, by quadrature."""
        down, up = self.towards(-1, self.down, power), self.towards(1, self.up, power)
        return (down + up) / 2

    def towards(self, sign, most, power):
        """The mean of (x - y)^power of the steps one way, up to `most` of the span."""

        def weighted(delta):
            return (sign * delta * self.span) ** power * (self.eta + 1) * (1 - delta) ** self.eta

        return integrate.quad(weighted, 0, most)[0] / self.mass(most)


@pytest.mark.parametrize("eta", [1.0, 20.0, 100.0])
@pytest.mark.parametrize("y", [-1.9, 0.3, 2.99])
def test_polynomial_mutation_has_its_density(eta, y):
    low, high = np.array([-2.0]), np.array([3.0])
    rng = np.random.default_rng(2)
    mutants = mutation.polynomial(np.full((N, 1), y), low, high, eta=eta, probability=1.0, rng=rng)[:, 0]
    step = Step(y, -2.0, 3.0, eta)
    assert stats.kstest(mutants, step.cdf).pvalue > ENOUGH
    for power in (1, 2):
        moved = (mutants - y) ** power
        assert abs(moved.mean() - step.moment(power)) < 4 * moved.std() / np.sqrt(N)


def test_polynomial_mutation_on_a_bound_goes_inside_or_stays():
    low, high = np.zeros(1), np.ones(1)
    rng = np.random.default_rng(2)
    mutants = mutation.polynomial(np.zeros((N, 1)), low, high, eta=20.0, probability=1.0, rng=rng)
    assert stats.binomtest(int((mutants == 0).sum()), N, 0.5).pvalue > ENOUGH
    assert stats.kstest(mutants[mutants > 0], lambda x: 1 - (1 - x) ** 21).pvalue > ENOUGH


def test_polynomial_mutation_is_pymoos():
    rng = np.random.default_rng(5)
    low, high = np.array([0.0, -5.0, 2.0]), np.array([1.0, 5.0, 2.5])
    x = np.tile([0.01, 2.0, 2.25], (N, 1))
    ours = mutation.polynomial(x, low, high, eta=20.0, probability=0.4, rng=rng)
    theirs = mut_pm(x, low, high, np.full(N, 20.0), np.full(N, 0.4), False, random_state=rng)
    for mine, other in zip(ours.T, theirs.T, strict=True):
        assert stats.ks_2samp(mine, other).pvalue > ENOUGH


def test_how_many_numbers_are_mutated():
    rng = np.random.default_rng(6)
    low, high = np.full(30, -1.0), np.full(30, 1.0)
    mutants = mutation.polynomial(np.zeros((N // 10, 30)), low, high, eta=20.0, probability=1 / 30, rng=rng)
    assert stats.binomtest(int((mutants != 0).sum()), mutants.size, 1 / 30).pvalue > ENOUGH


def test_gaussian_steps_are_normal_and_clamped():
    rng = np.random.default_rng(7)
    low, high = np.array([-np.inf, 0.0]), np.array([np.inf, 9.0])
    sigma = np.array([2.0, 0.5])
    mutants = mutation.gaussian(np.full((N, 2), 0.25), low, high, sigma=sigma, probability=1.0, rng=rng)
    assert stats.kstest(mutants[:, 0], stats.norm(0.25, 2.0).cdf).pvalue > ENOUGH
    on_bound = int((mutants[:, 1] == 0).sum())
    assert stats.binomtest(on_bound, N, stats.norm(0.25, 0.5).cdf(0)).pvalue > ENOUGH
    flat = mutation.weights(np.ones((N, 2), np.float32), sigma=0.1, probability=0.3, rng=rng)
    assert stats.binomtest(int((flat != 1).sum()), flat.size, 0.3).pvalue > ENOUGH
    assert stats.kstest(flat[flat != 1], stats.norm(1, 0.1).cdf).pvalue > ENOUGH


def test_whole_numbers_go_everywhere_alike():
    rng = np.random.default_rng(8)
    low, high = np.array([-2]), np.array([6])
    x = np.full((N, 1), 1)
    anywhere = mutation.reset(x, low, high, probability=1.0, rng=rng)
    assert alike(anywhere, [-2, -1, 0, 2, 3, 4, 5, 6]) > ENOUGH
    near = mutation.creep(x, low, high, step=np.array([2]), probability=1.0, rng=rng)
    assert alike(near, [-1, 0, 2, 3]) > ENOUGH
    at_bound = mutation.creep(x - 3, low, high, step=np.array([3]), probability=1.0, rng=rng)
    assert alike(at_bound, [-1, 0, 1]) > ENOUGH
    some = mutation.reset(x, low, high, probability=0.2, rng=rng)
    assert stats.binomtest(int((some != 1).sum()), N, 0.2).pvalue > ENOUGH


def alike(values, expected):
    """The p-value of the expected values being equally frequent; 0 where they are not those found."""
    found, counts = np.unique(values, return_counts=True, axis=0)
    if found.squeeze(axis=1).tolist() != expected:
        return 0.0
    return stats.chisquare(counts).pvalue
