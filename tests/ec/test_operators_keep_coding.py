"""Whatever goes in, what comes out of an operator follows the coding, and nothing that went in is changed."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamarckian_cli.ec import crossover, mutation
from lamarckian_cli.ec.coding import Categorical, Coding, Integer, NetworkWeights, Permutation, Real
from lamarckian_cli.ec.variation import CHOICES, Variation
from lamarckian_cli.errors import ConfigError

exact = settings(deadline=None, derandomize=True, max_examples=50)

seeds = st.integers(0, 2**32)
sizes = st.integers(1, 7)
counts = st.integers(0, 5)
probabilities = st.sampled_from([0.0, 0.3, 1.0])
etas = st.sampled_from([0.0, 1.0, 20.0, 500.0])
edges = st.sampled_from([-1e300, -5.0, -1e-12, 0.0, 5e-324, 1e-9, 1.0, 3.5, 1e6, 1e300])
whole_edges = st.sampled_from([-(2**63), -(2**40), -3, -1, 0, 1, 2, 100, 2**53, 2**63 - 1])


@st.composite
def reals(draw):
    """A real part, bounds possibly equal, tiny or huge."""
    pairs = draw(st.lists(st.tuples(edges, edges), min_size=1, max_size=7))
    return Real(low=np.array([min(p) for p in pairs]), high=np.array([max(p) for p in pairs]))


@st.composite
def integers(draw):
    pairs = draw(st.lists(st.tuples(whole_edges, whole_edges), min_size=1, max_size=7))
    return Integer(
        low=np.array([min(p) for p in pairs], np.int64), high=np.array([max(p) for p in pairs], np.int64)
    )


categoricals = st.lists(st.integers(1, 4), min_size=1, max_size=7).map(
    lambda s: Categorical(sizes=np.array(s))
)
permutations = sizes.map(lambda size: Permutation(size=size))
networks = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(lambda s: NetworkWeights(layers=tuple(s)))
parts = st.one_of(reals(), integers(), categoricals, permutations, networks)


def genomes_of(part, n, seed):
    """n genomes: at random, but a third of the numbers on each bound, where the formulas have their ends."""
    rng = np.random.default_rng(seed)
    if not isinstance(part, Real):
        return part.sample(n, rng)
    where = rng.integers(0, 3, (n, part.size))
    middle = part.low + rng.random((n, part.size)) * (part.high / 2 - part.low / 2)
    return np.where(
        where == 0, part.low, np.where(where == 1, part.high, np.clip(middle, part.low, part.high))
    )


def pairs_of(part, n, seed, alike):
    values = genomes_of(part, 2 * n, seed).reshape(2, n, part.size)
    return np.stack([values[0], values[0]]) if alike else values


def check(part, before, operate):
    """Run `operate`; its result has the shape, dtype and coding of what it got, which stays as it was."""
    copy = before.copy()
    after = operate(before)
    assert after.shape == before.shape
    assert after.dtype == before.dtype == part.dtype
    assert part.holds(after.reshape(-1, part.size))
    np.testing.assert_array_equal(before, copy)
    assert not np.shares_memory(before, after)
    return after


@pytest.mark.parametrize("operator", [crossover.sbx, crossover.sbx_clamped])
@exact
@given(part=reals(), n=counts, seed=seeds, alike=st.booleans(), probability=probabilities, eta=etas)
def test_sbx(operator, part, n, seed, alike, probability, eta):
    parents = pairs_of(part, n, seed, alike)
    children = check(
        part,
        parents,
        lambda x: operator(
            x, part.low, part.high, eta=eta, probability=probability, rng=np.random.default_rng(seed)
        ),
    )
    if alike or probability == 0:
        np.testing.assert_array_equal(children, parents)


@exact
@given(n=counts, seed=seeds, eta=etas)
def test_sbx_without_bounds(n, seed, eta):
    part = Real(low=np.full(3, -np.inf), high=np.array([np.inf, 1.0, np.inf]), start=(-1.0, 1.0))
    parents = part.sample(2 * n, np.random.default_rng(seed)).reshape(2, n, 3)
    children = check(
        part,
        parents,
        lambda x: crossover.sbx(
            x, part.low, part.high, eta=eta, probability=1.0, rng=np.random.default_rng(seed)
        ),
    )
    assert np.isfinite(children).all()
    # Children are as far from the middle of their parents as from each other: their sum stays.
    np.testing.assert_allclose(children.sum(axis=0)[:, [0, 2]], parents.sum(axis=0)[:, [0, 2]], atol=1e-9)


@pytest.mark.parametrize("operator", [crossover.one_point, crossover.two_point, crossover.uniform])
@exact
@given(part=parts, n=counts, seed=seeds, probability=probabilities)
def test_exchanges_lose_no_number(operator, part, n, seed, probability):
    parents = pairs_of(part, n, seed, alike=False)
    children = operator(parents, probability=probability, rng=np.random.default_rng(seed))
    assert children.dtype == parents.dtype
    np.testing.assert_array_equal(np.sort(children, axis=0), np.sort(parents, axis=0))
    if probability == 0:
        np.testing.assert_array_equal(children, parents)


@exact
@given(part=networks, n=counts, seed=seeds, probability=probabilities)
def test_layers_stay_whole(part, n, seed, probability):
    parents = pairs_of(part, n, seed, alike=False)
    children = check(
        part,
        parents,
        lambda x: crossover.layers(x, part.layers, probability=probability, rng=np.random.default_rng(seed)),
    )
    exchanged = (children[0] != parents[0]).astype(int)
    for row in exchanged:
        by_layer = [set(layer) for layer in np.split(row, np.cumsum(part.layers)[:-1])]
        assert all(len(layer) == 1 for layer in by_layer), "a layer was cut"
        flags = [layer.pop() for layer in by_layer]
        assert flags == sorted(flags), "there is more than one cut"
        assert not flags[0], "everything was exchanged"


@pytest.mark.parametrize("operator", [crossover.order, crossover.edge])
@exact
@given(part=permutations, n=counts, seed=seeds, alike=st.booleans(), probability=probabilities)
def test_crossover_of_permutations(operator, part, n, seed, alike, probability):
    parents = pairs_of(part, n, seed, alike)
    children = check(
        part, parents, lambda x: operator(x, probability=probability, rng=np.random.default_rng(seed))
    )
    if probability == 0 or (alike and operator is crossover.order):
        np.testing.assert_array_equal(children, parents)


@exact
@given(part=reals(), n=counts, seed=seeds, probability=probabilities, eta=etas)
def test_polynomial(part, n, seed, probability, eta):
    operate = partial(mutation.polynomial, eta=eta, probability=probability, rng=np.random.default_rng(seed))
    before = genomes_of(part, n, seed)
    after = check(part, before, lambda x: operate(x, part.low, part.high))
    if probability == 0:
        np.testing.assert_array_equal(after, before)


@exact
@given(part=reals(), n=counts, seed=seeds, probability=probabilities)
def test_gaussian(part, n, seed, probability):
    before = genomes_of(part, n, seed)
    sigma = (part.high / 2 - part.low / 2) * 0.1
    operate = partial(
        mutation.gaussian, sigma=sigma, probability=probability, rng=np.random.default_rng(seed)
    )
    after = check(part, before, lambda x: operate(x, part.low, part.high))
    if probability == 0:
        np.testing.assert_array_equal(after, before)


@exact
@given(part=integers(), n=counts, seed=seeds)
def test_reset_and_creep_always_change_what_can_change(part, n, seed):
    before, rng = genomes_of(part, n, seed), np.random.default_rng(seed)
    can_change = np.broadcast_to(part.high > part.low, before.shape)
    after = check(part, before, lambda x: mutation.reset(x, part.low, part.high, probability=1.0, rng=rng))
    np.testing.assert_array_equal(after != before, can_change)
    step = rng.integers(1, 4, part.size)
    after = check(
        part, before, lambda x: mutation.creep(x, part.low, part.high, step=step, probability=1.0, rng=rng)
    )
    np.testing.assert_array_equal(after != before, can_change)
    for new, old, most in zip(after.ravel(), before.ravel(), np.tile(step, n), strict=True):
        assert abs(int(new) - int(old)) <= most


@pytest.mark.parametrize("operator", [mutation.swap, mutation.insert, mutation.invert])
@exact
@given(part=permutations, n=counts, seed=seeds, probability=probabilities)
def test_moves_of_permutations(operator, part, n, seed, probability):
    before = genomes_of(part, n, seed)
    after = check(
        part, before, lambda x: operator(x, probability=probability, rng=np.random.default_rng(seed))
    )
    changed = (after != before).any(axis=1)
    assert changed.all() == (probability == 1 and part.size > 1) or n == 0 or 0 < probability < 1
    if probability == 0:
        assert not changed.any()


@settings(exact, max_examples=100)
@given(
    coding=st.dictionaries(st.sampled_from("abcd"), parts, min_size=1).map(Coding),
    names=st.fixed_dictionaries({key: st.sampled_from([*known, "none"]) for key, known in CHOICES.items()}),
    n=counts,
    seed=seeds,
    probability=probabilities,
)
def test_variation_of_mixed_genomes(coding, names, n, seed, probability):
    variation = Variation(crossover_probability=probability, mutation_probability=probability, **names)
    parents = {name: pairs_of(part, n, seed, alike=False) for name, part in coding.parts.items()}
    copy = {name: values.copy() for name, values in parents.items()}
    children = variation.vary(parents, coding, np.random.default_rng(seed))
    assert list(children) == list(parents)
    coding.check({k: v.reshape(2 * n, v.shape[-1]) for k, v in children.items()}, "variation")
    for name in coding.parts:
        assert children[name].shape == parents[name].shape
        np.testing.assert_array_equal(parents[name], copy[name])
    again = variation.vary(parents, coding, np.random.default_rng(seed))
    for name, values in children.items():
        np.testing.assert_array_equal(values, again[name])


def test_settings_that_cannot_work_are_named():
    for wrong, message in [
        ({"crossover": "sbx2"}, "evo.variation.crossover is 'sbx2'; it must be one of: sbx, sbx_clamped"),
        ({"crossover_probability": 1.5}, "evo.variation.crossover_probability is 1.5; it must lie in"),
        ({"mutation_probability": -0.1}, "evo.variation.mutation_probability is -0.1; it must lie in"),
        ({"mutation_eta": -1.0}, "evo.variation.mutation_eta is -1.0; it must be at least 0"),
        ({"sigma": 0.0}, "evo.variation.sigma is 0.0; it must be above 0"),
        ({"weights_mutation": "reset"}, "evo.variation.weights_mutation is 'reset'; it must be one of"),
    ]:
        with pytest.raises(ConfigError, match=message):
            Variation(**wrong)
