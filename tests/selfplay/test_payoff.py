"""The table of results between players."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamarckian_cli.launch import checkpoint
from lamarckian_cli.selfplay.payoff import DRAW, LOSS, WIN, Payoff

NAMES = ("main", "main#0", "main#1", "second")
MATCHES = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.sampled_from([WIN, DRAW, LOSS])).filter(
        lambda match: match[0] != match[1]
    ),
    max_size=60,
)


def table(matches: list[tuple[str, str, float]], **settings: float) -> Payoff:
    payoff = Payoff(**settings)
    for name in NAMES:
        payoff.add(name)
    for match in matches:
        payoff.record(*match)
    return payoff


@settings(deadline=None)
@given(MATCHES, st.sampled_from([1.0, 0.99, 0.5]), st.sampled_from([0.0, 2.0]))
def test_rates_are_weighted_points_over_weighted_matches(
    matches: list[tuple[str, str, float]], decay: float, prior: float
) -> None:
    rates = table(matches, decay=decay, prior=prior).win_rates()
    for i, home in enumerate(NAMES):
        for j, away in enumerate(NAMES):
            scores = [s if h == home else 1 - s for h, a, s in matches if {h, a} == {home, away}]
            weights = [decay**age for age in range(len(scores) - 1, -1, -1)]
            total = sum(weights) + prior
            points = sum(w * s for w, s in zip(weights, scores, strict=True)) + prior / 2
            expected = points / total if total and home != away else 0.5
            assert rates[i, j] == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(MATCHES)
def test_the_advantage_is_exactly_antisymmetric(matches: list[tuple[str, str, float]]) -> None:
    payoff = table(matches, decay=0.97)
    np.testing.assert_array_equal(payoff.advantage(), -payoff.advantage().T)
    np.testing.assert_allclose(payoff.wins() + payoff.draws() + payoff.losses(), payoff.matches())


def test_a_snapshot_takes_over_the_results_of_its_policy_but_none_against_it() -> None:
    payoff = table([("main", "main#0", WIN), ("main", "second", DRAW), ("second", "main#0", WIN)], prior=0)
    payoff.add("main#2", like="main")
    rates = dict(zip(payoff.players, payoff.win_rates()[payoff.rows(("main#2",))[0]], strict=True))
    assert rates == {"main": 0.5, "main#0": 1.0, "main#1": 0.5, "second": 0.5, "main#2": 0.5}
    assert payoff.matches()[payoff.rows(("main#2",))[0]].tolist() == [0, 1, 0, 1, 0]


def test_a_policy_that_was_given_anothers_weights_takes_over_its_results() -> None:
    payoff = table([("main", "main#0", WIN), ("second", "main#0", LOSS), ("main", "second", WIN)], prior=0)
    payoff.add("second", like="main")
    i, j = payoff.rows(("second", "main#0"))
    assert payoff.win_rates()[i, j] == 1
    assert payoff.matches()[i].tolist() == [0, 1, 0, 0]
    assert payoff.players == NAMES


def test_who_is_forgotten_leaves_the_others_as_they_were() -> None:
    matches = [("main", "main#1", WIN), ("second", "main", WIN), ("main#0", "second", DRAW)]
    payoff = table(matches)
    payoff.forget("main#0")
    assert payoff.players == ("main", "main#1", "second")
    rest = ["main", "main#1", "second"]
    keep = [NAMES.index(name) for name in rest]
    np.testing.assert_array_equal(payoff.wins(), table(matches).wins()[np.ix_(keep, keep)])
    assert payoff.rows(("second",)) == 2


@pytest.mark.parametrize("match", [("main", "second", 0.7), ("main", "main", WIN)])
def test_no_other_results_are_taken(match: tuple[str, str, float]) -> None:
    with pytest.raises(ValueError, match=r"match is won|played itself"):
        table([match])


@pytest.mark.parametrize("matches", [[], [("main", "main#0", WIN)] * 7 + [("main#1", "main", DRAW)]])
def test_a_restored_table_is_the_same_bit_for_bit(
    matches: list[tuple[str, str, float]], tmp_path: Path
) -> None:
    payoff = table(matches, decay=0.99) if matches else Payoff()
    checkpoint.save(tmp_path / "a.ckpt", payoff.state())
    restored = Payoff(decay=payoff.decay)
    restored.restore(checkpoint.load(tmp_path / "a.ckpt"))
    assert restored.players == payoff.players
    assert restored.wins().tobytes() == payoff.wins().tobytes()
    assert restored.draws().tobytes() == payoff.draws().tobytes()
