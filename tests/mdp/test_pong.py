"""Pong keeps its promises: symmetric, deterministic, hard for chance and beatable by aim."""

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from lamarckian_cli.errors import ConfigError, MDPError
from lamarckian_cli.mdp.check import check_mdp
from lamarckian_cli.mdp.pong import BAT_SPEED, LIMIT, REACH, SLOPE, SMASH, VIEW, Pong, PongMatch
from lamarckian_cli.mdp.scheduler import Scheduler
from lamarckian_cli.records import TRUNCATED, Outcome

Chooser = Callable[[np.ndarray], int]


def play(match: PongMatch, choosers: Sequence[Chooser]) -> list[list[tuple]]:
    """Drive every controller to the end; per controller (view, move, reward, outcome) of each step."""
    logs: list[list[tuple]] = [[] for _ in match.controllers]

    async def drive(controller, choose, log) -> None:
        outcome = Outcome()
        while not (outcome.terminated or outcome.truncated):
            view = controller.state().inputs[0]
            move = choose(view)
            outcome = await controller.act((move,))
            log.append((view, move, controller.reward()[0], outcome))

    scheduler = Scheduler()
    for parts in zip(match.controllers, choosers, logs, strict=True):
        scheduler.spawn(drive(*parts))
    scheduler.run()
    for task in scheduler.failed:
        raise task.error
    return logs


def chance(seed: int) -> Chooser:
    draw = random.Random(seed)
    return lambda view: draw.randrange(3)


def still(view: np.ndarray) -> int:
    return 0


def aimed(view: np.ndarray) -> int:
    """Meets the ball with the part of the bat that sends it far from the middle, and fast."""
    own, _, x, y, vx, vy = view[:6].tolist()
    target = 0.0
    if vx < 0.0:
        landing = fold(y - vy / vx * (x + 1.0))
        steps = (x + 1.0) / (-vx * Pong().frames_per_step * 0.2)
        reachable = step_size() * steps + 0.02

        def value(offset: float) -> float:
            far = abs(fold(landing + 2.0 * SLOPE * offset / (1.0 + SMASH * offset * offset)))
            return far + 0.8 * offset * offset

        offsets = [k / 20 for k in range(-15, 16)]
        able = [u for u in offsets if abs(landing - u * REACH) <= LIMIT]
        able = [u for u in able if abs(landing - u * REACH - own) <= reachable]
        target = landing - max(able, key=value) * REACH if able else landing
    distance = target - own
    return 1 if distance > step_size() / 2 else 2 if distance < -step_size() / 2 else 0


def step_size() -> float:
    return BAT_SPEED * Pong().frames_per_step


def fold(y: float) -> float:
    """Reflect at the walls, the slow way."""
    while abs(y) > 1.0:
        y = (2.0 if y > 0.0 else -2.0) - y
    return y


def win_rate(choose: Callable[[int], Chooser], skill: float, matches: int) -> float:
    wins = 0.0
    for seed in range(matches):
        match = Pong(skill=skill).reset((0,), seed)
        play(match, [choose(seed)])
        wins += match.controllers[0].result()["win"]
    return wins / matches


def test_it_is_a_good_mdp() -> None:
    check_mdp(Pong(rounds=3, max_steps=200))


@pytest.mark.parametrize("seats", [(0,), (1,), (0, 1), (1, 0)])
def test_a_match_has_20_rounds_and_results_agree_with_rewards(seats: tuple[int, ...]) -> None:
    match = Pong().reset(seats, 3)
    logs = play(match, [chance(seat) for seat in seats])
    for controller, log in zip(match.controllers, logs, strict=True):
        result = controller.result()
        rewards = [reward for _, _, reward, _ in log]
        assert sum(abs(reward) for reward in rewards) == 20
        assert set(result) == set(Pong().describe().results)
        assert result["score_self"] + result["score_enemy"] == 20
        assert sum(rewards) == result["score_self"] - result["score_enemy"]
        assert result["moves"] == pytest.approx(np.mean([move != 0 for _, move, _, _ in log]))
        assert [outcome.terminated for *_, outcome in log] == [False] * (len(log) - 1) + [True]


def test_what_one_wins_the_other_loses() -> None:
    first, second = play(Pong().reset((0, 1), 5), [chance(1), chance(2)])
    assert [reward for _, _, reward, _ in first] == [-reward for _, _, reward, _ in second]


def test_both_players_see_the_same_world_from_their_own_side() -> None:
    first, second = play(Pong().reset((0, 1), 5), [chance(1), chance(2)])
    mirrored = ("ball_x", "ball_vx", "lead")
    sign = np.array([-1.0 if name in mirrored else 1.0 for name in VIEW], np.float32)
    swap = [1, 0, *range(2, len(VIEW))]
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one[0][swap] * sign, other[0])


