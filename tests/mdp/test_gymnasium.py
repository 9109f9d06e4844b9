"""The Gymnasium adapter against the bare environment, and what it says to bad input."""

import gymnasium
import numpy as np
import pytest

from lamarckian_cli.errors import ConfigError, MDPError, MissingPackage
from lamarckian_cli.mdp import gymnasium_adapter
from lamarckian_cli.mdp.check import check_mdp
from lamarckian_cli.mdp.gymnasium_adapter import GymnasiumMDP, make_env
from lamarckian_cli.mdp.picture import picture_text, shrink
from lamarckian_cli.records import RUNNING, TERMINATED, TRUNCATED, ContinuousHead, DiscreteHead


def done(awaitable):
    """The value of a coroutine that must not suspend."""
    try:
        awaitable.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it suspended")


class Ladder(gymnasium.Env):
    """Counts its steps; ends as it is told; observes and does nothing of interest."""

    def __init__(self, ends_at=3, end=(True, False), reported=None, wrong=None, reward_dim=None):
        self.observation_space = gymnasium.spaces.Box(-1.0, 100.0, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.ends_at, self.end, self.reported, self.wrong = ends_at, end, reported or {}, wrong
        if reward_dim:
            self.reward_space = gymnasium.spaces.Box(-1, 1, (reward_dim,), np.float32)
        self.reward_dim = reward_dim

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count += 1
        ended = self.end if self.count == self.ends_at else (False, False)
        seen = np.full(2, self.count, np.float32) if self.wrong is None else self.wrong
        reward = np.arange(self.reward_dim, dtype=np.float32) if self.reward_dim else 0.5
        return seen, reward, *ended, self.reported


gymnasium.register("Ladder-v0", Ladder)


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0", "LunarLander-v3"])
def test_is_the_bare_environment_step_for_step(id):
    if id.startswith("Lunar"):
        pytest.importorskip("Box2D")
    mdp = GymnasiumMDP(id)
    bare = make_env(id)
    bare.action_space.seed(1)
    for seed in (3, 4):
        controller = mdp.reset((0,), seed).controllers[0]
        observation, _ = bare.reset(seed=seed)
        for _ in range(250):
            np.testing.assert_array_equal(controller.state().inputs[0], observation)
            action = bare.action_space.sample()
            outcome = done(controller.act((action,)))
            observation, reward, terminated, truncated, _ = bare.step(action)
            assert list(controller.reward()) == [reward]
            assert (outcome.terminated, outcome.truncated) == (terminated, truncated and not terminated)
            if terminated or truncated:
                break
        np.testing.assert_array_equal(controller.state().inputs[0], observation)


def test_nothing_is_copied_where_nothing_needs_converting():
    mdp = GymnasiumMDP("CartPole-v1")
    match = mdp.reset((0,), 0)
    seen = {}
    step = match.env.unwrapped.step

    def spy(action):
        seen["last"] = step(action)
        return seen["last"]

    match.env.unwrapped.step = spy
    done(match.controllers[0].act((0,)))
    assert match.controllers[0].state().inputs[0] is seen["last"][0]


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "Taxi-v4"])
def test_passes_the_check(id):
    assert check_mdp(GymnasiumMDP(id), matches=2).env_steps > 0


def test_describes_its_seat():
    spec = GymnasiumMDP("CartPole-v1").describe()
    assert spec.name == "CartPole-v1"
    (seat,) = spec.seats
    assert (seat.inputs[0].name, seat.inputs[0].shape, seat.inputs[0].dtype) == (
        "observation",
        (4,),
        "float32",
    )
    assert seat.heads == (DiscreteHead(name="action", n=2),)
    (head,) = GymnasiumMDP("Pendulum-v1").describe().seats[0].heads
    assert head == ContinuousHead(name="action", low=(-2.0,), high=(2.0,))


@pytest.mark.parametrize(
    ("end", "outcome"),
    [((True, False), TERMINATED), ((False, True), TRUNCATED), ((True, True), TERMINATED)],
)
def test_tells_termination_from_truncation(end, outcome):
    controller = GymnasiumMDP("Ladder-v0", {"end": end}).reset((0,), 0).controllers[0]
    assert [done(controller.act((0,))) for _ in range(3)] == [RUNNING, RUNNING, outcome]
    np.testing.assert_array_equal(controller.state().inputs[0], [3, 3])
    with pytest.raises(MDPError, match=r"Ladder-v0, seat 0: act\(\) was called although the match has ended"):
        done(controller.act((0,)))


def test_reports_the_numbers_of_the_last_info():
    reported = {"laps": 3, "share": np.float32(0.5), "won": True, "name": "x", "path": [1], "return": 9.0}
    controller = GymnasiumMDP("Ladder-v0", {"ends_at": 1, "reported": reported}).reset((0,), 0).controllers[0]
    done(controller.act((1,)))
    assert controller.result() == {"laps": 3.0, "share": 0.5, "won": 1.0}


def test_a_vector_reward_is_as_many_heads():
    mdp = GymnasiumMDP("Ladder-v0", {"reward_dim": 2})
    assert [head.name for head in mdp.describe().seats[0].rewards] == ["reward_0", "reward_1"]
    controller = mdp.reset((0,), 0).controllers[0]
    done(controller.act((0,)))
    assert list(controller.reward()) == [0.0, 1.0]


class Reuses(Ladder):
    """Writes every reward into the same array."""

    def __init__(self, dim, vector):
        super().__init__(ends_at=1000)
        self.rewards = np.zeros(dim, np.float32)
        if vector:
            self.reward_space = gymnasium.spaces.Box(-1, 1, (dim,), np.float32)

    def step(self, action):
        seen, _, *rest = super().step(action)
        self.rewards[:] = self.count
        return seen, self.rewards, *rest


