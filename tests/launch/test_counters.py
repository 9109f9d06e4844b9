"""What a training counted, and how its scores are averaged."""

import pytest

from lamarckian_cli.launch.counters import Counters
from lamarckian_cli.launch.settings import Budget
from lamarckian_cli.launch.train import end_reached
from lamarckian_cli.records import MatchResult


def match(policy, **result):
    return MatchResult(
        policy=policy, seat=0, version=1, first_version=1, env_steps=5, frames=5, result=result
    )


def test_means_are_over_the_last_matches_of_each_policy():
    counters = Counters(["a", "b"], 2)
    counters.add_results([match("a", **{"return": float(x), "win": float(x > 1)}) for x in (1, 2, 3)])
    counters.add_results([match("b", **{"return": 10.0}), match("random", **{"return": -5.0})])
    assert counters.means("a") == {"return": 2.5, "win": 1.0}
    assert counters.means("b") == {"return": 10.0}
    assert counters.matches == 4


def test_the_best_return_is_one_over_a_full_window():
    counters = Counters(["a"], 3)
    for value in (100.0, 1.0):
        counters.add_results([match("a", **{"return": value})])
    assert counters.best_return is None, "two lucky matches are no best"
    for value in (1.0, 4.0, 1.0):
        counters.add_results([match("a", **{"return": value})])
    assert counters.best_return == pytest.approx(102 / 3)


def test_a_restored_counter_goes_on():
    first, second = Counters(["a"], 3), Counters(["a"], 3)
    first.add_results([match("a", **{"return": 2.0})])
    first.add_batch(64, 256, {"staleness_mean": 1.5, "staleness_max": 4.0})
    second.restore(first.state())
    assert second.state() == first.state()
    assert second.staleness_mean == 1.5


@pytest.mark.parametrize(
    ("budget", "spent"),
    [
        (Budget(env_steps=100), True),
        (Budget(env_steps=101), False),
        (Budget(env_steps=None, seconds=9.0), True),
        (Budget(env_steps=1000, stop_return=5.0), True),
        (Budget(env_steps=1000, stop_return=5.1), False),
        (Budget(env_steps=1000, stop_win_rate=0.5), True),
        (Budget(env_steps=1000, stop_win_rate=0.6), False),
    ],
)
def test_a_budget_ends_at_whichever_comes_first(budget, spent):
    counters = Counters(["a"], 2)
    counters.env_steps, counters.seconds = 100, 10.0
    counters.add_results(
        [match("a", **{"return": 4.0, "win": 0.0}), match("a", **{"return": 6.0, "win": 1.0})]
    )
    assert bool(end_reached(budget, counters)) is spent


def test_a_score_ends_nothing_before_the_window_is_full():
    counters = Counters(["a"], 3)
    counters.add_results([match("a", **{"return": 500.0})] * 2)
    assert not end_reached(Budget(env_steps=10, stop_return=5.0), counters)
