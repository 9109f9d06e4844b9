"""Whom a learner meets: frequencies against formulas, the guard, qualities, settings and their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from lamarckian_cli.errors import ConfigError
from lamarckian_cli.launch import checkpoint
from lamarckian_cli.selfplay import matchmaking
from lamarckian_cli.selfplay.choice import choose
from lamarckian_cli.selfplay.quality import Quality
from lamarckian_cli.selfplay.settings import SelfPlay

NEWEST = np.array([False, False, False, True])
RATES = np.array([0.9, 0.2, 0.6, 0.5])
QUALITY = np.array([0.0, -1.0, 0.5, 9.0])
ROCK_PAPER_SCISSORS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], float)

PAST = np.exp([0.0, -1.0, 0.5])
CASES: dict[str, tuple[Callable[[], np.ndarray], np.ndarray]] = {
    "latest": (lambda: matchmaking.latest(NEWEST), np.array([0, 0, 0, 1])),
    "uniform": (lambda: matchmaking.uniform(4), np.full(4, 0.25)),
    "mixed": (
        lambda: matchmaking.mixed(NEWEST, QUALITY, share=0.8),
        np.array([*(0.2 * PAST / PAST.sum()), 0.8]),
    ),
    "pfsp hard": (
        lambda: matchmaking.pfsp(RATES, weighting="hard", power=2),
        np.array([0.01, 0.64, 0.16, 0.25]) / 1.06,
    ),
    "pfsp even": (
        lambda: matchmaking.pfsp(RATES, weighting="even", power=2),
        np.array([0.09, 0.16, 0.24, 0.25]) / 0.74,
    ),
    "nash": (lambda: matchmaking.nash(ROCK_PAPER_SCISSORS), np.full(3, 1 / 3)),
}


@pytest.mark.parametrize("case", CASES)
def test_opponents_are_met_as_often_as_the_formula_says(case: str) -> None:
    rule, expected = CASES[case]
    chances, rng = rule(), np.random.default_rng(3)
    np.testing.assert_allclose(chances, expected, atol=1e-7)
    met = np.bincount([choose(chances, rng) for _ in range(20_000)], minlength=len(expected))
    assert met[expected == 0].sum() == 0
    likely = expected > 0
    if likely.sum() > 1:
        assert chisquare(met[likely], 20_000 * expected[likely] / expected.sum()).pvalue > 0.01


@example([0.0, 1.0, 0.0], 0)
@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20).filter(lambda w: sum(w) > 0), st.integers(0, 1000))
def test_who_has_no_chance_is_never_chosen(weights: list[float], seed: int) -> None:
    chances = np.array(weights) / sum(weights)
    for rng in (np.random.default_rng(seed), Fixed(0.0), Fixed(np.nextafter(1.0, 0.0))):
        assert chances[choose(chances, rng)] > 0  # type: ignore[arg-type]


class Fixed:
    """A generator that always draws the same number."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


def test_with_nobody_from_the_past_the_newest_is_met() -> None:
    np.testing.assert_array_equal(matchmaking.mixed(np.array([True]), np.zeros(1), share=0.2), [1])


def test_two_policies_newest_are_met_alike() -> None:
    newest = np.array([False, True, True])
    np.testing.assert_array_equal(matchmaking.latest(newest), [0, 0.5, 0.5])
    np.testing.assert_allclose(matchmaking.mixed(newest, np.zeros(3), share=0.8), [0.2, 0.4, 0.4])


@pytest.mark.parametrize("weighting", ["hard", "even"])
def test_pfsp_meets_all_alike_when_all_are_always_beaten(weighting: str) -> None:
    np.testing.assert_array_equal(matchmaking.pfsp(np.ones(4), weighting=weighting, power=2), [0.25] * 4)


