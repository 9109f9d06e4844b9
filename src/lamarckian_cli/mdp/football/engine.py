"""One football match inside the engine, by its core interface: no gym, no wrappers.

The seed is applied by the referee within the 19 steps before the kick-off, so a match
does not begin with the engine's own reset, which takes 20 to 50 ms: it restores a snapshot
taken right after such a reset, sets its seed and plays those steps; the match is the same.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

from lamarckian_cli.mdp.football import sparring
from lamarckian_cli.mdp.football.actions import IDLE, LEFT, ORDERS, RIGHT, SHORT_PASS
from lamarckian_cli.mdp.football.raw import AGENTS
from lamarckian_cli.mdp.football.scenario import Builder, check_agents, load_engine

ENGINE_SEEDS = 2**31
PATIENCE = 20  # steps after which a set piece that nobody takes is taken
CHECKPOINTS = 10
CHECKPOINT_REWARD = 0.1
RUNNING, TERMINATED, TRUNCATED = 0, 1, 2
_view = struct.Struct("<20f").unpack_from


class Game:
    """One engine, which plays one match after another of one scenario."""

    def __init__(self, scenario: str, *, frames_per_step: int, opponent: str) -> None:
        self.scenario = scenario
        self.frames_per_step = frames_per_step
        self.opponent = opponent
        self.engine = load_engine()
        self.env = self.engine.GameEnv()
        self.env.game_config.physics_steps_per_frame = 10
        self.env.start_game()
        self.agents = (-1, -1)
        self._snapshots: dict[tuple[int, int], bytes] = {}  # (who kicks off, seed's parity)

    # -------------------------------------------------------------- matches

    def reset(self, seed: int, agents: tuple[int, int], driven: list[tuple[int, int]]) -> bytes:
        """Begin the match of `seed`; the reply as `step` gives it.

        `agents`: how many the engine has on the left and on the right; `driven`: (side,
        number) of those who get actions from `step`; the others are scripted. Raises
        ConfigError for more agents than the scenario has players for.
        """
        self._driven = driven
        self._scripted = [(s, n) for s in (0, 1) for n in range(agents[s]) if (s, n) not in driven]
        env, key = self.env, (seed // 2 % 2, seed % 2)
        if agents != self.agents:
            self._snapshots.clear()
            self.agents = agents
        if key not in self._snapshots:
            config = Builder(self.engine, self.scenario, *agents, key[0]).config()
            check_agents(self.scenario, config, agents)
            config.game_engine_random_seed = seed % ENGINE_SEEDS
            config.reverse_team_processing = bool(key[1])
            env.state = self.engine.GameState.game_running
            env.reset(config, False)
            self._snapshots[key] = env.get_state("")
        env.set_state(self._snapshots[key])
        env.state = self.engine.GameState.game_running
        env.config.game_engine_random_seed = seed % ENGINE_SEEDS
        self._checkpoints = [0] * len(driven)
        self._lead = 0
        self._mode = self._owner = -1
        self._outcome = RUNNING
        self._look()
        while not self._numbers[14]:
            env.step()
            self._look()
        return self._reply(0.0, [0.0] * len(driven))

    def step(self, actions: bytes) -> bytes:
        """Play one action 0..18 of each driven agent for `frames_per_step` frames, or to the end.

        The reply is float32: outcome (0 running, 1 terminated, 2 truncated), goals scored
        less goals received by the left side, steps of a whole match, whether there is off
        side, then each driven agent's checkpoint reward, then the 460 of `raw.py`.
        """
        collected = [0.0] * len(self._driven)
        return self._reply(self._play(actions, collected), collected)

    def advance(self, actions: bytes) -> bool:
        """`step` for measuring: whether the match is over, and nothing of what there is to see."""
        self._play(actions, [0.0] * len(self._driven))
        return self._outcome != RUNNING

    def save(self) -> bytes:
        """The whole match as it is now."""
        rules = [self._lead, self._mode, self._owner, self._outcome]
        return self.env.get_state(json.dumps([self._driven, self._checkpoints, *rules]))

    def load(self, state: bytes) -> bytes:
        """Continue as `save` left it; the match must be of the same seats. The reply as `step` gives it."""
        own = json.loads(self.env.set_state(state))
        self._driven = [(side, number) for side, number in own[0]]
        self._checkpoints, self._lead, self._mode, self._owner, self._outcome = own[1:]
        self.env.state = self.engine.GameState.game_running
        self._look()
        return self._reply(0.0, [0.0] * len(self._driven))

    # -------------------------------------------------------------- parts

    def _play(self, actions: bytes, collected: list[float]) -> float:
        """Play `frames_per_step` frames, or to the end; the change of the lead."""
        scored = 0.0
        for _ in range(self.frames_per_step):
            self._perform(actions)
            self.env.step()
            self._look()
            while not self._numbers[14]:
                self.env.step()
                self._look()
            scored += self._advance(collected)
            if self._outcome != RUNNING:
                break
        return scored

    def _look(self) -> None:
        self._bytes = self.env.observe()
        self._numbers = _view(self._bytes)

    def _reply(self, scored: float, collected: list[float]) -> bytes:
        config = self.env.config
        head = (self._outcome, scored, config.game_duration, config.offsides, *collected)
        return struct.pack(f"<{len(head)}f", *head) + self._bytes

    def _perform(self, actions: bytes) -> None:
        """Hand every agent its order."""
        waited = self.env.waiting_for_game_count
        for (side, number), action in zip(self._driven, actions, strict=True):
            if waited >= PATIENCE:
                self.env.perform_action(self._hurry(side, number, waited), side == 0, number)
            else:
                self.env.perform_action(ORDERS[side][action], side == 0, number)
        for side, number in self._scripted:
            if waited >= PATIENCE:
                order = self._hurry(side, number, waited)
            elif self.opponent == "chase":
                order = ORDERS[side][sparring.chase(np.frombuffer(self._bytes, np.float32), side, number)]
            else:
                order = ORDERS[side][IDLE]
            self.env.perform_action(order, side == 0, number)

    def _hurry(self, side: int, number: int, waited: int) -> int:
        """The engine's order where a set piece waits too long: pass; then walk until it goes on."""
        if waited == PATIENCE:
            return SHORT_PASS
        controlled = np.frombuffer(self._bytes, np.float32)[AGENTS].reshape(2, 11, 11)[side, number, 0]
        if self._numbers[9] == side and controlled == self._numbers[10]:
            return LEFT if (waited < 30) != (side == 0) else RIGHT
        return IDLE

    def _advance(self, collected: list[float]) -> float:
        """After a frame: the end by the scenario's rules, and rewards; the change of the lead."""
        env, config, numbers = self.env, self.env.config, self._numbers
        mode, owner = int(numbers[11]), int(numbers[9])
        ended = config.end_episode_on_score and (numbers[12] > 0 or numbers[13] > 0)
        ended |= config.end_episode_on_out_of_play and mode != 0 and self._mode == 0
        self._mode = mode
        if owner != -1:
            ended |= config.end_episode_on_possession_change and self._owner not in (-1, owner)
            self._owner = owner
        lead = int(numbers[12] - numbers[13])
        scored, self._lead = lead - self._lead, lead
        env.waiting_for_game_count = env.waiting_for_game_count + 1 if mode != 0 else 0
        if ended:
            self._outcome = TERMINATED
        elif numbers[15] >= config.game_duration:
            # The final whistle belongs to a game; an exercise is merely cut short.
            self._outcome = TRUNCATED if config.end_episode_on_score else TERMINATED
        if self._driven:
            self._collect(scored, collected)
        return scored

    def _collect(self, scored: int, collected: list[float]) -> None:
        """Checkpoint rewards as gfootball's CheckpointRewardWrapper gives them, beside those for goals.

        An agent whose own player brings the ball nearer to the goal than any of ten
        distances gets 0.1 for each; a goal brings the rest.
        """
        numbers = self._numbers
        owner, player = numbers[9], numbers[10]
        controlled: list[float] = []
        for index, (side, number) in enumerate(self._driven):
            done = self._checkpoints[index]
            if (scored if side == 0 else -scored) == 1:
                collected[index] += CHECKPOINT_REWARD * (CHECKPOINTS - done)
                self._checkpoints[index] = CHECKPOINTS
                continue
            if owner != side or done == CHECKPOINTS:
                continue
            if not controlled:
                controlled = np.frombuffer(self._bytes, np.float32)[AGENTS][::11].tolist()
            if controlled[11 * side + number] != player:
                continue
            goal = -1.0 if side else 1.0
            distance = ((numbers[0] - goal) ** 2 + numbers[1] ** 2) ** 0.5
            while done < CHECKPOINTS and distance <= 0.99 - 0.8 / (CHECKPOINTS - 1) * done:
                collected[index] += CHECKPOINT_REWARD
                done += 1
            self._checkpoints[index] = done


class Painter:
    """An engine that only draws: pictures of other engines' states, in software."""

    def __init__(self, width: int, height: int) -> None:
        engine = load_engine()
        self.width, self.height = width, height
        self.env = engine.GameEnv()
        self.env.game_config.physics_steps_per_frame = 10
        self.env.game_config.render = True
        self.env.game_config.render_resolution_x = width
        self.env.game_config.render_resolution_y = height
        self.env.start_game()
        self._reset_for: tuple[Any, ...] | None = None
        self._engine = engine

    def draw(self, game: Game) -> bytes:
        """RGB of `game` now, `[height, width, 3]` uint8, top row first."""
        kind = (game.scenario, game.agents)
        if self._reset_for != kind:
            self.env.state = self._engine.GameState.game_running
            self.env.reset(Builder(self._engine, game.scenario, *game.agents, 0).config(), False)
            self._reset_for = kind
        self.env.set_state(game.env.get_state(""))
        self.env.render(False)
        self.env.render(True)
        picture = np.frombuffer(self.env.get_frame(), np.uint8).reshape(self.height, self.width, 3)
        return picture[::-1].tobytes()
