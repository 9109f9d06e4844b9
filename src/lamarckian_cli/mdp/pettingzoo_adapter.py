"""Any PettingZoo environment as an MDP with one seat for each agent; it needs no change.

The world moves once all living agents have acted: those who act first wait for the last. An
environment of the AEC kind is converted by PettingZoo itself. Where agents take turns, each
move is a step for all of them, but a decision for the one whose turn it is.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from lamarckian_cli.errors import ConfigError, LamarckError, MDPError, MissingPackage, pip_install
from lamarckian_cli.mdp.gymnasium_adapter import SEED_MAX, info_numbers
from lamarckian_cli.mdp.picture import picture_text
from lamarckian_cli.mdp.scheduler import Signal
from lamarckian_cli.mdp.spaces import Decode, Encode, decoder, encoder
from lamarckian_cli.records import (
    RUNNING,
    TERMINATED,
    TRUNCATED,
    Action,
    DiscreteHead,
    Head,
    MDPSpec,
    Outcome,
    SeatSpec,
    State,
)

MASK = "action_mask"  # the key under which PettingZoo's games observe what is legal


class PettingZooMDP:
    """One seat for each of `possible_agents`. Its arguments are the keys of `conf/env/pettingzoo.yaml`.

    - `target`: a module with `parallel_env` or `env`, such as `pettingzoo.classic.rps_v2`, or
      `module:function` that makes an environment of either kind.
    - `kwargs`: handed to it.
    - `action_limit`: the largest magnitude of a continuous action that a space leaves unbounded.
    - `render`: make environments with `render_mode="rgb_array"`, for `frame()` and `text()`.

    An observation of Dict space with the key `action_mask` gives the legal actions of a
    Discrete action space and is no input. The game plays no seat itself, so that all are
    driven. `result()` holds the numbers of the agent's last `info`. The arrays of a State are
    valid until the next `act`.

    Raises ConfigError for a target, an argument or a space that cannot work, MissingPackage
    for a module that is not installed.
    """

    external = False
    packages = ("pettingzoo",)  # looked for before any process starts

    def __init__(
        self,
        target: str,
        kwargs: Mapping[str, Any] | None = None,
        *,
        action_limit: float | None = None,
        render: bool = False,
    ) -> None:
        self.target = target
        self.render = render
        self._arguments = dict(kwargs or {})
        if render:
            self._arguments.setdefault("render_mode", "rgb_array")
        self._closed = False
        env = self._make()
        self._pool = [env]
        self.takes_turns = _takes_turns(env)
        self.agents = tuple(env.possible_agents)
        self.seats = tuple(_seat(env, agent, target, action_limit) for agent in self.agents)
        self._spec = MDPSpec(name=target, seats=tuple(seat.spec for seat in self.seats))

    def describe(self) -> MDPSpec:
        return self._spec

    def reset(self, seats: Sequence[int], seed: int) -> PettingZooMatch:
        """A match in an environment of its own, reset with `seed` modulo 2**31."""
        if sorted(seats) != list(range(len(self.agents))):
            raise MDPError(
                f"{self.target} plays no seat itself; seats {tuple(seats)} were asked for, "
                f"expected all of 0 to {len(self.agents) - 1}"
            )
        if self._closed:
            raise MDPError(f"{self.target} is closed; it starts no more matches")
        env = self._pool.pop() if self._pool else self._make()
        return PettingZooMatch(self, env, tuple(seats), seed % SEED_MAX)

    def close(self) -> None:
        self._closed = True
        while self._pool:
            self._pool.pop().close()

    def give_back(self, env: Any) -> None:
        """Take over the environment of a closed match."""
        if self._closed:
            env.close()
        else:
            self._pool.append(env)

    def _make(self) -> Any:
        try:
            with warnings.catch_warnings():
                # The module's way of making one works in old and new versions alike.
                warnings.simplefilter("ignore", DeprecationWarning)
                return _parallel(_maker(self.target)(**self._arguments))
        except ModuleNotFoundError as error:
            raise MissingPackage(
                f"env.target={self.target} needs the module {error.name!r}, which is not installed"
                f" ({pip_install(str(error.name).partition('.')[0])})"
            ) from error
        except LamarckError:
            raise
        except (ImportError, TypeError, gymnasium.error.Error) as error:
            raise ConfigError(
                f"env.target={self.target} cannot be made with env.kwargs={self._arguments}: {error}"
            ) from error


class PettingZooMatch:
    """One episode; its environment goes back to the pool when it is closed."""

    def __init__(self, mdp: PettingZooMDP, env: Any, seats: tuple[int, ...], seed: int) -> None:
        self._mdp = mdp
        self._closed = False
        self.env = env
        self.ticks: tuple[Coroutine[Any, Any, None], ...] = ()
        self.moved = Signal()
        self.orders: dict[Any, Any] = {}  # the actions of agents who have acted, until the world moves
        observations, _ = env.reset(seed=seed)
        missing = [agent for agent in mdp.agents if agent not in observations]
        if missing:
            raise MDPError(f"{mdp.target}: agents {missing} are not there at the start of a match")
        self.controllers = tuple(
            PettingZooController(self, mdp.agents[seat], mdp.seats[seat], seat) for seat in seats
        )
        self._living = list(self.controllers)
        self._take_turns()
        for controller in self.controllers:
            controller.see(observations[controller.agent])

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for controller in self.controllers:
                controller.over = True
            self._mdp.give_back(self.env)

    def frame(self) -> np.ndarray:
        """`[H, W, 3]` uint8. Raises ConfigError unless the MDP was made with `render`."""
        picture = self.env.render() if self._mdp.render else None
        if not isinstance(picture, np.ndarray):
            raise ConfigError(f"{self._mdp.target} draws no picture; set env.render=true if it can")
        return picture

    def text(self) -> str:
        """The picture in half blocks, 80 columns wide."""
        return picture_text(self.frame())

    def advance_if_all_acted(self) -> bool:
        """Move the world, unless somebody living has not acted yet."""
        if len(self.orders) < len(self._living):
            return False
        orders, self.orders = self.orders, {}
        observations, rewards, terminated, truncated, infos = self.env.step(orders)
        self._take_turns()
        acted, self._living = self._living, []
        for controller in acted:
            agent = controller.agent
            controller.take(
                rewards[agent], bool(terminated[agent]), bool(truncated[agent]), infos.get(agent, {})
            )
            controller.see(observations[agent])
            if not controller.over:
                self._living.append(controller)
        self.moved.fire()
        return True

    def _take_turns(self) -> None:
        """Where agents take turns, say whose it is."""
        if not self._mdp.takes_turns:
            return
        chosen = self.env.aec_env.agent_selection if self.env.agents else None
        for controller in self.controllers:
            controller.decides = controller.agent == chosen


class PettingZooController:
    """Drives one agent."""

    def __init__(self, match: PettingZooMatch, agent: Any, seat: Seat, number: int) -> None:
        self.agent = agent
        self.decides = True
        self.over = False
        self._match = match
        self._seat = seat
        self._number = number
        self._outcome = RUNNING
        self._reward = (0.0,)
        self._info: Mapping[str, Any] = {}

    def state(self) -> State:
        return self._state

    async def act(self, action: Action | None) -> Outcome:
        """Waits for the agents who have not acted yet."""
        match = self._match
        if self.over:
            raise MDPError(
                f"seat {self._number} ({self.agent}): act() was called although its match has ended"
            )
        match.orders[self.agent] = None if action is None else self._seat.decode(action)
        if not match.advance_if_all_acted():
            await match.moved.wait()
        return self._outcome

    def reward(self) -> Sequence[float]:
        return self._reward

    def result(self) -> dict[str, float]:
        """The numbers of the agent's last `info`."""
        return info_numbers(self._info)

    def take(self, reward: float, terminated: bool, truncated: bool, info: Mapping[str, Any]) -> None:
        """What the world's last move brought."""
        self._reward = (float(reward),)
        self._info = info
        self._outcome = TERMINATED if terminated else TRUNCATED if truncated else RUNNING
        self.over = terminated or truncated

    def see(self, observation: Any) -> None:
        """Take over what the agent observes now."""
        seat, masks = self._seat, None
        if seat.masked:
            if self.decides and not self.over:
                masks = (np.asarray(observation[MASK]).astype(bool),)
            observation = {key: part for key, part in observation.items() if key != MASK}
        inputs = (observation,) if seat.encode is None else seat.encode(observation)
        self._state = State(inputs, masks, None, self.decides)