def test_the_mirrored_world_plays_the_same_match() -> None:
    """Seat 1 in a mirrored world sees and scores what seat 0 does, to the bit."""

    def mirror(match: PongMatch) -> PongMatch:
        match.x, match.vx = -match.x, -match.vx
        match.bats.reverse()
        match.aims.reverse()
        return match

    straight = play(Pong(rounds=9).reset((0,), 8), [chance(4)])[0]
    mirrored = play(mirror(Pong(rounds=9).reset((1,), 8)), [chance(4)])[0]
    for one, other in zip(straight, mirrored, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        assert one[1:] == other[1:]


def test_views_are_float32_within_bounds_and_not_reused() -> None:
    (log,) = play(Pong().reset((0,), 2), [aimed])
    views = np.stack([view for view, *_ in log])
    assert views.dtype == np.float32
    assert views.shape == (len(log), len(VIEW))
    assert np.abs(views).max() <= 1.25
    assert len(np.unique(views, axis=0)) > 0.9 * len(views)


def test_the_same_seed_and_moves_give_the_same_match() -> None:
    one, again, other = (play(Pong().reset((0,), seed), [chance(0)])[0] for seed in (11, 11, 12))
    assert len(one) == len(again)
    assert all((a[0] == b[0]).all() and a[1:] == b[1:] for a, b in zip(one, again, strict=True))
    assert (one[0][0] != other[0][0]).any()


def test_who_plays_changes_nothing_else() -> None:
    """The built-in player's moves, played through a controller, give the match it would have played."""
    alone = play(Pong(rounds=5).reset((0,), 6), [chance(3)])[0]
    match = Pong(rounds=5).reset((0, 1), 6)

    def builtin(view: np.ndarray) -> int:
        order = match.builtin_order(1)
        return 0 if order == 0.0 else 1 if order > 0.0 else 2

    both = play(match, [chance(3), builtin])[0]
    for one, other in zip(alone, both, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        assert one[1:] == other[1:]


def test_full_skill_returns_95_percent_of_random_balls_and_loses_under_5_percent_of_points() -> None:
    hits = returned = won = points = 0
    for seed in range(60):
        match = Pong().reset((0,), seed)
        controller, choose = match.controllers[0], chance(seed)
        while not match.outcome.terminated:
            played = match.hits > 0 and match.vx > 0.0  # a ball that the random player hit
            with pytest.raises(StopIteration):
                controller.act((choose(controller.state().inputs[0]),)).send(None)
            back = match.point == 0.0 and match.vx < 0.0
            hits += played and (back or match.point != 0.0)
            returned += played and back
            won += match.point > 0.0
            points += match.point != 0.0
    assert points == 1200
    assert hits > 400
    assert returned / hits >= 0.95
    assert won / points < 0.05


def test_who_aims_beats_full_skill() -> None:
    assert win_rate(lambda seed: aimed, 1.0, 40) >= 0.95


def test_skill_is_monotone() -> None:
    rates = [win_rate(chance, skill, 30) for skill in (0.0, 0.5, 1.0)]
    scores = []
    for skill in (0.0, 0.25, 0.5, 0.75, 1.0):
        score = 0.0
        for seed in range(20):
            match = Pong(skill=skill).reset((0,), seed)
            play(match, [chance(seed)])
            score += match.controllers[0].result()["score_enemy"]
        scores.append(score)
    assert rates[0] > rates[2]
    assert scores == sorted(scores)
    assert scores[0] < 0.8 * scores[-1]


def test_a_match_without_end_is_truncated_not_terminated() -> None:
    match = Pong(max_steps=30).reset((0,), 0)
    (log,) = play(match, [aimed])
    assert len(log) == 30
    assert log[-1][3] is TRUNCATED
    assert match.controllers[0].result()["score_self"] < 20


def test_after_the_end_there_is_a_final_view_but_no_action() -> None:
    match = Pong(rounds=1).reset((0,), 0)
    controller = match.controllers[0]
    play(match, [still])
    assert controller.state().inputs[0][VIEW.index("rounds_left")] == 0.0
    with pytest.raises(MDPError, match="seat 0 of pong acted after the end"):
        controller.act((0,)).send(None)


@pytest.mark.parametrize("action", [(3,), (-1,), (0.5,), (), None, 1, (np.zeros(1),)])
def test_an_illegal_action_names_seat_and_head(action: object) -> None:
    controller = Pong().reset((1,), 0).controllers[0]
    with pytest.raises(MDPError, match=r"seat 1 of pong played .*'move'"):
        controller.act(action).send(None)


@pytest.mark.parametrize("seats", [(), (2,), (0, 0), (0, 1, 2)])
def test_wrong_seats_are_refused(seats: tuple[int, ...]) -> None:
    with pytest.raises(MDPError, match="pong has seats 0 and 1"):
        Pong().reset(seats, 0)


@pytest.mark.parametrize(
    ("key", "value"),
    [("rounds", 0), ("skill", -0.1), ("skill", 1.1), ("frames_per_step", 0), ("frames_per_step", 9)]
    + [("max_steps", 0)],
)
def test_a_value_out_of_range_names_its_key(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"env.{key} is {value}"):
        Pong(**{key: value})


def test_frame_skip_covers_the_same_ground_in_fewer_steps() -> None:
    """A ball that nobody touches arrives after as many frames, whatever a step is."""
    frames = []
    for skip in (1, 2, 4, 8):
        match = Pong(rounds=1, skill=0.0, frames_per_step=skip).reset((0, 1), 3)
        match.y, match.vy = 0.9, 0.0
        (log, _) = play(match, [still, still])
        frames.append(len(log) * skip)
    assert max(frames) - min(frames) < 8


def test_the_picture_shows_bats_ball_and_score() -> None:
    match = Pong().reset((0,), 0)
    before = match.frame()
    assert before.shape == (360, 480, 3)
    assert before.dtype == np.uint8
    assert (before == 255).sum() + (before > 230).all(axis=2).sum() > 20  # the ball
    for _ in range(3):
        with pytest.raises(StopIteration):
            match.controllers[0].act((1,)).send(None)
    after = match.frame()
    left = slice(0, 40)
    assert (before[:, left] != after[:, left]).any()
    text = match.text()
    assert "0 : 0" in text
    assert text.count("●") == 1
    assert "█" in text
    assert len({len(line) for line in text.splitlines()}) == 1


def test_scores_of_any_length_are_drawn() -> None:
    match = Pong(rounds=5000).reset((0,), 0)
    match.scores = [1234, 987]
    assert match.frame().shape == (360, 480, 3)
    assert "1234 : 987" in match.text()
