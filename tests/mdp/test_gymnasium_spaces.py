"""Spaces as inputs and heads."""

import copy

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from lamarckian_cli.errors import ConfigError
from lamarckian_cli.mdp.check import check_mdp
from lamarckian_cli.mdp.gymnasium_adapter import GymnasiumMDP
from lamarckian_cli.mdp.spaces import decoder, encoder
from lamarckian_cli.records import ContinuousHead, DiscreteHead


class Sampler(gymnasium.Env):
    """Observes samples of a space and remembers the last action; five steps long."""

    def __init__(self, seen, played):
        self.observation_space, self.action_space = copy.deepcopy(seen), played  # it draws from its own

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.count = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), (self.action_space, action)
        self.count += 1
        return self.observation_space.sample(), 0.0, self.count == 5, False, {}


gymnasium.register("Sampler-v0", Sampler)

NESTED = spaces.Dict(
    {
        "map": spaces.Box(0, 255, (12, 10, 3), np.uint8),
        "body": spaces.Tuple((spaces.Box(-1, 1, (2,), np.float64), spaces.Discrete(3, start=1))),
        "flags": spaces.MultiBinary(4),
        "speed": spaces.Box(0, 1, (), np.float32),
        "slots": spaces.MultiDiscrete([2, 3]),
    }
)


def test_nested_observations():
    inputs, encode = encoder(NESTED, "Game")
    described = {spec.name: (spec.shape, spec.dtype) for spec in inputs}
    assert described == {
        "map": ((3, 12, 10), "uint8"),
        "body/0": ((2,), "float32"),
        "body/1": ((3,), "float32"),
        "flags": ((4,), "float32"),
        "speed": ((1,), "float32"),
        "slots": ((5,), "float32"),
    }
    picture = np.arange(360, dtype=np.uint8).reshape(12, 10, 3)
    observation = {
        "map": picture,
        "body": (np.array([0.25, -0.5]), 2),
        "flags": np.array([1, 0, 0, 1], np.int8),
        "speed": np.array(0.5, np.float32),
        "slots": np.array([1, 2]),
    }
    arrays = dict(zip(described, encode(observation), strict=True))
    assert all((arrays[name].shape, arrays[name].dtype.name) == described[name] for name in described)
    np.testing.assert_array_equal(arrays["map"], np.moveaxis(picture, 2, 0))
    np.testing.assert_array_equal(arrays["body/0"], np.float32([0.25, -0.5]))
    np.testing.assert_array_equal(arrays["body/1"], [0, 1, 0])
    np.testing.assert_array_equal(arrays["flags"], [1, 0, 0, 1])
    np.testing.assert_array_equal(arrays["speed"], [0.5])
    np.testing.assert_array_equal(arrays["slots"], [0, 1, 0, 0, 1])


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (spaces.Box(0, 255, (84, 84), np.uint8), (1, 84, 84), "uint8"),
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), (4, 84, 84), "uint8"),
        (spaces.Box(0, 255, (4, 84, 80, 3), np.uint8), (12, 84, 80), "uint8"),
        (spaces.Box(0, 255, (128,), np.uint8), (128,), "uint8"),
        (spaces.Box(-1, 1, (3, 3, 2), np.int8), (3, 3, 2), "int8"),
        (spaces.Box(-1, 1, (5,), np.float64), (5,), "float32"),
        (spaces.Box(0, 9, (2,), np.int64), (2,), "int64"),
    ],
)
def test_boxes(space, shape, dtype):
    (spec,), encode = encoder(space, "Game")
    assert (spec.shape, spec.dtype) == (shape, dtype)
    sample = space.sample()
    array = sample if encode is None else encode(sample)[0]
    assert (array.shape, array.dtype.name) == (shape, dtype)


def test_stacked_colour_images_keep_their_order():
    space = spaces.Box(0, 255, (2, 8, 8, 3), np.uint8)
    _, encode = encoder(space, "Game")
    sample = space.sample()
    np.testing.assert_array_equal(encode(sample)[0][4], sample[1, :, :, 1])


def test_what_needs_no_conversion_has_none():
    assert encoder(spaces.Box(-1, 1, (3,), np.float32), "Game")[1] is None


def test_a_choice_comes_in_the_type_that_the_space_samples():
    for space in (spaces.Discrete(3), spaces.Discrete(3, start=-1), spaces.Discrete(4, dtype=np.int32)):
        _, decode = decoder(space, "Game")
        played = [decode((choice,)) for choice in range(space.n)]
        assert played == list(range(space.start, space.start + space.n))
        assert {type(choice) for choice in played} == {type(space.sample())}


