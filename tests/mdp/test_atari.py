"""Atari against Gymnasium's own wrappers, which do the same more slowly."""

import importlib
import random

import gymnasium
import numpy as np
import pytest

from lamarckian_cli.errors import ConfigError, MDPError, MissingPackage
from lamarckian_cli.mdp import atari
from lamarckian_cli.mdp.check import check_mdp
from lamarckian_cli.mdp.shrink import Shrink
from lamarckian_cli.records import RUNNING, TERMINATED, TRUNCATED

pytest.importorskip("ale_py")


def done(awaitable):
    """The value of a coroutine that must not suspend."""
    try:
        awaitable.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it suspended")


def play(match, actions):
    """Stacks, rewards and outcomes until the actions or the match end."""
    (controller,) = match.controllers
    stacks, rewards, outcomes = [controller.state().inputs[0].copy()], [], []
    for action in actions:
        outcomes.append(done(controller.act((int(action),))))
        rewards.append(controller.reward()[0])
        stacks.append(controller.state().inputs[0].copy())
        if outcomes[-1] is not RUNNING:
            break
    return np.stack(stacks), rewards, outcomes


def reference(id, seed=0):
    """Gymnasium's preprocessing of the same game, without no-ops."""
    atari.register_atari()
    env = gymnasium.make(id, frameskip=1, repeat_action_probability=0.0, disable_env_checker=True)
    env = gymnasium.wrappers.AtariPreprocessing(env, noop_max=0)
    return gymnasium.wrappers.FrameStackObservation(env, 4)


@pytest.mark.parametrize("id", ["ALE/Pong-v5", "ALE/Breakout-v5"])
def test_sees_what_gymnasiums_wrappers_see(id):
    env = reference(id)
    mdp = atari.AtariMDP(id, noop_max=0)
    actions = np.random.default_rng(1).integers(0, env.action_space.n, 120)
    stacks, rewards, outcomes = play(mdp.reset((0,), 5), actions)
    observation, _ = env.reset(seed=0)
    for step, action in enumerate(actions[: len(rewards)]):
        # OpenCV adds in float32 and rounds halves either way.
        difference = np.abs(np.asarray(observation).astype(int) - stacks[step])
        assert difference.max() <= 1
        assert (difference > 0).mean() < 0.02
        observation, reward, terminated, _, _ = env.step(int(action))
        assert reward == rewards[step]
        assert terminated == outcomes[step].terminated


def test_describes_its_seat():
    spec = atari.AtariMDP("ALE/Pong-v5").describe()
    (seat,) = spec.seats
    assert (seat.inputs[0].shape, seat.inputs[0].dtype) == ((4, 84, 84), "uint8")
    assert seat.inputs[0].is_image
    assert seat.heads[0].names == ("noop", "fire", "right", "left", "rightfire", "leftfire")
    assert spec.frames_per_step == 4
    assert atari.AtariMDP("ALE/Pong-v5", full_actions=True).describe().seats[0].heads[0].n == 18


def test_passes_the_check():
    check_mdp(atari.AtariMDP("ALE/Pong-v5", max_frames=200, sticky=0.25), matches=2)


def test_same_seed_and_actions_are_the_same_frames():
    mdp = atari.AtariMDP("ALE/Pong-v5", sticky=0.25)
    actions = np.random.default_rng(2).integers(0, 6, 60)
    first = mdp.reset((0,), 7)
    one = play(first, actions)
    two = play(mdp.reset((0,), 7), actions)  # in another emulator
    first.close()
    three = play(mdp.reset((0,), 7), actions)  # in one that has been used
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[0], three[0])
    assert one[1] == two[1] == three[1]
    other = play(mdp.reset((0,), 8), actions)
    assert not np.array_equal(one[0], other[0])


def test_a_match_starts_with_its_seeds_number_of_no_ops():
    mdp = atari.AtariMDP("ALE/Breakout-v5", noop_max=30)
    noops = random.Random(11).randint(1, 30)
    emulator = mdp.reset((0,), 11).emulator
    assert emulator.getEpisodeFrameNumber() == noops


def test_the_stack_moves_by_one_image():
    stacks, _, _ = play(atari.AtariMDP("ALE/Pong-v5").reset((0,), 0), [2, 3] * 20)
    np.testing.assert_array_equal(stacks[0], np.repeat(stacks[0][:1], 4, axis=0))
    np.testing.assert_array_equal(stacks[1:, :3], stacks[:-1, 1:])


