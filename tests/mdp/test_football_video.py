"""What videos of football show: the engine's picture, drawn without a display, and captions on it."""

import numpy as np
import pytest
from football import missing

from lamarckian_cli.mdp.football.actions import NAMES
from lamarckian_cli.mdp.football.captions import BAR, COLUMN, LINE, caption
from lamarckian_cli.mdp.football.mdp import Football
from lamarckian_cli.mdp.football.raw import AGENTS, RAW_SIZE

HEIGHT, WIDTH = 360, 640
GRASS = 90
SHOT, RIGHT = NAMES.index("shot"), NAMES.index("right")


def captions(changes=(), driven=((0, 0),), actions=(RIGHT,), held=()):
    """Of a match at step 25 of 400; `changes`: (number of raw, value); `held`: (side, flag)."""
    raw = np.zeros(RAW_SIZE, np.float32)
    raw[15] = 25
    for number, value in changes:
        raw[number] = value
    for side, flag in held:
        raw[AGENTS].reshape(2, 11, 11)[side, 0, flag] = 1.0
    return caption(np.full((HEIGHT, WIDTH, 3), GRASS, np.uint8), raw, driven, actions, 400)


def changed(one, two):
    """Bounds of what differs: rows from and to, columns from and to (None if nothing does)."""
    rows, columns = np.nonzero((one != two).any(axis=2))
    return (rows.min(), rows.max(), columns.min(), columns.max()) if len(rows) else None


def test_the_picture_between_the_captions_is_untouched():
    shown = captions()
    assert (shown[BAR : HEIGHT - LINE] == GRASS).all()
    assert (shown[HEIGHT - LINE :, COLUMN:] == GRASS).all()
    assert (shown[HEIGHT - LINE :, :COLUMN] != GRASS).any()
    assert shown.dtype == np.uint8


@pytest.mark.parametrize(("number", "value"), [(12, 1), (13, 2), (15, 26), (11, 4)])
def test_a_goal_a_step_and_a_corner_change_the_scoreboard_alone(number, value):
    _, last, first, _ = changed(captions(), captions([(number, value)]))
    assert last < BAR
    # the mode is on the left, the score in the middle, the step on the right
    third = {11: 0, 12: 1, 13: 1, 15: 2}[number]
    assert third * WIDTH // 3 <= first < (third + 1) * WIDTH // 3


def test_an_action_is_drawn_on_its_own_side():
    both = ((0, 0), (1, 0))
    before = captions(driven=both, actions=(RIGHT, RIGHT))
    for side, actions in ((0, (SHOT, RIGHT)), (1, (RIGHT, SHOT))):
        top, _, left, right = changed(before, captions(driven=both, actions=actions))
        assert top >= HEIGHT - LINE
        assert (right < COLUMN) if side == 0 else (left >= WIDTH - COLUMN)


def test_what_is_held_is_drawn():
    seen = [captions(held=held).tobytes() for held in ((), *[((0, flag),) for flag in range(1, 11)])]
    assert len(set(seen)) == 11


def test_the_right_side_goes_right_to_the_left_of_the_field():
    # The same words on both sides where the field's direction is the same.
    left = captions(driven=((0, 0),), actions=(NAMES.index("left"),))[-LINE:, :COLUMN]
    right = captions(driven=((1, 0),), actions=(RIGHT,))[-LINE:, -COLUMN:]
    np.testing.assert_array_equal(left, right)


def test_every_agent_of_a_whole_side_has_a_line_and_none_has_an_action_before_the_first():
    side = tuple((0, number) for number in range(11))
    shown = captions(driven=side, actions=())
    assert (shown[HEIGHT - 11 * LINE, :COLUMN] != GRASS).all()
    assert changed(shown, captions(driven=side, actions=(SHOT,) * 11)) is not None


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.usefixtures("no_children_left")
def test_the_engine_draws_without_a_display(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    mdp = Football("academy_empty_goal_close", render=True)
    try:
        match = mdp.reset((0,), 1)
        first = match.frame()
        assert (first.shape, first.dtype) == ((HEIGHT, WIDTH, 3), np.uint8)
        # Most of it is grass: more green than red or blue.
        red, green, blue = first[BAR:-LINE].reshape(-1, 3).astype(int).T
        assert ((green > red) & (green > blue)).mean() > 0.5
        acting = match.controllers[0].act((RIGHT,))
        acting.send(None)
        with pytest.raises(StopIteration):
            acting.send(None)
        top, bottom, _, _ = changed(first, match.frame())
        assert top < BAR  # the step
        assert bottom >= HEIGHT - LINE  # the action
    finally:
        mdp.close()
