"""Our encodings and rewards of football against gfootball's own, on the same matches."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from football import missing

from lamarckian_cli.mdp.football import observation
from lamarckian_cli.mdp.football.actions import NAMES, legal
from lamarckian_cli.mdp.football.raw import AGENTS, PLAYERS, RAW_SIZE

REFERENCE = Path(__file__).with_name("football_reference.py")
needs_engine = pytest.mark.skipif(bool(missing()), reason=missing())


def reference(tmp_path, scenario, seed, left, right, steps):
    """What gfootball's own environment and wrappers give."""
    out = tmp_path / "reference.npz"
    kick_off = (seed // 2) % 2
    words = [scenario, seed, kick_off, left, right, steps, out]
    path = os.pathsep.join(path or "." for path in sys.path)
    subprocess.run(
        [sys.executable, REFERENCE, *map(str, words)],
        check=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=240,
        stdout=subprocess.DEVNULL,
    )
    with np.load(out) as arrays:
        return dict(arrays)


def played(scenario, seed, left, right, steps):
    """The same match by our game: raw observations, scores, checkpoints, outcome."""
    from lamarckian_cli.mdp.football.engine import Game

    game = Game(scenario, frames_per_step=1, opponent="builtin")
    seats = [(0, number) for number in range(left)] + [(1, number) for number in range(right)]
    head = 4 + len(seats)
    numbers = [np.frombuffer(game.reset(seed, (left, right), seats), np.float32)]
    rng = np.random.default_rng(seed)
    while len(numbers) <= steps and numbers[-1][0] == 0:
        actions = rng.integers(0, 19, left + right).tolist()
        numbers.append(np.frombuffer(game.step(bytes(actions)), np.float32))
    raw = [n[head:] for n in numbers]
    signs = np.array([-1.0 if side else 1.0 for side, _ in seats])
    scores = np.array([n[1] * signs for n in numbers[1:]])
    return seats, raw, scores, np.array([n[4:head] for n in numbers[1:]]), numbers[-1][0] != 0


@needs_engine
@pytest.mark.parametrize(
    ("scenario", "seed", "left", "right", "steps"),
    [
        ("academy_empty_goal_close", 5, 1, 0, 60),
        ("5_vs_5", 3, 2, 4, 120),
        ("11_vs_11_stochastic", 6, 2, 1, 60),
        ("academy_run_to_score", 4, 1, 0, 80),
    ],
)
def test_numbers_are_gfootballs_own(tmp_path, scenario, seed, left, right, steps):
    theirs = reference(tmp_path, scenario, seed, left, right, steps)
    seats, raw, scores, checkpoints, ended = played(scenario, seed, left, right, steps)
    assert len(raw) == len(theirs["simple115"])
    assert ended == bool(theirs["done"])
    for step, numbers in enumerate(raw):
        simple = observation.simple115(numbers, seats)
        np.testing.assert_array_equal(simple, theirs["simple115"][step], err_msg=f"step {step}")
        np.testing.assert_array_equal(observation.minimap(numbers, seats), theirs["minimap"][step])
        rich = observation.floats(numbers, seats, 3000.0)
        np.testing.assert_array_equal(rich[:, 127:137], theirs["sticky"][step])
        assert np.isfinite(rich).all()
    np.testing.assert_array_equal(scores, theirs["reward"])
    np.testing.assert_allclose(checkpoints, theirs["checkpoint"], atol=1e-6)


# ------------------------------------------------------------------ without the engine


def situation(**changes):
    """Two a side in the middle of play; agent 0 of the left side is player 0, with the ball."""
    raw = np.zeros(RAW_SIZE, np.float32)
    raw[:3] = 0.1, 0.1, 0.1
    raw[9:12] = changes.get("owner_side", 0), changes.get("owner", 0), changes.get("mode", 0)
    raw[2] = changes.get("height", 0.1)
    raw[14] = 1.0
    raw[16:18] = 2
    players, agents = raw[PLAYERS].reshape(2, 11, 9), raw[AGENTS].reshape(2, 11, 11)
    agents[:, :, 0] = -1
    players[0, 0, :2] = changes.get("at", (0.1, 0.1))
    players[0, 1, :2] = changes.get("mate", (0.0, 0.0))
    players[1, 0, :2], players[1, 1, :2] = (1.0, 0.0), changes.get("defender", (0.5, 0.0))
    players[:, :2, 5] = 1.0
    agents[0, 0, 0] = 0
    for held in changes.get("held", ()):
        agents[0, 0, held] = 1.0
    return raw


def allowed(**changes):
    (mask,) = legal(situation(**changes), [(0, 0)], offsides=True)
    return {name for name, ok in zip(NAMES, mask, strict=True) if ok}


MOVES = set(NAMES[:9])
PASSES = {"long_pass", "high_pass", "short_pass"}


def test_with_the_ball_everything_but_sliding():
    assert allowed() == MOVES | PASSES | {"shot", "sprint", "dribble"}


def test_without_the_ball():
    assert allowed(owner_side=1) == MOVES | {"sprint", "sliding"}
    assert allowed(owner=1) == MOVES | {"sprint"}  # a team-mate has it
    assert allowed(owner_side=-1) == MOVES | PASSES | {"shot", "sprint", "sliding"}  # free and near
    assert allowed(owner_side=-1, at=(-0.5, 0.0)) == MOVES | {"sprint"}


def test_a_ball_overhead_is_neither_dribbled_nor_slid_for():
    assert "sliding" not in allowed(owner_side=1, height=4.0)
    assert "dribble" not in allowed(height=4.0)


def test_only_what_is_held_is_released():
    held = allowed(held=(3, 9, 10))
    assert {"release_direction", "release_sprint", "release_dribble"} <= held
    assert not {"sprint", "dribble"} & held


def test_set_pieces():
    assert allowed(mode=5) == MOVES | PASSES  # throw-in
    assert allowed(mode=6) == MOVES | {"shot"}  # penalty
    assert allowed(mode=3, owner=1) == MOVES
    assert allowed(mode=4) == MOVES | PASSES | {"shot"}


def test_no_pass_when_every_team_mate_is_off_side():
    assert not PASSES & allowed(mate=(0.8, 0.0))
    assert allowed(mate=(0.4, 0.0)) >= PASSES
    assert allowed(mate=(0.09, 0.0), defender=(0.0, 0.0)) >= PASSES  # behind the ball
    assert (
        set(np.array(NAMES)[legal(situation(mate=(0.8, 0.0)), [(0, 0)], offsides=False)[0]].tolist())
        >= PASSES
    )


def test_an_agent_without_a_player_may_be_idle():
    raw = situation()
    raw[AGENTS].reshape(2, 11, 11)[0, 0, 0] = -1
    assert legal(raw, [(0, 0)], offsides=True).sum() == 1
    for encoding in observation.ENCODINGS.values():
        array = encoding.encode(raw, [(0, 0)], 100.0)
        assert array.shape == (1, *encoding.shape)
        assert array.dtype == encoding.dtype


@pytest.mark.parametrize(
    ("side", "own", "others"), [(0, 11, 11), (1, 11, 11), (0, 3, 5), (1, 1, 4), (0, 2, 1)]
)
def test_floats_are_what_their_description_says(side, own, others):
    """The definition in `observation.floats`, number by number, on made-up fields."""
    rng = np.random.default_rng(10 * side + own)
    raw = np.zeros(RAW_SIZE, np.float32)
    raw[:9] = rng.uniform(-1, 1, 9)
    raw[9:16] = 1 - side, 0, 3, 4, 2, 1, 30
    raw[16 + side], raw[17 - side] = own, others
    players, agents = raw[PLAYERS].reshape(2, 11, 9), raw[AGENTS].reshape(2, 11, 11)
    agents[:, :, 0] = -1
    for team, count in ((side, own), (1 - side, others)):
        players[team, :count, :5] = rng.uniform(-1, 1, (count, 5))
        players[team, :count, 5:8] = 1.0, 1.0, 6.0
    me = own - 1
    agents[side, 2, :4] = me, 1.0, 0.0, 0.0  # holds left, as the field has it
    agents[side, 2, 9] = 1.0  # and sprints
    (row,) = observation.floats(raw, [(side, 2)], 120.0)

    sign = -1.0 if side else 1.0
    team, enemies = players[side, :own].astype(float), players[1 - side, :others].astype(float)
    x, y = sign * team[me, 0], sign * team[me, 1]
    ball = sign * raw[0] - x, sign * raw[1] - y
    near = min(((sign * e[0] - x, sign * e[1] - y) for e in enemies), key=lambda d: np.hypot(*d))
    relative = np.zeros((22, 2))
    for start, group in ((0, team), (11, enemies)):
        for number, player in enumerate(group):
            relative[start + number] = sign * player[0] - x, sign * player[1] - y
    held = np.zeros(10)
    held[4 if side else 0] = held[8] = 1.0  # seen from the right side it is right
    role = np.eye(10)[6]
    tired = np.zeros(22)
    tired[:own], tired[11 : 11 + others] = team[:, 4], enemies[:, 4]
    lead = ((2 - 4) if side else (4 - 2)) / 5
    expected = [x, y, sign * 50 * team[me, 2], sign * 50 * team[me, 3], *ball, np.hypot(*ball)]
    expected += [1 - x, -y, np.hypot(1 - x, y), team[me, 4], 1.0, *held, *role, 1 - 30 / 120, lead]
    expected += [*raw[6:9], *near, np.hypot(*near), *relative.ravel(), *tired]
    np.testing.assert_allclose(row[115:], expected, atol=2e-6)

    simple = observation.simple115(raw, [(side, 2)])[0].astype(float)
    for first, last in ((22, 22 + 2 * own), (66, 66 + 2 * others), (91, 94)):
        simple[first:last] *= 50
    np.testing.assert_allclose(row[:115], simple, rtol=1e-6)


def test_the_right_side_sees_the_field_turned():
    raw = situation(held=(5, 9))
    turned = raw.copy()
    for start in (0, 3):
        turned[start : start + 2] *= -1
    turned[9] = 1
    players, agents = raw[PLAYERS].reshape(2, 11, 9), raw[AGENTS].reshape(2, 11, 11)
    turned[PLAYERS].reshape(2, 11, 9)[:] = players[::-1]
    turned[PLAYERS].reshape(2, 11, 9)[:, :, :4] *= -1
    turned[AGENTS].reshape(2, 11, 11)[:] = agents[::-1]
    turned[AGENTS].reshape(2, 11, 11)[1, 0, [1, 5]] = 1.0, 0.0  # held to the right: to the field's left
    for name in ("simple115", "floats"):
        encode = observation.ENCODINGS[name].encode
        np.testing.assert_allclose(encode(raw, [(0, 0)], 9.0), encode(turned, [(1, 0)], 9.0), atol=1e-6)
    np.testing.assert_array_equal(legal(raw, [(0, 0)], offsides=True), legal(turned, [(1, 0)], offsides=True))
