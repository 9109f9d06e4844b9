"""Plays a match with gfootball's own environment, and saves what its wrappers make of it.

    python football_reference.py SCENARIO SEED KICK_OFF LEFT RIGHT STEPS OUT.npz

Its package imports the old gym, of which it uses a few names only: they are replaced by
stand-ins, which is why this is a program of its own. Actions are drawn from SEED.
"""

import sys
import types

import numpy as np


class Env:
    @property
    def unwrapped(self):
        return self


class Wrapper(Env):
    def __init__(self, env):
        self.env = env


def stand_in_for_gym():
    gym = types.ModuleType("gym")
    gym.Env = Env
    gym.Wrapper = gym.ObservationWrapper = gym.RewardWrapper = Wrapper
    gym.spaces, gym.envs = types.ModuleType("gym.spaces"), types.ModuleType("gym.envs")
    registration = types.ModuleType("gym.envs.registration")
    registration.register = lambda *_, **__: None
    names = {"": gym, ".spaces": gym.spaces, ".envs": gym.envs, ".envs.registration": registration}
    sys.modules.update({f"gym{name}": module for name, module in names.items()})


def main(scenario, seed, kick_off, left, right, steps, out):
    stand_in_for_gym()
    from gfootball.env import config, football_env, observation_preprocessing, wrappers

    seed, kick_off, left, right, steps = map(int, (seed, kick_off, left, right, steps))
    values = {
        "level": scenario,
        "game_engine_random_seed": seed,
        "players": [f"agent:left_players={left},right_players={right}"],
        "episode_number": kick_off,  # the configuration and each reset add one
    }
    env = football_env.FootballEnv(config.Config(values))
    reward_of = wrappers.CheckpointRewardWrapper(env)
    observation = env.reset()
    rng = np.random.default_rng(seed)
    seen = {"simple115": [], "minimap": [], "reward": [], "checkpoint": [], "sticky": []}
    done = False
    while True:
        seen["simple115"].append(wrappers.Simple115StateWrapper.convert_observation(observation, True))
        seen["minimap"].append(observation_preprocessing.generate_smm(observation).transpose(0, 3, 1, 2))
        seen["sticky"].append([agent["sticky_actions"] for agent in observation])
        if done or len(seen["reward"]) == steps:
            break
        actions = rng.integers(0, 19, left + right).tolist()
        observation, reward, done, _ = env.step(actions)
        seen["reward"].append(reward.copy())
        seen["checkpoint"].append(reward_of.reward(reward.copy()) - seen["reward"][-1])
    np.savez_compressed(out, done=done, **{name: np.array(values) for name, values in seen.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
