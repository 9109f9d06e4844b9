"""Elo against its formula; the Bayesian rating against published examples and numerical integration."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from lamarckian_cli.launch import checkpoint
from lamarckian_cli.selfplay.payoff import DRAW, LOSS, WIN
from lamarckian_cli.selfplay.ratings import Bayes, Elo, Rating, Ratings, beyond, within

DEFAULT = (25.0, 25.0 / 3)


def rated(ratings: Ratings, *skills: tuple[float, float]) -> Ratings:
    """Players a, b, c, ... with these means and deviations."""
    names = [chr(ord("a") + i) for i in range(len(skills))]
    ratings.restore(
        {
            "players": names,
            "mean": [mean for mean, _ in skills],
            "deviation": [deviation for _, deviation in skills],
            "matches": [0] * len(skills),
            "frozen": [False] * len(skills),
        }
    )
    return ratings


def skills(ratings: Ratings) -> list[tuple[float, float]]:
    return [(ratings[name].mean, ratings[name].deviation) for name in sorted(ratings.means())]


# ------------------------------------------------------------------ Elo


@pytest.mark.parametrize(
    ("difference", "expected"),
    # FIDE Handbook B.02, table 8.1.2: expected score by rating difference, to two digits
    [(0, 0.50), (50, 0.57), (100, 0.64), (150, 0.70), (200, 0.76), (300, 0.85), (400, 0.92), (-100, 0.36)],
)
def test_elo_expects_the_published_score(difference: float, expected: float) -> None:
    elo = rated(Elo(), (1500 + difference, 0), (1500, 0))
    # FIDE's table is that of a normal distribution; the logistic one differs from it by up to 0.011.
    assert elo.expected("a", "b") == pytest.approx(expected, abs=0.011)


def test_400_points_are_odds_of_ten_to_one() -> None:
    elo = rated(Elo(), (1900, 0), (1500, 0), (1100, 0))
    assert elo.expected("a", "b") == pytest.approx(10 / 11, abs=1e-15)
    assert elo.expected("a", "c") == pytest.approx(100 / 101, abs=1e-15)


@pytest.mark.parametrize(
    ("score", "gain"), [(WIN, 16 * 1 / 11), (DRAW, 16 * (0.5 - 10 / 11)), (LOSS, -160 / 11)]
)
def test_elo_moves_k_times_the_surprise(score: float, gain: float) -> None:
    elo = rated(Elo(k=16), (1900, 0), (1500, 0))
    elo.record(["a"], ["b"], score)
    assert elo["a"].mean == pytest.approx(1900 + gain, abs=1e-9)
    assert elo["b"].mean == pytest.approx(1500 - gain, abs=1e-9)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.permutations("abcdef"), st.integers(1, 3), st.sampled_from([WIN, DRAW, LOSS])),
        max_size=30,
    )
)
def test_elo_only_moves_points_between_players(matches: list[tuple[list[str], int, float]]) -> None:
    elo = rated(Elo(k=32), *[(1500 + 40.0 * i, 0.0) for i in range(6)])
    for names, size, score in matches:
        elo.record(names[:size], names[size : 2 * size], score)
    assert sum(elo.means().values()) == pytest.approx(6 * 1500 + 40 * 15, abs=1e-8)


# ------------------------------------------------------------------ Bayes

PUBLISHED = [
    # Unit tests of J. Moser's TrueSkill calculator (2010): teams, score, ratings after the match
    (
        [[DEFAULT], [DEFAULT]],
        WIN,
        [(29.39583201999924, 7.171475587326186), (20.60416798000076, 7.171475587326186)],
    ),
    ([[DEFAULT], [DEFAULT]], DRAW, [(25.0, 6.4575196623173081)] * 2),
    ([[DEFAULT], [(50, 12.5)]], DRAW, [(31.662, 7.137), (35.010, 7.910)]),
    ([[DEFAULT] * 2, [DEFAULT] * 2], WIN, [(28.108, 7.774)] * 2 + [(21.892, 7.774)] * 2),
    ([[DEFAULT] * 2, [DEFAULT] * 2], DRAW, [(25, 7.455)] * 4),
    (
        [[(15, 8), (20, 6)], [(25, 4), (30, 3)]],
        DRAW,
        [(21.570, 6.556), (23.696, 5.418), (23.357, 3.833), (29.075, 2.931)],
    ),
    (
        [[(20, 8), (25, 6)], [(35, 7), (40, 5)]],
        WIN,
        [(29.698, 7.008), (30.455, 5.594), (27.575, 6.346), (36.211, 4.768)],
    ),
    ([[DEFAULT] * 4, [DEFAULT] * 4], WIN, [(27.198, 8.059)] * 4 + [(22.802, 8.059)] * 4),
]


@pytest.mark.parametrize(("teams", "score", "after"), PUBLISHED)
def test_bayes_gives_the_published_ratings(
    teams: list[list[tuple[float, float]]], score: float, after: list[tuple[float, float]]
) -> None:
    bayes = rated(Bayes(), *teams[0], *teams[1])
    names = sorted(bayes.means())
    bayes.record(names[: len(teams[0])], names[len(teams[0]) :], score)
    np.testing.assert_allclose(skills(bayes), after, atol=1e-3)  # some are cut off after three digits


def test_bayes_on_the_scale_of_chess_gives_the_published_ratings() -> None:
    chess = Bayes(mean=1200, deviation=400, beta=200, drift=4, draw_rate=0.03)
    rated(chess, (1301.0007, 42.9232), (1188.7560, 42.5570))
    chess.record(["a"], ["b"], WIN)
    expected = [(1304.7820836053318, 42.843513887848658), (1185.0383099003536, 42.485604606897752)]
    np.testing.assert_allclose(skills(chess), expected, atol=1e-3)  # his inverse normal is approximate


@pytest.mark.parametrize(
    ("score", "before"),
    list(itertools.product([WIN, DRAW, LOSS], [((25, 8), (25, 8)), ((20, 3), (32, 6)), ((10, 7), (40, 2))])),
)
def test_bayes_has_the_moments_of_the_posterior(
    score: float, before: tuple[tuple[float, float], tuple[float, float]]
) -> None:
    """Both skills on a fine grid, the likelihood of the result at each point, and sums."""
    beta, draw_rate = 4.0, 0.2
    bayes = rated(Bayes(beta=beta, drift=0, draw_rate=draw_rate), *before)
    bayes.record(["a"], ["b"], score)
    grids = [np.linspace(mean - 9 * deviation, mean + 9 * deviation, 601) for mean, deviation in before]
    a, b = np.meshgrid(*grids, indexing="ij")
    margin = norm.ppf((1 + draw_rate) / 2) * math.sqrt(2) * beta
    noise = norm(scale=math.sqrt(2) * beta)
    chance = {
        WIN: lambda: noise.sf(margin - (a - b)),
        DRAW: lambda: noise.cdf(margin - (a - b)) - noise.cdf(-margin - (a - b)),
        LOSS: lambda: noise.cdf(-margin - (a - b)),
    }[score]()
    density = norm.pdf(a, *before[0]) * norm.pdf(b, *before[1]) * chance
    density /= density.sum()
    for name, grid, axis in (("a", grids[0], 1), ("b", grids[1], 0)):
        marginal = density.sum(axis)
        mean = (marginal * grid).sum()
        assert bayes[name].mean == pytest.approx(mean, abs=1e-4)
        assert bayes[name].deviation == pytest.approx(
            math.sqrt((marginal * (grid - mean) ** 2).sum()), abs=1e-4
        )


def test_equals_of_known_skill_draw_at_the_draw_rate_and_expect_half() -> None:
    bayes = rated(Bayes(draw_rate=0.3), (25, 1e-9), (25, 1e-9), (30, 1e-9))
    assert bayes.expected("a", "b") == pytest.approx(0.5)
    # one is better by 5: win and draw, integrated over the difference of performances
    draws = np.random.default_rng(0).normal(5, math.sqrt(2) * 25 / 6, 4_000_000)
    margin = norm.ppf(0.65) * math.sqrt(2) * 25 / 6
    expected = (draws > margin).mean() + (np.abs(draws) <= margin).mean() / 2
    assert bayes.expected("c", "a") == pytest.approx(expected, abs=1e-3)
    assert bayes.expected("c", "a") + bayes.expected("a", "c") == pytest.approx(1)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(-100, 100), st.floats(0.01, 30)), min_size=2, max_size=2),
    st.sampled_from([WIN, DRAW, LOSS]),
    st.sampled_from([0.0, 0.001, 0.1, 0.9]),
)
def test_every_result_of_players_who_stay_as_they_are_makes_us_surer(
    before: list[tuple[float, float]], score: float, draw_rate: float
) -> None:
    bayes = rated(Bayes(drift=0, draw_rate=draw_rate), *before)
    bayes.record(["a"], ["b"], score)
    for (_, deviation), name in zip(before, "ab", strict=True):
        assert 0 < bayes[name].deviation <= deviation * (1 + 1e-12)
    if score == WIN:
        assert bayes["a"].mean >= before[0][0]
        assert bayes["b"].mean <= before[1][0]


@pytest.mark.parametrize("t", [-300.0, -40.0, -5.0, -0.5, 0.0, 0.5, 5.0, 40.0, 300.0])
def test_far_from_what_was_expected_nothing_overflows(t: float) -> None:
    for v, w in (beyond(t), within(t, 0.1), within(t, 1e-9)):
        assert math.isfinite(v)
        assert -1e-6 <= w <= 1 + 1e-6
    assert t + beyond(t)[0] >= 0  # what turned out above 0 has its mean there
    assert abs(t + within(t, 0.1)[0]) <= 0.1 + 1e-9


def test_what_stays_is_known_better_and_what_learns_drifts() -> None:
    bayes = Bayes(drift=1.0)
    bayes.add("main")
    bayes.add("main#0", frozen=True)
    last = bayes["main#0"].deviation
    for match in range(400):
        bayes.record(["main"], ["main#0"], (WIN, LOSS)[match % 2])
        assert bayes["main#0"].deviation < last
        last = bayes["main#0"].deviation
    assert bayes["main"].deviation > 1.0


def test_a_snapshot_starts_where_its_policy_stands() -> None:
    bayes = Bayes()
    bayes.add("main")
    bayes.add("other")
    for _ in range(5):
        bayes.record(["main"], ["other"], WIN)
    bayes.add("main#0", like="main", frozen=True)
    main = bayes["main"]
    assert bayes["main#0"] == Rating(mean=main.mean, deviation=main.deviation, matches=0, frozen=True)
    assert main.matches == 5


@pytest.mark.parametrize("ratings", [Elo(), Bayes()])
def test_the_leaderboard_puts_the_known_good_before_the_unknown(ratings: Ratings) -> None:
    for name in ("strong", "weak", "new"):
        ratings.add(name)
    for _ in range(30):
        ratings.record(["strong"], ["weak"], WIN)
    order = [name for name, _ in ratings.leaderboard()]
    assert order[0] == "strong"
    assert order[-1] == ("new" if isinstance(ratings, Bayes) else "weak")


@pytest.mark.parametrize(
    ("home", "away", "score"),
    [
        (["a"], ["b"], 0.3),
        (["a"], ["b", "c"], WIN),
        (["a"], ["a"], WIN),
        (["a", "a"], ["b", "c"], WIN),
        ([], [], WIN),
    ],
)
def test_a_match_that_cannot_be_rated_is_refused(home: list[str], away: list[str], score: float) -> None:
    elo = rated(Elo(), *[(1500.0, 0.0)] * 3)
    with pytest.raises(ValueError, match=r"match is won|sides are of equal size"):
        elo.record(home, away, score)
    assert skills(elo) == [(1500.0, 0.0)] * 3


@pytest.mark.parametrize("ratings", [Elo(k=20), Bayes(draw_rate=0.25)])
def test_restored_ratings_are_the_same_bit_for_bit_and_go_on(ratings: Ratings, tmp_path: Path) -> None:
    restored = type(ratings)(k=20) if isinstance(ratings, Elo) else Bayes(draw_rate=0.25)
    for path in (tmp_path / "empty.ckpt", tmp_path / "a.ckpt"):
        checkpoint.save(path, ratings.state())
        restored.restore(checkpoint.load(path))
        assert restored.leaderboard() == ratings.leaderboard()
        for one in (ratings, restored):
            for name, frozen in (("main", False), ("main#0", True)):
                if name not in one:
                    one.add(name, frozen=frozen)
            for score in (WIN, WIN, DRAW, LOSS, WIN):
                one.record(["main"], ["main#0"], score)
        assert restored.leaderboard() == ratings.leaderboard()
