"""Any Gymnasium environment as an MDP of one seat; it needs no change.

A match borrows an environment from a pool of those whose matches are closed, so that as
many environments exist as matches ran at once. The controller adds about half a
microsecond to the environment's own step: `act` never suspends, and where the observation
is already what the policy sees, nothing is converted or copied.
"""

from __future__ import annotations

import copy
import difflib
import importlib
import importlib.util
import numbers
import warnings
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from lamarckian_cli.errors import ConfigError, MDPError, MissingPackage, pip_install, require
from lamarckian_cli.mdp.picture import picture_text
from lamarckian_cli.mdp.spaces import decoder, encoder
from lamarckian_cli.records import (
    RUNNING,
    TERMINATED,
    TRUNCATED,
    Action,
    MDPSpec,
    Outcome,
    RewardHead,
    SeatSpec,
    State,
)

SEED_MAX = 2**31  # libraries below Gymnasium take no larger seeds
PROBE_STEPS = 2  # of the first environment, to see what it really returns
_new = tuple.__new__  # State(...) goes through Python and takes twice as long


class GymnasiumMDP:
    """One seat in the environment registered as `id`. Its arguments are the keys of `conf/env/gym.yaml`.

    - `kwargs`: handed to `gymnasium.make`, such as `{"gravity": -9.8}`.
    - `action_limit`: the largest magnitude of a continuous action that the space leaves
      unbounded; None refuses such a space.
    - `frames_per_step`: frames that one step advances; None takes the environment's
      `frameskip` where it is a number, else 1.
    - `render`: make environments with `render_mode="rgb_array"`, for `frame()` and `text()`.

    The arrays of a State are valid until the next `act`; what the environment returns is
    handed on without a copy. Rewards are raw; an environment with a vector reward (a
    `reward_space`) has as many reward heads. Where a step both terminates and truncates, it
    terminated. `result()` holds the numbers that the last step's `info` reports at its top level.

    Raises ConfigError for an id, a key of `kwargs` or a space that cannot work,
    MissingPackage for a dependency that is not installed, MDPError for an environment that
    returns something else than its spaces say.
    """

    external = False

    def __init__(
        self,
        id: str,
        kwargs: Mapping[str, Any] | None = None,
        *,
        action_limit: float | None = None,
        frames_per_step: int | None = None,
        render: bool = False,
    ) -> None:
        limit_ok = action_limit is None or (action_limit > 0 and np.isfinite(action_limit))
        require(limit_ok, "env.action_limit", action_limit, "it must be a positive number or null")
        frames_ok = frames_per_step is None or frames_per_step >= 1
        require(frames_ok, "env.frames_per_step", frames_per_step, "it must be at least 1, or null")
        self.id = id
        self.kwargs = dict(kwargs or {})
        self.render = render
        self._closed = False
        env = make_env(id, self.kwargs, render=render)
        self._pool = [env]
        names = _action_names(env)
        inputs, self.encode = encoder(env.observation_space, id)
        heads, self.decode = decoder(env.action_space, id, action_limit, names)
        reward_space = getattr(env.unwrapped, "reward_space", None)
        self.reward_heads = 1 if reward_space is None else int(np.prod(reward_space.shape))
        self.many_rewards = self.reward_heads > 1  # rewards come as an array
        rewards = tuple(RewardHead(name=f"reward_{index}") for index in range(self.reward_heads))
        if reward_space is None:
            rewards = (RewardHead(),)
        self._spec = MDPSpec(
            name=id,
            seats=(SeatSpec(inputs=inputs, heads=heads, rewards=rewards),),
            frames_per_step=frames_per_step or _frameskip(env),
        )
        self._probe()

    def describe(self) -> MDPSpec:
        return self._spec

    def reset(self, seats: Sequence[int], seed: int) -> GymnasiumMatch:
        """A match in an environment of its own, reset with `seed` modulo 2**31."""
        if tuple(seats) != (0,):
            raise MDPError(f"{self.id} has one seat, 0; seats {tuple(seats)} were asked for")
        if self._closed:
            raise MDPError(f"{self.id} is closed; it starts no more matches")
        env = self._pool.pop() if self._pool else make_env(self.id, self.kwargs, render=self.render)
        return GymnasiumMatch(self, env, seed % SEED_MAX)

    def close(self) -> None:
        self._closed = True
        while self._pool:
            self._pool.pop().close()

    def give_back(self, env: gymnasium.Env) -> None:
        """Take over the environment of a closed match."""
        if self._closed:
            env.close()
        else:
            self._pool.append(env)

    def _probe(self) -> None:
        """Play a few steps and compare what comes with what was described.

        Later steps are not looked at: a comparison costs more than most steps do.
        """
        match = self.reset((0,), seed=0)
        controller = match.controllers[0]
        match.env.action_space.seed(0)
        try:
            self._inspect(controller.state(), "reset()")
            for _ in range(PROBE_STEPS):
                ended = controller.play(match.env.action_space.sample())
                self._inspect(controller.state(), "step()")
                if np.shape(controller.reward()) == (1, 1):  # no number, but an array of one
                    self.many_rewards = True
                elif len(controller.reward()) != self.reward_heads:
                    raise MDPError(
                        f"{self.id}, seat 0: step() returned {len(controller.reward())} rewards; "
                        f"its reward_space has {self.reward_heads}"
                    )
                if ended is not RUNNING:
                    break
        finally:
            match.close()

    def _inspect(self, state: State, where: str) -> None:
        for spec, array in zip(self._spec.seats[0].inputs, state.inputs, strict=True):
            actual = (tuple(np.shape(array)), str(getattr(array, "dtype", type(array).__name__)))
            if actual != (spec.shape, spec.dtype):
                raise MDPError(
                    f"{self.id}, seat 0: {where} returned {spec.name} of shape {actual[0]} and dtype "
                    f"{actual[1]}; its observation space says shape {spec.shape} and dtype {spec.dtype}"
                )


