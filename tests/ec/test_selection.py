"""Who is selected how often, against what each scheme promises."""

import numpy as np
import pytest
from scipy import stats

from lamarckian_cli.ec import selection

ENOUGH = 0.001


def counts(index, n):
    return np.bincount(index, minlength=n)


@pytest.mark.parametrize(("n", "size", "of"), [(10, 2, 10), (7, 3, 5), (1, 2, 100), (0, 2, 4), (4, 2, 1)])
def test_everybody_takes_part_equally_often(n, size, of):
    drawn = selection.contestants(n, size, of, np.random.default_rng(0))
    assert drawn.shape == (size, n)
    times = counts(drawn.ravel(), of)
    assert times.max() - times.min() <= 1
    assert times.sum() == n * size


def test_tournament_of_two_selects_the_best_twice_and_the_worst_never():
    keys = np.random.default_rng(1).permutation(50).astype(float)
    winners = selection.tournament(keys, 50, 2, np.random.default_rng(2))
    times = counts(winners, 50)
    assert times[keys.argmin()] == 2
    assert times[keys.argmax()] == 0


def test_tournament_wins_follow_the_size():
    # Within a round nobody is drawn twice: who wins has met size - 1 others, all of them worse.
    keys, rounds, rng = np.arange(6.0), 3000, np.random.default_rng(3)
    times = sum(counts(selection.tournament(keys, 2, 3, rng), 6) for _ in range(rounds))
    worse = np.arange(5, -1, -1)
    expected = worse * (worse - 1) / (5 * 4) * rounds
    assert (times[expected == 0] == 0).all()
    assert stats.chisquare(times[:4], expected[:4] * times.sum() / expected.sum()).pvalue > ENOUGH


def test_nan_never_wins_and_ties_are_fair():
    keys = np.array([np.nan, 1.0, 1.0, np.nan])
    rng = np.random.default_rng(4)
    times = sum(counts(selection.tournament(keys, 1, 4, rng), 4) for _ in range(2000))
    assert times[[0, 3]].sum() == 0
    assert stats.binomtest(int(times[1]), 2000).pvalue > ENOUGH


def test_crowded_tournament_prefers_rank_then_room():
    ranks = np.array([0, 0, 1, 1])
    crowding = np.array([0.5, np.inf, np.inf, 3.0])
    better = [1, 0, 2, 3]  # from the best to the worst
    rng = np.random.default_rng(5)
    times = sum(counts(selection.crowded_tournament(ranks, crowding, 2, rng), 4) for _ in range(3000))
    assert times[3] == 0
    assert times[1] == 3000  # it wins every contest, one a round
    # The second loses to the first alone, the third wins against the last alone.
    assert stats.binomtest(int(times[0]), 3000, 2 / 3).pvalue > ENOUGH
    assert [int(i) for i in np.argsort(-times)] == better


def test_truncation_keeps_the_best_in_order():
    keys = np.array([3.0, np.nan, 1.0, 1.0, np.inf, 0.0])
    assert selection.truncation(keys, 4).tolist() == [5, 2, 3, 0]
    assert selection.truncation(keys, 6).tolist() == [5, 2, 3, 0, 4, 1]


@pytest.mark.parametrize("weights", [[1.0, 0.0, 3.0, 6.0, 0.0], [0.0, 0.0, 0.0]])
def test_roulette_is_in_proportion(weights):
    weights = np.array(weights)
    times = counts(selection.roulette(weights, 10_000, np.random.default_rng(6)), len(weights))
    share = weights / weights.sum() if weights.any() else np.full(len(weights), 1 / len(weights))
    assert (times[share == 0] == 0).all()
    assert stats.chisquare(times[share > 0], 10_000 * share[share > 0]).pvalue > ENOUGH


def test_stochastic_universal_sampling_is_within_one_of_the_expected():
    rng = np.random.default_rng(7)
    first = []
    for _ in range(200):
        weights = rng.random(9) * (rng.random(9) < 0.8) + 1e-9
        drawn = selection.stochastic_universal(weights, 20, rng)
        first.append(drawn[0])
        times, expected = counts(drawn, 9), 20 * weights / weights.sum()
        assert (np.abs(times - expected) < 1).all()
    assert len(set(first)) > 4, "the order is not random"
    assert len(selection.stochastic_universal(np.ones(3), 0, rng)) == 0


def test_linear_ranking_is_bakers():
    # 2 - s + 2 (s - 1) (N - place) / (N - 1), place from 1 for the best
    keys = np.array([30.0, 10.0, 40.0, 20.0])
    place = np.array([3, 1, 4, 2])
    expected = 2 - 1.7 + 2 * 0.7 * (4 - place) / 3
    np.testing.assert_allclose(selection.ranking(keys, 1.7), expected)
    tied = selection.ranking(np.array([1.0, 2.0, 2.0, 3.0]), 2.0)
    np.testing.assert_allclose(tied, [2.0, 1.0, 1.0, 0.0])