def test_ends_are_told_apart():
    _, rewards, outcomes = play(atari.AtariMDP("ALE/Pong-v5", max_frames=40).reset((0,), 0), [0] * 50)
    assert len(rewards) == 10
    assert outcomes[-1] is TRUNCATED
    match = atari.AtariMDP("ALE/Breakout-v5", end_on_life_loss=True).reset((0,), 0)
    _, _, outcomes = play(match, [1, 2] * 500)
    assert outcomes[-1] is TERMINATED
    assert match.controllers[0].result()["lives"] == 4
    with pytest.raises(MDPError, match="although the match has ended"):
        done(match.controllers[0].act((0,)))


def test_a_whole_game_terminates_and_the_next_begins_anew():
    mdp = atari.AtariMDP("ALE/Breakout-v5")
    actions = [1, 2, 3] * 1000
    match = mdp.reset((0,), 1)
    _, rewards, outcomes = play(match, actions)
    assert outcomes[-1] is TERMINATED
    assert match.controllers[0].result() == {"score": sum(rewards), "lives": 0.0}
    match.close()
    again = mdp.reset((0,), 1)
    assert again.emulator is match.emulator
    assert play(again, actions)[1] == rewards


def test_clipped_rewards_keep_the_score():
    mdp = atari.AtariMDP("ALE/SpaceInvaders-v5", clip_reward=True)
    match = mdp.reset((0,), 0)
    _, rewards, _ = play(match, [1] * 200)
    assert set(rewards) <= {0.0, 1.0}
    assert match.controllers[0].result()["score"] > sum(rewards) > 0


def test_every_frame_can_be_a_step():
    mdp = atari.AtariMDP("ALE/Pong-v5", frames_per_step=1, stack=2, size=42, noop_max=0)
    stacks, _, _ = play(mdp.reset((0,), 0), [2] * 5)
    assert stacks.shape == (6, 2, 42, 42)
    assert mdp.describe().frames_per_step == 1


def test_pictures():
    match = atari.AtariMDP("ALE/Pong-v5").reset((0,), 0)
    assert match.frame().shape == (210, 160, 3)
    assert len(match.text().split("\n")) == 53


def test_shrink_is_the_exact_average():
    screen = np.random.default_rng(0).integers(0, 256, (210, 160), dtype=np.uint8)
    out = np.empty((84, 84), np.uint8)
    Shrink((210, 160), 84)(screen, out)
    # Every pixel as 2 x 21 equal ones, of which 5 x 40 make one of the result.
    fine = screen.astype(np.int64).repeat(2, axis=0).repeat(21, axis=1)
    sums = fine.reshape(84, 5, 84, 40).sum(axis=(1, 3))
    np.testing.assert_array_equal(out, (sums + 100) // 200)


def test_shrink_by_opencv():
    cv2 = pytest.importorskip("cv2")
    screen = np.random.default_rng(0).integers(0, 256, (250, 160), dtype=np.uint8)
    out = np.empty((84, 84), np.uint8)
    Shrink((250, 160), 84)(screen, out)
    np.testing.assert_array_equal(out, cv2.resize(screen, (84, 84), interpolation=cv2.INTER_AREA))


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"frames_per_step": 0}, r"env\.frames_per_step is 0"),
        ({"noop_max": -1}, r"env\.noop_max is -1"),
        ({"sticky": 1.0}, r"env\.sticky is 1.0"),
        ({"size": 0}, r"env\.size is 0"),
        ({"stack": 0}, r"env\.stack is 0"),
        ({"max_frames": 0}, r"env\.max_frames is 0"),
        ({"id": "CartPole-v1"}, "CartPole-v1 is no Atari game"),
        ({"id": "ALE/Pongg-v5"}, r"ALE/Pong-v5.*`lamarck list env`"),
    ],
)
def test_bad_values(arguments, message):
    with pytest.raises(ConfigError, match=message):
        atari.AtariMDP(**arguments)


def test_missing_packages(monkeypatch):
    find = importlib.import_module

    def find_without(name):
        if name in ("ale_py", "cv2"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return find(name)

    monkeypatch.setattr(importlib, "import_module", find_without)
    with pytest.raises(MissingPackage, match="pip install ale-py"):
        atari.AtariMDP()
    with pytest.raises(MissingPackage, match="pip install opencv-python-headless"):
        Shrink((250, 160), 84)


def test_seats_it_does_not_have():
    with pytest.raises(MDPError, match="one seat"):
        atari.AtariMDP().reset((0, 1), 0)