class GymnasiumMatch:
    """One episode; its environment goes back to the pool when it is closed."""

    __slots__ = ("_closed", "_mdp", "controllers", "env", "ticks")

    def __init__(self, mdp: GymnasiumMDP, env: gymnasium.Env, seed: int) -> None:
        self._mdp = mdp
        self._closed = False
        self.env = env
        self.controllers = (GymnasiumController(mdp, env, seed),)
        self.ticks: tuple[Coroutine[Any, Any, None], ...] = ()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.controllers[0].stop("the match is closed")
            self._mdp.give_back(self.env)

    def frame(self) -> np.ndarray:
        """`[H, W, 3]` uint8. Raises ConfigError unless the MDP was made with `render`."""
        picture = self.env.render() if self._mdp.render else None
        if not isinstance(picture, np.ndarray):
            raise ConfigError(
                f"{self._mdp.id} draws no picture; set env.render=true"
                if not self._mdp.render
                else f"{self._mdp.id} draws no picture: its render() returned {type(picture).__name__}"
            )
        return picture

    def text(self) -> str:
        """The picture in half blocks, 80 columns wide."""
        return picture_text(self.frame())


class GymnasiumController:
    """The one player of a match."""

    __slots__ = ("_decode", "_encode", "_id", "_info", "_many", "_reward", "_state", "_step")

    def __init__(self, mdp: GymnasiumMDP, env: gymnasium.Env, seed: int) -> None:
        self._id = mdp.id
        self._encode = mdp.encode
        self._decode = mdp.decode
        self._many = mdp.many_rewards
        self._step: Callable[[Any], Any] = env.step
        self._reward: Any = (0.0,) * mdp.reward_heads
        observation, self._info = env.reset(seed=seed)
        self._see(observation)

    def state(self) -> State:
        return self._state

    async def act(self, action: Action | None) -> Outcome:
        # `play` written out again: a call is a tenth of what the controller may cost
        observation, reward, terminated, truncated, info = self._step(self._decode(action))  # type: ignore[arg-type]
        encode = self._encode
        self._state = _new(
            State, ((observation,) if encode is None else encode(observation), None, None, True)
        )
        self._reward = reward
        if terminated or truncated:
            return self._end(terminated, info)
        return RUNNING

    def play(self, action: Any) -> Outcome:
        """Play an action of the environment's own action space, without a coroutine."""
        observation, self._reward, terminated, truncated, info = self._step(action)
        self._see(observation)
        return self._end(terminated, info) if terminated or truncated else RUNNING

    def reward(self) -> Sequence[float]:
        # A copy: some environments write the next rewards into the same array.
        return tuple(self._reward) if self._many else (self._reward,)

    def result(self) -> dict[str, float]:
        """The numbers of the last step's `info`."""
        return info_numbers(self._info)

    def stop(self, why: str) -> None:
        """Refuse every further action, saying why."""

        def refuse(_: Any) -> Any:
            raise MDPError(f"{self._id}, seat 0: act() was called although {why}")

        self._step = refuse

    def _see(self, observation: Any) -> None:
        encode = self._encode
        self._state = _new(
            State, ((observation,) if encode is None else encode(observation), None, None, True)
        )

    def _end(self, terminated: Any, info: dict[str, Any]) -> Outcome:
        self._info = info
        self.stop("the match has ended")
        return TERMINATED if terminated else TRUNCATED