class Seat:
    """An agent's spaces in our terms."""

    def __init__(self, spec: SeatSpec, encode: Encode | None, decode: Decode, masked: bool) -> None:
        self.spec = spec
        self.encode = encode
        self.decode = decode
        self.masked = masked


def _seat(env: Any, agent: Any, target: str, limit: float | None) -> Seat:
    owner = f"{target}, agent {agent}"
    seen, played = env.observation_space(agent), env.action_space(agent)
    masked = isinstance(seen, gymnasium.spaces.Dict) and MASK in seen.spaces
    if masked:
        if not isinstance(played, gymnasium.spaces.Discrete):
            raise ConfigError(f"{owner}: {MASK} is known for Discrete action spaces, not for {played}")
        seen = gymnasium.spaces.Dict({key: part for key, part in seen.spaces.items() if key != MASK})
    inputs, encode = encoder(seen, owner)
    heads, decode = decoder(played, owner, limit)
    if masked:
        heads = tuple(_masked(head) for head in heads)
    return Seat(SeatSpec(inputs=inputs, heads=heads, name=str(agent)), encode, decode, masked)


def _masked(head: Head) -> Head:
    assert isinstance(head, DiscreteHead)
    return DiscreteHead(name=head.name, n=head.n, names=head.names, masked=True)


# ------------------------------------------------------------------ making environments


def _maker(target: str) -> Any:
    """The function that `target` names."""
    path, _, name = target.partition(":")
    module = importlib.import_module(path)
    for attribute in [name] if name else ["parallel_env", "env"]:
        if hasattr(module, attribute):
            return getattr(module, attribute)
    wanted = name or "parallel_env or env"
    raise ConfigError(f"env.target={target}: the module {path} has no {wanted}; name one as module:function")


def _parallel(env: Any) -> Any:
    """`env` as a parallel environment."""
    utils = importlib.import_module("pettingzoo.utils")
    if isinstance(env, utils.ParallelEnv):
        return env
    if not isinstance(env, utils.AECEnv):
        raise ConfigError(
            f"env.target made {type(env).__name__}, expected a ParallelEnv or AECEnv of PettingZoo"
        )
    conversions = importlib.import_module("pettingzoo.utils.conversions")
    if env.metadata.get("is_parallelizable"):
        return conversions.aec_to_parallel(env)
    return conversions.turn_based_aec_to_parallel(env)


def _takes_turns(env: Any) -> bool:
    conversions = importlib.import_module("pettingzoo.utils.conversions")
    return isinstance(env, conversions.turn_based_aec_to_parallel_wrapper)