gymnasium.register("Reuses-v0", Reuses)


@pytest.mark.parametrize(("dim", "vector"), [(1, False), (3, True)])
def test_rewards_in_an_array_that_is_used_again_stay_what_they_were(dim, vector):
    controller = GymnasiumMDP("Reuses-v0", {"dim": dim, "vector": vector}).reset((0,), 0).controllers[0]
    gained = []
    for _ in range(3):
        done(controller.act((0,)))
        gained.append(controller.reward())
    assert [list(reward) for reward in gained] == [[1.0] * dim, [2.0] * dim, [3.0] * dim]


def test_environments_are_reused_when_matches_close():
    mdp = GymnasiumMDP("CartPole-v1")
    first, second = mdp.reset((0,), 0), mdp.reset((0,), 1)
    assert first.env is not second.env
    first.close()
    first.close()
    third, fourth = mdp.reset((0,), 2), mdp.reset((0,), 3)
    assert third.env is first.env
    assert fourth.env not in (first.env, second.env)
    with pytest.raises(MDPError, match="the match is closed"):
        done(first.controllers[0].act((0,)))
    mdp.close()
    with pytest.raises(MDPError, match="closed"):
        mdp.reset((0,), 0)


def test_seeds_of_any_size_repeat():
    mdp = GymnasiumMDP("CartPole-v1")
    seed = 2**62 + 12345
    states = [mdp.reset((0,), seed).controllers[0].state().inputs[0] for _ in range(2)]
    np.testing.assert_array_equal(states[0], states[1])


def test_frames_per_step():
    assert GymnasiumMDP("Ladder-v0").describe().frames_per_step == 1
    assert GymnasiumMDP("Ladder-v0", frames_per_step=3).describe().frames_per_step == 3
    with pytest.raises(ConfigError, match=r"env\.frames_per_step is 0"):
        GymnasiumMDP("Ladder-v0", frames_per_step=0)


def test_pictures():
    pytest.importorskip("pygame")
    match = GymnasiumMDP("CartPole-v1", render=True).reset((0,), 0)
    frame = match.frame()
    assert frame.ndim == 3
    assert frame.dtype == np.uint8
    assert "▀" in match.text()
    match.close()
    with pytest.raises(ConfigError, match=r"env\.render=true"):
        GymnasiumMDP("CartPole-v1").reset((0,), 0).frame()


def test_picture_as_text():
    picture = np.zeros((4, 2, 3), np.uint8)
    picture[:2] = (255, 0, 0)
    picture[2:] = (0, 0, 255)
    lines = picture_text(picture, columns=1).split("\n")
    assert lines == ["\x1b[38;2;255;0;0;48;2;0;0;255m▀\x1b[0m"]
    assert shrink(np.full((10, 7, 3), 9, np.uint8), 5).shape == (7, 5, 3)
    assert (shrink(np.full((10, 7, 3), 9, np.uint8), 5) == 9).all()
    assert len(picture_text(np.zeros((3, 2, 3), np.uint8)).split("\n")) == 2


# ------------------------------------------------------------------ bad input


def test_unknown_id_offers_what_is_close():
    with pytest.raises(ConfigError, match=r"CartPole-v1.*`lamarck list env`"):
        GymnasiumMDP("CartPol-v1")
    with pytest.raises(ConfigError, match=r"env\.id=CartPole-v7 .*CartPole-v1"):
        GymnasiumMDP("CartPole-v7")
    with pytest.raises(ConfigError, match=r"env\.id=not an id"):
        GymnasiumMDP("not an id")
    with pytest.raises(ConfigError, match=r"LunarLander-v2.*LunarLander-v3"):
        GymnasiumMDP("LunarLander-v2")


def test_unknown_argument():
    with pytest.raises(ConfigError, match=r"env\.kwargs=\{'gravitas': 1\}.*gravitas"):
        GymnasiumMDP("Pendulum-v1", {"gravitas": 1})


def test_missing_packages(monkeypatch):
    def no_box2d(*_, **__):
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed, run `pip install swig`")

    def no_module(*_, **__):
        raise ModuleNotFoundError("No module named 'mujoco'", name="mujoco")

    monkeypatch.setattr(gymnasium_adapter.gymnasium, "make", no_box2d)
    with pytest.raises(MissingPackage, match="pip install"):
        make_env("CartPole-v1")
    monkeypatch.setattr(gymnasium_adapter.gymnasium, "make", no_module)
    with pytest.raises(MissingPackage, match=r"pip install 'gymnasium\[mujoco\]'"):
        make_env("CartPole-v1")
    with pytest.raises(MissingPackage, match="no_such_module"):
        make_env("no_such_module:Game-v0")
    monkeypatch.setattr(gymnasium_adapter.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match="pip install ale-py"):
        make_env("ALE/Pong-v5")


def test_seats_it_does_not_have():
    with pytest.raises(MDPError, match="one seat, 0; seats \\(1,\\)"):
        GymnasiumMDP("CartPole-v1").reset((1,), 0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            np.zeros(3, np.float32),
            r"seat 0: step\(\) returned observation of shape \(3,\).*says shape \(2,\)",
        ),
        (np.zeros(2, np.float64), r"dtype float64.*float32"),
        ([0.0, 0.0], r"dtype list"),
    ],
)
def test_an_environment_that_returns_something_else(wrong, message):
    with pytest.raises(MDPError, match=message):
        GymnasiumMDP("Ladder-v0", {"wrong": wrong})