def test_nested_actions():
    space = spaces.Dict(
        {
            "move": spaces.MultiDiscrete([3, 7]),
            "aim": spaces.Tuple((spaces.Box(-1, 1, (2, 1), np.float64), spaces.Discrete(4, start=2))),
            "keys": spaces.MultiBinary(2),
        }
    )
    heads, decode = decoder(space, "Game")
    sizes = {head.name: head.n if isinstance(head, DiscreteHead) else head.size for head in heads}
    names = list(sizes)
    assert sizes == {"aim/0": 2, "aim/1": 4, "keys/0": 2, "keys/1": 2, "move/0": 3, "move/1": 7}
    ours = {"move/0": 2, "move/1": 6, "aim/0": np.float32([0.5, -3.0]), "aim/1": 1, "keys/0": 1, "keys/1": 0}
    action = decode(tuple(ours[name] for name in names))
    assert space.contains(action)
    np.testing.assert_array_equal(action["move"], [2, 6])
    np.testing.assert_array_equal(action["aim"][0], [[0.5], [-1.0]])
    assert action["aim"][1] == 3
    np.testing.assert_array_equal(action["keys"], [1, 0])


def test_starts_are_added():
    _, decode = decoder(spaces.Discrete(3, start=-1), "Game")
    assert [decode((choice,)) for choice in range(3)] == [-1, 0, 1]
    heads, decode = decoder(spaces.MultiDiscrete([2, 2], start=[5, 0]), "Game")
    assert [head.n for head in heads] == [2, 2]
    np.testing.assert_array_equal(decode((1, 1)), [6, 1])
    heads, decode = decoder(spaces.MultiDiscrete([4]), "Game")
    np.testing.assert_array_equal(decode((3,)), [3])


def test_one_leaf_of_a_dict():
    _, decode = decoder(spaces.Dict(action=spaces.Discrete(3)), "Game")
    assert decode((2,)) == {"action": 2}


@pytest.mark.parametrize("size", [1, 3, 6])
def test_actions_are_clipped_and_the_policys_are_left_alone(size):
    low, high = -np.arange(1, size + 1, dtype=np.float32), np.full(size, 0.5, np.float32)
    heads, decode = decoder(spaces.Box(low, high, dtype=np.float32), "Game")
    assert heads == (ContinuousHead(name="action", low=tuple(low.tolist()), high=tuple(high.tolist())),)
    rng = np.random.default_rng(size)
    for _ in range(50):
        action = rng.normal(0, 2, size).astype(np.float32)
        kept = action.copy()
        played = decode((action,))
        np.testing.assert_array_equal(played, np.clip(action, low, high))
        np.testing.assert_array_equal(action, kept)
        assert played.dtype == np.float32


def test_whole_number_boxes_are_rounded():
    space = spaces.Box(0, 5, (2,), np.int64)
    played = decoder(space, "Game")[1]((np.float32([1.6, 9.0]),))
    assert space.contains(played)
    np.testing.assert_array_equal(played, [2, 5])


@pytest.mark.parametrize(
    "played", [spaces.Discrete(3), spaces.MultiDiscrete([2, 4]), spaces.Box(-1, 1, (2,))]
)
def test_nested_games_pass_the_check(played):
    check_mdp(
        GymnasiumMDP("Sampler-v0", {"seen": NESTED, "played": spaces.Dict(a=played, b=played)}), matches=1
    )
    check_mdp(GymnasiumMDP("Sampler-v0", {"seen": spaces.Discrete(4), "played": played}), matches=1)


# ------------------------------------------------------------------ bad input


def test_unsupported_spaces_are_named():
    with pytest.raises(
        ConfigError, match=r"Sampler-v0: observation observation has the space Text.*MultiBinary"
    ):
        GymnasiumMDP("Sampler-v0", {"seen": spaces.Text(5), "played": spaces.Discrete(2)})
    with pytest.raises(ConfigError, match=r"action choice has the space Sequence.*supported are Discrete"):
        decoder(spaces.Dict(choice=spaces.Sequence(spaces.Discrete(2))), "Game")
    with pytest.raises(ConfigError, match="observes nothing"):
        encoder(spaces.Dict({}), "Game")
    with pytest.raises(ConfigError, match="nothing to do"):
        decoder(spaces.Tuple(()), "Game")
    with pytest.raises(ConfigError, match="one-hot"):
        encoder(spaces.Discrete(10**6), "Game")


def test_unbounded_actions_ask_for_a_limit():
    space = spaces.Box(np.float32([-np.inf, -1]), np.float32([np.inf, 1]))
    with pytest.raises(ConfigError, match=r"unbounded in 1 of its 2 numbers.*env\.action_limit"):
        decoder(space, "Game")
    (head,), _ = decoder(space, "Game", 3.0)
    assert (head.low, head.high) == ((-3.0, -1.0), (3.0, 1.0))
    with pytest.raises(ConfigError, match=r"env\.action_limit is -1"):
        GymnasiumMDP("Pendulum-v1", action_limit=-1)
