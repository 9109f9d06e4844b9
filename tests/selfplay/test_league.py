"""The league: pool, table, ratings and matchmaking in step, over matches of players of known strength."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamarckian_cli.errors import ConfigError
from lamarckian_cli.launch import checkpoint
from lamarckian_cli.seeding import stream
from lamarckian_cli.selfplay.choice import choose
from lamarckian_cli.selfplay.league import League
from lamarckian_cli.selfplay.payoff import DRAW, LOSS, WIN
from lamarckian_cli.selfplay.settings import SelfPlay

EVERY = 100


def league_of(matchmaking: str = "uniform", *, snapshots: int = 1, **settings: Any) -> League:
    """One policy, main, with some snapshots of it."""
    given = {"add_every_env_steps": EVERY, **settings}
    league = League(SelfPlay(matchmaking=matchmaking, **given))
    league.enroll("main")
    for number in range(snapshots):
        offer(league, number * EVERY)
    return league


def offer(league: League, env_steps: int, policy: str = "main") -> str | None:
    snapshot = league.offer(policy, np.full(4, env_steps, np.float32), version=env_steps, env_steps=env_steps)
    return snapshot and snapshot.name


def play(league: League, matches: int, score: Any, learner: str = "main") -> Counter[str]:
    """So many matches of `learner`; `score` is a result, or a function from the opponent's name to one."""
    met: Counter[str] = Counter()
    rng = stream(0, "opponents")
    for _ in range(matches):
        opponent = drawn(league, learner, rng)
        met[opponent] += 1
        league.record(learner, opponent, score(opponent) if callable(score) else score)
    return met


def drawn(league: League, learner: str, rng: np.random.Generator) -> str:
    names, chances = league.chances(learner)
    return names[choose(chances, rng)]


def test_a_snapshot_is_taken_at_the_start_and_every_so_many_env_steps() -> None:
    league = league_of(snapshots=0)
    with pytest.raises(ValueError, match="nobody to meet"):
        league.chances("main")
    taken = [offer(league, env_steps) for env_steps in (0, 40, 99, 100, 150, 205, 304, 305)]
    assert taken == ["main#0", None, None, "main#1", None, "main#2", None, "main#3"]


def test_a_snapshot_is_taken_when_the_policy_wins_often_enough() -> None:
    league = league_of("latest", add_every_env_steps=None, add_win_rate=0.7)
    play(league, 3, WIN)  # 4 of 5 with the prior
    assert offer(league, 10) == "main#1"
    assert offer(league, 11) is None  # even against its own copy
    play(league, 20, LOSS)
    assert offer(league, 12) is None
    play(league, 300, WIN)
    assert offer(league, 13) == "main#2"


def test_old_weak_snapshots_do_not_make_one_look_ready() -> None:
    league = league_of("uniform", snapshots=4, add_win_rate=0.6)
    for name in ("main#0", "main#1", "main#2"):
        for _ in range(30):
            league.record("main", name, WIN)
    league.record("main", league.pool.names[-1], LOSS)
    assert offer(league, 310) is None


def test_who_only_beats_its_newest_self_is_not_ready() -> None:
    league = league_of("uniform", snapshots=3, add_win_rate=0.6)
    for name, score in (("main#0", LOSS), ("main#1", LOSS), ("main#2", WIN)):
        for _ in range(30):
            league.record("main", name, score)
    assert offer(league, 210) is None
    for name in ("main#0", "main#1"):
        for _ in range(300):
            league.record("main", name, WIN)
    assert offer(league, 210) == "main#3"


def test_who_leaves_the_pool_leaves_table_ratings_and_qualities() -> None:
    league = league_of(capacity=3, snapshots=8)
    assert len(league.pool) == 3
    assert set(league.payoff.players) == {"main", *league.pool.names}
    assert {name for name, _ in league.ratings.leaderboard()} == {"main", *league.pool.names}
    assert league.quality.state()["names"] == list(league.pool.names)


def test_with_drop_rating_the_worst_go() -> None:
    league = league_of("uniform", snapshots=3, drop="rating", capacity=3, rating="elo")
    for _ in range(20):
        league.record("main#0", "main#1", WIN)
    offer(league, 3 * EVERY)
    assert league.pool.names == ("main#0", "main#2", "main#3")


def test_ratings_order_players_by_strength_and_snapshots_stay_near_their_policy() -> None:
    """Main gets better; each snapshot is as strong as main was. Results follow strength, with noise."""
    league, rng = league_of("uniform", snapshots=0, rating="bayes", draw_rate=0.0), np.random.default_rng(5)
    strength: dict[str, float] = {}
    for level in range(6):
        strength[str(offer(league, level * EVERY))] = level
        play(
            league,
            200,
            lambda name, now=level + 1: float(rng.random() < 1 / (1 + np.exp(strength[name] - now))),
        )
    order = [name for name, _ in league.ratings.leaderboard()]
    assert order == ["main", "main#5", "main#4", "main#3", "main#2", "main#1", "main#0"]
    deviations = [league.ratings[name].deviation for name in league.pool.names]
    assert max(deviations) < 25 / 3 / 2  # far surer than at the start


def test_pfsp_meets_whom_it_loses_to() -> None:
    league = league_of("pfsp", snapshots=4)
    play(league, 300, lambda name: LOSS if name == "main#2" else WIN)
    met = play(league, 300, lambda name: LOSS if name == "main#2" else WIN)
    assert met["main#2"] > 270