def test_the_guard_leaves_out_the_beaten_and_the_weak_but_never_all() -> None:
    expected_score = np.array([0.1, 0.6, 0.3, 0.5])
    for max_win_rate, floor, expected in (
        (1.0, 0.0, [True] * 4),
        (0.6, 0.0, [False, True, True, True]),
        (1.0, 0.4, [False, True, False, True]),
        (0.55, 0.55, [False, True, False, False]),
        (0.1, 0.0, [False, True, False, False]),  # nobody: the strongest
    ):
        worth = matchmaking.admitted(
            RATES, expected_score, max_win_rate=max_win_rate, min_expected_score=floor
        )
        assert worth.tolist() == expected


# ------------------------------------------------------------------ quality


def test_a_beaten_opponent_loses_step_over_n_p() -> None:
    quality = Quality(step=0.01)
    for name in "abc":
        quality.add(name)
    quality.beaten("a", "abc")
    assert quality["a"] == pytest.approx(-0.01)  # N p is 1 for equals
    chance = np.exp(-0.01) / (np.exp(-0.01) + 2)
    quality.beaten("a", "abc")
    assert quality["a"] == pytest.approx(-0.01 - 0.01 / (3 * chance))
    quality.add("d")
    assert quality["d"] == quality["b"] == 0.0  # as good as the best


def test_qualities_of_equally_weak_opponents_fall_alike_however_often_they_are_drawn() -> None:
    """The expected loss of a draw is p * step / (N p), the same for all."""
    quality, rng = Quality(step=0.01), np.random.default_rng(0)
    quality.restore({"names": list("abc"), "quality": [0.0, -1.0, -2.0]})
    for _ in range(3000):
        chances = np.exp(quality.of("abc"))
        quality.beaten("abc"[choose(chances / chances.sum(), rng)], "abc")
    lost = np.array([0.0, -1.0, -2.0]) - quality.of("abc")
    np.testing.assert_allclose(lost, 3000 * 0.01 / 3, rtol=0.1)


def test_restored_qualities_are_the_same_bit_for_bit(tmp_path: Path) -> None:
    quality = Quality()
    for name in ("main#0", "main#1"):
        quality.add(name)
    for _ in range(7):
        quality.beaten("main#1", ["main#0", "main#1"])
    checkpoint.save(tmp_path / "a.ckpt", quality.state())
    restored = Quality()
    restored.restore(checkpoint.load(tmp_path / "a.ckpt"))
    assert restored.state()["quality"].tobytes() == quality.state()["quality"].tobytes()


# ------------------------------------------------------------------ settings


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"matchmaking": "random"}, "selfplay.matchmaking is 'random'; choose one of none, latest"),
        ({"capacity": 0}, "selfplay.capacity is 0; it must be at least 1"),
        ({"drop": "oldest"}, "selfplay.drop is 'oldest'; choose one of spread, rating"),
        (
            {"add_every_env_steps": None},
            "selfplay.add_every_env_steps is null; give it or selfplay.add_win_rate",
        ),
        ({"add_every_env_steps": 0}, "selfplay.add_every_env_steps is 0; it must be at least 1"),
        ({"add_win_rate": 0.5}, r"selfplay.add_win_rate is 0.5; it must lie in \(0.5, 1\)"),
        ({"decay": 0.0}, "selfplay.decay is 0.0; it must lie in"),
        ({"prior": -1.0}, "selfplay.prior is -1.0"),
        ({"latest_share": 1.5}, "selfplay.latest_share is 1.5"),
        ({"max_win_rate": float("nan")}, "selfplay.max_win_rate is nan"),
        ({"min_expected_score": -0.1}, "selfplay.min_expected_score is -0.1"),
        ({"rating": "glicko"}, "selfplay.rating is 'glicko'; choose one of bayes, elo"),
        ({"elo_k": 0.0}, "selfplay.elo_k is 0.0; it must be above 0"),
        ({"draw_rate": 1.0}, "selfplay.draw_rate is 1.0"),
        ({"quality_step": 0.0}, "selfplay.quality_step is 0.0"),
        ({"weighting": "soft"}, "selfplay.weighting is 'soft'; choose one of hard, even"),
        ({"power": 0.0}, "selfplay.power is 0.0"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SelfPlay(**wrong)
