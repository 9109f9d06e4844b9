"""Who plays each seat with self-play, and what a game must have for it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from lamarckian_cli.errors import ConfigError
from lamarckian_cli.launch.casting import cast_players, judged
from lamarckian_cli.launch.wiring import job_of
from lamarckian_cli.mdp.pong import Pong
from lamarckian_cli.records import DiscreteHead, MDPSpec

PONG = Pong().describe()
SEAT = PONG.seats[0]
SMALL_HEAD = replace(SEAT, heads=(DiscreteHead(name="move", n=2),))


def job(*words, members=()):
    return replace(job_of(["env=pong", "cluster=inproc", *words]), members=members)


def game(*seats, results=("win",), builtin=()):
    return MDPSpec(name="game", seats=seats, results=results, builtin_seats=builtin)


def test_of_two_seats_the_first_learns_and_the_pool_has_the_second():
    cast = cast_players(job("selfplay=pfsp"), PONG)
    assert cast.players == ("main", "pool")
    assert cast.trained == {"main": SEAT}
    assert cast.driven == (0, 1), "the pool's players act through controllers too"
    assert cast.pool == SEAT


def test_without_self_play_nobody_meets_a_pool():
    cast = cast_players(job(), PONG)
    assert cast.players == ("main", "builtin")
    assert cast.pool is None


def test_seats_of_teams_are_as_they_are_named():
    cast = cast_players(job("selfplay=latest", "players.seats=[pool,main,main,pool]"), game(*[SEAT] * 4))
    assert cast.players == ("pool", "main", "main", "pool")
    assert list(cast.trained) == ["main"]


def test_members_of_a_population_meet_the_pool_in_the_place_of_the_one_that_trains():
    cast = cast_players(job("selfplay=pfsp", members=("member0", "member1")), PONG)
    assert cast.players == ("main", "pool")
    assert list(cast.trained) == ["member0", "member1"]


def test_rewards_of_a_seat_of_the_pool_may_differ():
    unrewarded = replace(SEAT, rewards=(*SEAT.rewards, replace(SEAT.rewards[0], name="other")))
    assert cast_players(job("selfplay=pfsp"), game(SEAT, unrewarded)).pool == SEAT


@pytest.mark.parametrize(
    ("words", "spec", "message"),
    [
        (
            ["players.seats=[main,pool]"],
            PONG,
            r"^players\.seats is \['main', 'pool'\]; 'pool' needs self-play: take selfplay=pfsp",
        ),
        (
            ["selfplay=pfsp", "players.seats=[main,builtin]"],
            PONG,
            r"^players\.seats is \['main', 'builtin'\]; with selfplay\.matchmaking=pfsp one must be 'pool'",
        ),
        (
            ["selfplay=nash"],
            game(SEAT),
            r"^selfplay\.matchmaking is 'nash'; game has 1 seat, .* take selfplay=none",
        ),
        (
            ["selfplay=pfsp"],
            game(*[SEAT] * 4),
            r"^selfplay\.matchmaking is 'pfsp'; game has 4 seats, so say in players\.seats .* "
            r"\['main', 'main', 'pool', 'pool'\]",
        ),
        (
            ["selfplay=uniform"],
            game(SEAT, SEAT, results=("score",)),
            r"^selfplay\.matchmaking is 'uniform'; matches of game do not report 'win' \(1, 0\.5 or 0\)",
        ),
        (
            ["selfplay=pfsp", "players.seats=[main,second,pool]"],
            game(*[SEAT] * 3),
            r"^players\.seats is \['main', 'second', 'pool'\]; with 'pool' one policy trains",
        ),
        (
            ["selfplay=pfsp"],
            game(SEAT, SMALL_HEAD),
            r"^players\.seats is \['main', 'pool'\]; seat 1 of game differs from those of the policy",
        ),
        (
            ["selfplay=pfsp", "players.seats=[main,pool]"],
            game(*[SEAT] * 3),
            r"^players\.seats is \['main', 'pool'\]; game has 3 seats, so it must name 3",
        ),
    ],
)
def test_what_self_play_cannot_have_is_refused_with_key_and_remedy(words, spec, message):
    with pytest.raises(ConfigError, match=message):
        cast_players(job(*words), spec)


def test_a_pool_alone_is_refused():
    with pytest.raises(ConfigError, match="at least one seat must be played by a policy that trains"):
        job("selfplay=pfsp", "players.seats=[pool,pool]")


def test_a_run_is_judged_against_the_games_own_opponent_where_it_has_one():
    cast = judged(cast_players(job("selfplay=pfsp"), PONG), PONG)
    assert (cast.players, cast.driven) == (("main", "builtin"), (0,))
    half = game(*[SEAT] * 4, builtin=(0, 3))
    seats = "players.seats=[main,main,pool,pool]"
    cast = judged(cast_players(job("selfplay=pfsp", seats), half), half)
    assert (cast.players, cast.driven) == (("main", "main", "pool", "builtin"), (0, 1, 2))


def test_the_command_tells_it_in_one_message_and_leaves_nothing(tmp_path):
    words = ["train", "env=cartpole", "selfplay=pfsp", "cluster=inproc", "run.dir=run"]
    done = subprocess.run(
        [sys.executable, "-m", "lamarckian_cli.cli", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2
    assert "take selfplay=none" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
