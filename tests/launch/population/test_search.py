"""What evolution may change of a training: keys and ranges, checked before anything is started."""

import dataclasses

import numpy as np
import pytest

from lamarckian_cli.errors import ConfigError
from lamarckian_cli.launch.population.search import Range, Search
from lamarckian_cli.learner.ppo import PPO
from lamarckian_cli.records import DiscreteHead, InputSpec, RewardHead, SeatSpec

SEAT = SeatSpec(
    inputs=(InputSpec(name="v", shape=(2,), dtype="float32"),),
    heads=(DiscreteHead(name="a", n=2),),
    rewards=(RewardHead(name="goals", weight=1.0), RewardHead(name="style", weight=0.5)),
)
RANGES = {
    "algo.lr": Range(low=1e-5, high=1e-1, scale="log"),
    "algo.clip": Range(low=0.1, high=0.3),
    "algo.reuse": Range(low=1, high=4),
    "algo.normalize_returns": Range(choices=(True, False)),
    "reward.style": Range(low=0.0, high=2.0),
}


def search(**changes):
    return Search({**RANGES, **changes}, PPO(), SEAT)


def test_first_values_are_uniform_on_their_scale():
    drawn = search().sample(4000, np.random.default_rng(0))
    search().coding.check(drawn, "sample")
    exponents = np.log10(drawn["algo.lr"][:, 0])
    counts, _ = np.histogram(exponents, bins=4, range=(-5, -1))
    assert counts.sum() == 4000
    assert abs(counts - 1000).max() < 5 * np.sqrt(1000 * 0.75)
    counts, _ = np.histogram(drawn["algo.clip"][:, 0], bins=4, range=(0.1, 0.3))
    assert abs(counts - 1000).max() < 5 * np.sqrt(1000 * 0.75)
    assert set(drawn["algo.reuse"][:, 0]) == {1, 2, 3, 4}


def test_a_genome_becomes_the_algorithm_and_the_weights_of_reward_heads():
    one = search()
    genomes = {
        "algo.lr": np.array([[0.1], [0.002]]),
        "algo.clip": np.array([[0.3], [0.15]]),
        "algo.reuse": np.array([[1], [3]]),
        "algo.normalize_returns": np.array([[1], [0]]),
        "reward.style": np.array([[0.0], [1.25]]),
    }
    values = one.values(genomes, 1)
    expected = dataclasses.replace(PPO(), lr=0.002, clip=0.15, reuse=3, normalize_returns=True)
    assert one.algorithm(values) == expected
    assert one.head_weights(values) == (1.0, 1.25)


def test_reward_heads_stay_as_the_game_has_them_where_none_is_searched():
    one = Search({"algo.lr": RANGES["algo.lr"]}, PPO(), SEAT)
    assert one.head_weights({"algo.lr": 0.1}) is None


@pytest.mark.parametrize(
    ("key", "span", "message"),
    [
        ("algo.speed", Range(low=0, high=1), "problem.search has algo.speed; it can have algo.adam_epsilon"),
        ("env.skill", Range(low=0, high=1), "problem.search has env.skill; it can have"),
        ("reward.gaols", Range(low=0, high=1), "the game's reward heads are goals, style"),
        ("algo.unroll", Range(low=8, high=64), "members of one population share; sweep it instead"),
        ("algo.clip", Range(low=0.1, high=1.5), "problem.search.algo.clip reaches 1.5: algo.clip is 1.5"),
        ("algo.lr", Range(low=0.0, high=0.1, scale="log"), "on a logarithmic scale it must be above 0"),
        ("algo.lr", Range(low=0.1, high=0.01), "it must not be above high"),
        ("algo.lr", Range(low=0.1), "has no high; give low and high, or choices"),
        ("algo.lr", Range(low=0.1, choices=(0.1,)), "give either choices, or low and high"),
        ("algo.lr", Range(low=0.1, high=0.2, scale="cubic"), "choose linear or log"),
        ("algo.lr", Range(choices=()), "name at least one value"),
        ("algo.normalize_returns", Range(low=0, high=1), "it needs choices, such as \\[False\\]"),
    ],
)
def test_what_cannot_be_is_refused_with_the_key(key, span, message):
    with pytest.raises(ConfigError, match=message):
        search(**{key: span})


def test_a_search_for_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"name at least one key, such as algo\.lr"):
        Search({}, PPO(), SEAT)