def info_numbers(info: Mapping[str, Any]) -> dict[str, float]:
    """The numbers at the top level of an `info`; True counts as 1.

    What is called `return` is left out: it is the name of the sum of rewards.
    """
    return {
        str(name): float(value)
        for name, value in info.items()
        if isinstance(value, numbers.Real | np.bool_) and name != "return"
    }


# ------------------------------------------------------------------ making environments


def make_env(id: str, kwargs: Mapping[str, Any] | None = None, *, render: bool = False) -> gymnasium.Env:
    """The environment as the adapter steps it: without Gymnasium's per-step checks of use.

    Raises ConfigError for an unknown id or argument, MissingPackage for a dependency.
    """
    arguments = dict(kwargs or {})
    if render:
        arguments.setdefault("render_mode", "rgb_array")
    spec = copy.copy(find_spec(id))
    spec.order_enforce = False  # the controller keeps the order itself
    try:
        with warnings.catch_warnings():
            # What a simulator's bindings say of themselves on import is not the user's business.
            warnings.simplefilter("ignore", DeprecationWarning)
            return gymnasium.make(spec, disable_env_checker=True, **arguments)
    except gymnasium.error.DependencyNotInstalled as error:
        told = str(error).replace("pip install ", pip_install(""))
        raise MissingPackage(f"env.id={id} needs a package that is not installed: {told}") from error
    except ModuleNotFoundError as error:
        raise _missing_module(id, error) from error
    except (gymnasium.error.Error, TypeError) as error:
        raise ConfigError(f"env.id={id} cannot be made with env.kwargs={arguments}: {error}") from error


def find_spec(id: str) -> EnvSpec:
    """What is registered as `id` (`module:name` imports the module first).

    Raises ConfigError, with ids close to it, where nothing is; MissingPackage without ale-py
    or the module.
    """
    if id.startswith("ALE/"):
        register_atari()
    try:
        module, _, name = id.rpartition(":")
        if module:
            importlib.import_module(module)
        return gymnasium.spec(name)
    except ModuleNotFoundError as error:
        raise _missing_module(id, error) from error
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv) as error:
        raise ConfigError(_unknown_id(id, error)) from error
    except gymnasium.error.Error as error:
        raise ConfigError(f"env.id={id} is no id of Gymnasium, as in CartPole-v1: {error}") from error


def register_atari() -> None:
    """Make the ALE ids known. Raises MissingPackage without ale-py."""
    if importlib.util.find_spec("ale_py") is None:
        raise MissingPackage(f"Atari games need ale-py, which is not installed ({pip_install('ale-py')})")
    gymnasium.register_envs(importlib.import_module("ale_py"))


def _missing_module(id: str, error: ModuleNotFoundError) -> MissingPackage:
    known = {"Box2D": "'gymnasium[box2d]'", "mujoco": "'gymnasium[mujoco]'"}
    package = known.get(str(error.name), str(error.name).partition(".")[0])
    return MissingPackage(
        f"env.id={id} needs the module {error.name!r}, which is not installed ({pip_install(package)})"
    )


def _unknown_id(id: str, error: Exception) -> str:
    close = difflib.get_close_matches(id, gymnasium.registry, n=4, cutoff=0.5)
    # The right game in another version is the commonest slip, and the likeliest wish.
    stem = id.rpartition("-v")[0] or id
    close = [*(name for name in gymnasium.registry if name.rpartition("-v")[0] == stem), *close]
    hint = f"close to it: {', '.join(dict.fromkeys(close))}; " if close else ""
    return (
        f"env.id={id} is no Gymnasium environment ({error}); {hint}give a registered id, "
        "or take a preset that `lamarck list env` names"
    )


def _action_names(env: gymnasium.Env) -> tuple[str, ...]:
    meanings = getattr(env.unwrapped, "get_action_meanings", None)
    return tuple(map(str, meanings())) if callable(meanings) else ()


def _frameskip(env: gymnasium.Env) -> int:
    frames = env.spec.kwargs.get("frameskip") if env.spec else None
    return frames if isinstance(frames, int) and frames >= 1 else 1
