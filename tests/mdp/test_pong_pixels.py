"""Pong as images: the same game, and both players see themselves on the left."""

from itertools import pairwise

import numpy as np

from lamarckian_cli.mdp.check import check_mdp
from lamarckian_cli.mdp.pong import Pong
from lamarckian_cli.mdp.pong_pixels import SIZE, STACK, PongPixels
from lamarckian_cli.mdp.scheduler import Scheduler


def run(match, moves, steps: int) -> list[list[tuple]]:
    """The same moves for every controller; per controller (picture stack, reward) of each step."""
    logs: list[list[tuple]] = [[] for _ in match.controllers]

    async def drive(controller, log) -> None:
        for step in range(steps):
            stack = controller.state().inputs[0]
            await controller.act((moves[step % len(moves)],))
            log.append((stack, controller.reward()))

    scheduler = Scheduler()
    for controller, log in zip(match.controllers, logs, strict=True):
        scheduler.spawn(drive(controller, log))
    scheduler.run()
    assert not scheduler.failed
    return logs


def test_it_is_a_good_mdp() -> None:
    check_mdp(PongPixels(rounds=2, max_steps=100), matches=1)


def test_it_is_the_same_game_as_pong() -> None:
    (seen,) = run(PongPixels().reset((0,), 4), (0, 1, 1, 2), 200)
    (numbers,) = run(Pong().reset((0,), 4), (0, 1, 1, 2), 200)
    assert [reward for _, reward in seen] == [reward for _, reward in numbers]
    assert any(reward != (0.0,) for _, reward in seen)


def test_the_newest_picture_is_last_and_old_stacks_stay_as_they_were() -> None:
    (log,) = run(PongPixels().reset((0,), 4), (1, 2, 2), 20)
    stacks = [stack for stack, _ in log]
    assert stacks[0].shape == (STACK, SIZE, SIZE)
    assert stacks[0].dtype == np.uint8
    assert (stacks[0] == stacks[0][0]).all()  # before anything moved
    for one, following in pairwise(stacks):
        np.testing.assert_array_equal(one[1:], following[:-1])
    assert (stacks[5][-1] != stacks[5][-2]).any()


def test_both_players_see_themselves_on_the_left() -> None:
    match = PongPixels().reset((0, 1), 4)
    first, second = run(match, (1, 1, 1, 0), 4)
    for one, other in zip(first, second, strict=True):
        # The bats move alike here, so a picture is the other player's turned left for right,
        # but for the shades of the bats.
        np.testing.assert_array_equal(one[0] > 0, np.flip(other[0] > 0, axis=2))
        assert (one[0][..., 0].max(), one[0][..., -1].max()) == (255, 150)
        assert (other[0][..., 0].max(), other[0][..., -1].max()) == (255, 150)


def test_everything_stays_inside_the_picture() -> None:
    match = PongPixels().reset((0,), 0)
    for y in (-1.0, 1.0):
        for x in (-1.0, 1.0):
            match.x, match.y = x, y
            match.bats[:] = [y * 0.75, -y * 0.75]
            controller = type(match.controllers[0])(match, 0, alone=True)
            picture = controller.state().inputs[0][0]
            rows, columns = np.nonzero(picture)
            assert (picture == 255).sum() >= 9 + 2 * 15
            assert rows.min() >= 0
            assert columns.max() == SIZE - 1
