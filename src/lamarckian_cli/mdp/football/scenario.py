"""The engine's module, and its scenarios: who stands where, and when an episode ends.

Scenario files are loaded from the gfootball package's folder under a name of our own,
because importing `gfootball` itself would import the old gym.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from lamarckian_cli.errors import ConfigError, MissingPackage

SCENARIOS = "lamarckian_football_scenarios"  # the name under which their package is loaded


def load_engine() -> ModuleType:
    """`gfootball_engine`. Raises MissingPackage without it, or where it is not our build."""
    try:
        engine = importlib.import_module("gfootball_engine")
    except ImportError as error:
        raise MissingPackage(
            f"football needs gfootball_engine ({error}); install it: make football"
        ) from error
    if not hasattr(engine.GameEnv, "observe"):
        raise MissingPackage(
            "gfootball_engine is not our build (no GameEnv.observe); install it: make football"
        )
    return engine


class Builder:
    """What a scenario file's `build_scenario` is given; `config` is what the engine is reset with."""

    def __init__(self, engine: ModuleType, scenario: str, left: int, right: int, kick_off: int) -> None:
        self._engine = engine
        self._kick_off = kick_off
        self._team = engine.e_Team.e_Left
        config = self._config = engine.ScenarioConfig.make()
        _scenario(engine, scenario).build_scenario(self)
        for team, players in (
            (engine.e_Team.e_Left, config.left_team),
            (engine.e_Team.e_Right, config.right_team),
        ):
            if not len(players):
                self.SetTeam(team)
                self.AddPlayer(-1.0, 0.42, engine.e_PlayerRole.e_PlayerRole_GK, lazy=True)
        config.real_time = False
        config.left_agents, config.right_agents = left, right

    def config(self) -> Any:
        return self._config

    def SetTeam(self, team: Any) -> None:
        self._team = team

    def AddPlayer(self, x: float, y: float, role: Any, lazy: bool = False, controllable: bool = True) -> None:
        left = self._team == self._engine.e_Team.e_Left
        players = self._config.left_team if left else self._config.right_team
        players.append(self._engine.FormationEntry(x, y, role, lazy, controllable))

    def SetBallPosition(self, x: float, y: float) -> None:
        self._config.ball_position[0], self._config.ball_position[1] = x, y

    def EpisodeNumber(self) -> int:
        """Its parity says who kicks off in the symmetric scenarios."""
        return self._kick_off


def scenario_folder() -> Path | None:
    """Where the scenario files lie; None without the engine, which is not imported."""
    spec = importlib.util.find_spec("gfootball_engine")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent.parent / "gfootball" / "scenarios"


def _scenario(engine: ModuleType, name: str) -> ModuleType:
    if SCENARIOS not in sys.modules:
        root = Path(str(engine.__file__)).parent.parent / "gfootball" / "scenarios"
        spec = importlib.util.spec_from_file_location(
            SCENARIOS, root / "__init__.py", submodule_search_locations=[str(root)]
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[SCENARIOS] = module
        spec.loader.exec_module(module)
    return importlib.import_module(f"{SCENARIOS}.{name}")


def check_agents(scenario: str, config: Any, agents: tuple[int, int]) -> None:
    """Raise ConfigError for more agents on a side than players who can be controlled."""
    limits = (config.controllable_left_players, config.controllable_right_players)
    for key, wanted, there in zip(("left_players", "right_players"), agents, limits, strict=True):
        if wanted > there:
            raise ConfigError(
                f"env.{key} is {wanted}; {scenario} has {there} who can be controlled on that side"
            )
