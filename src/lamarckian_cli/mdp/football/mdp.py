"""Google Research Football as an MDP: a seat for each player who may be controlled.

All seats of a match act in the same step, after which the engine moves on by
`frames_per_step` steps of 0.1 s. What the engine's numbers are is in `raw.py`, what seats
see in `observation.py`, what they may do in `actions.py`, where the engine runs in `process.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamarckian_cli.errors import MDPError, MissingPackage, require
from lamarckian_cli.mdp.football.actions import NAMES
from lamarckian_cli.mdp.football.engine import Game
from lamarckian_cli.mdp.football.match import FootballMatch
from lamarckian_cli.mdp.football.observation import ENCODINGS
from lamarckian_cli.mdp.football.process import Engine, EngineProcess, LocalEngine
from lamarckian_cli.mdp.football.scenario import scenario_folder
from lamarckian_cli.mdp.football.sparring import SCRIPTS
from lamarckian_cli.records import DiscreteHead, InputSpec, MDPSpec, RewardHead, SeatSpec

MISSING = "football needs gfootball_engine, which is not installed: make football"


class Football:
    """The MDP. Its arguments are the keys of `conf/env/gfootball.yaml`.

    - `id`: a scenario file of gfootball, such as `11_vs_11_stochastic` or `academy_corner`.
    - `left_players`, `right_players`: seats on each side, the left ones first.
    - `observation`: `simple115`, `floats` or `minimap`.
    - `frames_per_step`: steps of the engine that an action lasts; their rewards are added up.
    - `score_weight`, `checkpoint_weight`: of the reward heads `score` (1 for a goal, -1 for one
      received) and `checkpoint` (0.1 for each of ten distances to which the ball is brought,
      once a match; a goal brings what is left); a head of weight 0 is left out.
    - `mask`: forbid what makes no sense (`actions.legal`); false allows everything.
    - `opponent`: who plays the seats that nobody drives: `builtin` (the engine's own AI, as all
      players without a seat), `idle`, or `chase`, a script that runs and shoots.
    - `render`: let `frame()` draw, which takes a second engine in the same process.
    - `isolated`: engines run in child processes; `engines`: how many, of each actor.
    - `timeout_s`: seconds without an answer after which such a process is given up.

    Raises ConfigError for a value that cannot work, MissingPackage without the engine.
    """

    external = False
    packages = ("gfootball_engine",)  # looked for before any process starts
    install = "make football"

    def __init__(
        self,
        id: str = "11_vs_11_stochastic",
        *,
        left_players: int = 1,
        right_players: int = 0,
        observation: str = "simple115",
        frames_per_step: int = 1,
        score_weight: float = 1.0,
        checkpoint_weight: float = 1.0,
        mask: bool = True,
        opponent: str = "builtin",
        render: bool = False,
        isolated: bool = True,
        engines: int = 1,
        timeout_s: float = 60.0,
    ) -> None:
        for key, players in (("env.left_players", left_players), ("env.right_players", right_players)):
            require(0 <= players <= 11, key, players, "it must lie in [0, 11]")
        require(
            left_players + right_players >= 1,
            "env.left_players",
            left_players,
            "no side has a seat; 1 is usual",
        )
        _choice("env.observation", observation, tuple(ENCODINGS))
        _choice("env.opponent", opponent, SCRIPTS)
        require(frames_per_step >= 1, "env.frames_per_step", frames_per_step, "it must be at least 1")
        require(score_weight >= 0.0, "env.score_weight", score_weight, "it must be at least 0 (1 is usual)")
        require(checkpoint_weight >= 0.0, "env.checkpoint_weight", checkpoint_weight, "it must be at least 0")
        require(score_weight + checkpoint_weight > 0.0, "env.score_weight", score_weight, "no reward is left")
        require(engines >= 1, "env.engines", engines, "it must be at least 1")
        require(timeout_s > 0.0, "env.timeout_s", timeout_s, "it must be above 0 (60 is usual)")
        _check_scenario(id)
        self.id = id
        self.sides = (0,) * left_players + (1,) * right_players
        self.encoding = ENCODINGS[observation]
        self.frames_per_step = frames_per_step
        weights = (("score", score_weight), ("checkpoint", checkpoint_weight))
        self.rewards = tuple(RewardHead(name=name, weight=weight) for name, weight in weights if weight)
        self.mask = mask
        self.opponent = opponent
        self.render = render
        self._name = observation
        self._isolated = isolated
        self._timeout_s = timeout_s
        self._engines: list[Engine | None] = [None] * (engines if isolated else 1)
        self._free: list[list[int]] = [[] for _ in self._engines]  # slots of each that no match has
        self._used = [0] * len(self._engines)  # matches under way in each
        self._slots = [0] * len(self._engines)  # slots that each has had
        self._closed = False

    def describe(self) -> MDPSpec:
        seats = tuple(self._seat(index) for index in range(len(self.sides)))
        return MDPSpec(
            name=self.id,
            seats=seats,
            builtin_seats=tuple(range(len(seats))),
            frames_per_step=self.frames_per_step,
            results=("score_self", "score_enemy", "win", "possession"),
        )

    def reset(self, seats: Sequence[int], seed: int) -> FootballMatch:
        if not seats or len(set(seats)) != len(seats) or not set(seats) <= set(range(len(self.sides))):
            raise MDPError(f"seats is {tuple(seats)}; {self.id} has seats 0 to {len(self.sides) - 1} here")
        if self._closed:
            raise MDPError(f"{self.id} is closed; it starts no more matches")
        index = min(range(len(self._engines)), key=self._used.__getitem__)
        engine = self._engine(index)
        if not self._free[index]:
            self._free[index].append(self._slots[index])
            self._slots[index] += 1
        slot = self._free[index].pop()
        self._used[index] += 1
        try:
            return FootballMatch(self, engine, index, slot, tuple(seats), seed)
        except BaseException:
            self.give_back(engine, index, slot)
            raise

    def close(self) -> None:
        self._closed = True
        for engine in self._engines:
            if engine is not None:
                engine.close()
        self._engines = [None] * len(self._engines)

    def new_game(self) -> Game:
        """An engine in this process, to be stepped by itself. Raises MissingPackage."""
        return Game(**self._settings())

    def flush(self) -> None:
        """Hand every engine what it was asked, so that none waits while another is waited for."""
        for engine in self._engines:
            if engine is not None:
                engine.flush()

    def give_back(self, engine: Engine, index: int, slot: int) -> None:
        """Take over the slot of a closed match; those of an engine that is gone went with it."""
        if self._engines[index] is engine:
            self._used[index] -= 1
            self._free[index].append(slot)

    def _engine(self, index: int) -> Engine:
        """Engine number `index`, started anew where it is gone."""
        engine = self._engines[index]
        if engine is None or engine.dead:
            settings = self._settings()
            self._free[index], self._used[index], self._slots[index] = [], 0, 0
            if self._isolated:
                engine = EngineProcess(settings, timeout_s=self._timeout_s)
            else:
                engine = LocalEngine(settings)
            self._engines[index] = engine
        return engine

    def _settings(self) -> dict[str, Any]:
        return {"scenario": self.id, "frames_per_step": self.frames_per_step, "opponent": self.opponent}

    def _seat(self, index: int) -> SeatSpec:
        side = self.sides[index]
        number = index - side * self.sides.count(0)
        return SeatSpec(
            inputs=(InputSpec(name=self._name, shape=self.encoding.shape, dtype=self.encoding.dtype),),
            heads=(DiscreteHead(name="action", n=len(NAMES), names=NAMES, masked=self.mask),),
            rewards=self.rewards,
            name=f"{('left', 'right')[side]} player {number + 1}",
        )


def _choice(key: str, value: str, known: tuple[str, ...]) -> None:
    require(value in known, key, value, f"known are {', '.join(known)}")


def _check_scenario(id: str) -> None:
    folder = scenario_folder()
    if folder is None:
        raise MissingPackage(MISSING)
    known = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    require(id in known, "env.id", id, f"known are {', '.join(known)}")