def test_a_weak_exploiter_is_kept_out_by_its_rating() -> None:
    """It beats main and loses to everyone else: by win rate it would be main's only opponent."""
    shares = []
    for floor in (0.0, 0.1):
        league = league_of("pfsp", snapshots=4, min_expected_score=floor)
        league.enroll("exploiter")
        offer(league, 0, "exploiter")
        exploiter = league.pool.names[-1]
        for match in range(40):
            for name in league.pool.names[:-1]:
                league.record(name, exploiter, WIN)
                league.record("main", name, WIN)
                league.record("main", name, LOSS)
            if match % 8 == 0:
                league.record("main", exploiter, LOSS)
        names, chances = league.chances("main")
        shares.append(chances[names.index(exploiter)])
    assert shares[0] > 0.3
    assert shares[1] == 0


def test_mixed_meets_the_newest_and_forgets_the_beaten() -> None:
    league = league_of("mixed", snapshots=4, quality_step=0.5)
    before = league.quality.state()
    met = play(league, 1000, lambda name: WIN if name in ("main#0", "main#3") else LOSS)
    assert 750 < met["main#3"] < 850
    assert met["main#0"] < met["main#1"] / 2
    after = league.quality.state()
    changed = np.flatnonzero(before["quality"] != after["quality"])
    assert [after["names"][i] for i in changed] == ["main#0"]  # not the newest, and not who won


def test_nash_meets_the_mixture_of_the_pool() -> None:
    league = league_of("nash", snapshots=4, decay=1.0, prior=0.0)
    for winner, loser in (("main#0", "main#1"), ("main#1", "main#2"), ("main#2", "main#0")):
        for _ in range(10):
            league.record(winner, loser, WIN)
    for name in ("main#0", "main#1", "main#2"):
        league.record(name, "main#3", WIN)
    names, chances = league.chances("main")
    assert names == ("main#0", "main#1", "main#2", "main#3")
    np.testing.assert_allclose(chances, [1 / 3, 1 / 3, 1 / 3, 0], atol=1e-6)


def test_nash_follows_new_results() -> None:
    league = league_of("nash", snapshots=2)
    np.testing.assert_array_equal(league.chances("main")[1], [0.5, 0.5])
    for _ in range(100):
        league.record("main#1", "main#0", WIN)
    np.testing.assert_allclose(league.chances("main")[1], [0, 1], atol=1e-6)


def test_a_restored_league_computes_its_next_equilibrium_when_it_would_have() -> None:
    league, restored = league_of("nash", snapshots=2), league_of("nash", snapshots=0)
    league.chances("main")
    for _ in range(10):
        league.record("main#1", "main#0", WIN)
    restored.restore(league.state())
    for one in (league, restored):
        np.testing.assert_array_equal(one.chances("main")[1], [0.5, 0.5])  # of before the ten results
        for _ in range(90):
            one.record("main#1", "main#0", WIN)
        np.testing.assert_allclose(one.chances("main")[1], [0, 1], atol=1e-6)


def test_a_policy_that_was_given_anothers_weights_has_its_standing() -> None:
    league = league_of("latest")
    league.enroll("second")
    play(league, 10, WIN)
    league.enroll("second", like="main")
    assert league.policies == ("main", "second")
    assert league.ratings["second"].mean == league.ratings["main"].mean
    rates = league.payoff.win_rates()
    main, second, snapshot = league.payoff.rows(("main", "second", "main#0"))
    assert rates[second, snapshot] == rates[main, snapshot] > 0.5


def test_who_is_given_the_weights_of_one_who_was_remembered_stands_as_it_did() -> None:
    league = league_of("latest")
    league.enroll("second")
    play(league, 10, WIN)
    league.remember("12", like="main")
    play(league, 30, LOSS)
    league.enroll("second", like="12")
    assert league.ratings["second"].mean == league.ratings["12"].mean > league.ratings["main"].mean
    rates = league.payoff.win_rates()
    main, second, snapshot = league.payoff.rows(("main", "second", "main#0"))
    assert rates[second, snapshot] > 0.5 > rates[main, snapshot]
    league.forget("12")
    assert set(league.payoff.players) == {"main", "second", "main#0"}
    assert league.policies == ("main", "second")


def test_names_and_numbers_that_cannot_work_are_refused() -> None:
    league = league_of(capacity=1)
    with pytest.raises(ConfigError, match=r"a policy is called 'main#1'"):
        league.enroll("main#1")
    with pytest.raises(
        ConfigError, match=r"selfplay\.capacity is 1; it must be at least the number of policies"
    ):
        league.enroll("second")
    with pytest.raises(ValueError, match="there is no pool"):
        League(SelfPlay())


@pytest.mark.parametrize("matchmaking", ["latest", "uniform", "mixed", "pfsp", "nash"])
@pytest.mark.parametrize("rating", ["elo", "bayes"])
def test_a_restored_league_goes_on_as_if_it_had_not_stopped(
    matchmaking: str, rating: str, tmp_path: Path
) -> None:
    def go_on(league: League, first: int) -> list[str]:
        met = []
        for step in range(first, first + 135):
            offer(league, step * 10)
            opponent = drawn(league, "main", stream(0, "step", step))
            league.record("main", opponent, (WIN, LOSS, WIN, DRAW)[step % 4])
            met.append(opponent)
        return met

    settings = {"capacity": 5, "rating": rating, "snapshots": 0}
    league = league_of(matchmaking, **settings)
    go_on(league, 0)
    checkpoint.save(tmp_path / "a.ckpt", league.state())
    restored = league_of(matchmaking, **settings)
    restored.restore(checkpoint.load(tmp_path / "a.ckpt"))
    assert go_on(restored, 135) == go_on(league, 135)
    checkpoint.save(tmp_path / "b.ckpt", league.state())
    checkpoint.save(tmp_path / "c.ckpt", restored.state())
    assert (tmp_path / "b.ckpt").read_bytes() == (tmp_path / "c.ckpt").read_bytes()
