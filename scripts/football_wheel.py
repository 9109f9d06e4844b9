"""Steps of scripts/install_football.sh that are no matter for a shell.

prepare SOURCE: what we change in the engine's source, as its package gives it
pack SOURCE ENGINE VERSION TAG WHEEL LIBRARY...: the built engine and the game's files as a wheel
play FOLDER: a few steps of a small match with the engine that lies unpacked there
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import struct
import sys
import zipfile
from pathlib import Path

ENGINE = "third_party/gfootball_engine"

# A module needs Python's headers and not its library, which many a Python has in no linkable form.
CMAKE = (
    "find_package(Python COMPONENTS Development REQUIRED)",
    "find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)",
)

# Several files are compiled as one, in less than half the time; these two define what others have.
UNITY = (
    "include(sources.cmake)\n",
    """include(sources.cmake)
set_source_files_properties(src/misc/perlin.cpp src/onthepitch/player/humanoid/humanoid.cpp
    PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
""",
)

# All that a player may see in one call and one buffer. Asked one by one, each of some 200 numbers
# costs an object of Boost.Python: 5 % of the time of a step. The layout is for readers in
# src/lamarckian_cli/mdp/; change it there as well, and raise RECIPE in install_football.sh.
OBSERVE = """
  // float32: 20 of the match, [2 teams, 11 players, 9], [2 teams, 11 agents, 1 + 10 sticky actions].
  PyObject* observe_python() {
    SetGame(this);
    SharedInfo info = get_info();
    static const int sticky[] = {game_left, game_top_left, game_top, game_top_right, game_right,
                                 game_bottom_right, game_bottom, game_bottom_left, game_sprint,
                                 game_dribble};
    float out[20 + 2 * 11 * 9 + 2 * 11 * 11] = {0};
    float* p = out;
    for (int i = 0; i < 3; i++) *p++ = info.ball_position.env_coord(i);
    for (int i = 0; i < 3; i++) *p++ = info.ball_direction.env_coord(i);
    for (int i = 0; i < 3; i++) *p++ = info.ball_rotation.env_coord(i);
    *p++ = info.ball_owned_team;
    *p++ = info.ball_owned_player;
    *p++ = int(info.game_mode);
    *p++ = info.left_goals;
    *p++ = info.right_goals;
    *p++ = info.is_in_play;
    *p++ = info.step;
    *p++ = info.left_team.size();
    *p++ = info.right_team.size();
    *p++ = waiting_for_game_count;
    for (int side = 0; side < 2; side++) {
      p = out + 20 + side * 11 * 9;
      std::vector<PlayerInfo>& team = side == 0 ? info.left_team : info.right_team;
      for (size_t k = 0; k < team.size() && k < 11; k++) {
        *p++ = team[k].player_position.env_coord(0);
        *p++ = team[k].player_position.env_coord(1);
        *p++ = team[k].player_direction.env_coord(0);
        *p++ = team[k].player_direction.env_coord(1);
        *p++ = team[k].tired_factor;
        *p++ = team[k].is_active;
        *p++ = team[k].has_card;
        *p++ = int(team[k].role);
        *p++ = team[k].designated_player;
      }
    }
    for (int side = 0; side < 2; side++) {
      p = out + 20 + 2 * 11 * 9 + side * 11 * 11;
      std::vector<ControllerInfo>& agents = side == 0 ? info.left_controllers : info.right_controllers;
      int count = side == 0 ? scenario_config.left_agents : scenario_config.right_agents;
      for (int k = 0; k < 11; k++) {
        bool here = k < count && k < int(agents.size());
        *p++ = here ? agents[k].controlled_player : -1;
        for (int a = 0; a < 10; a++) *p++ = here && sticky_action_state(sticky[a], side == 0, k);
      }
    }
    return PyBytes_FromStringAndSize(reinterpret_cast<char*>(out), sizeof(out));
  }

  PyObject* get_state_python("""


def prepare(source: Path) -> None:
    """Edit the unpacked source once; whatever does not look as expected ends it."""
    replace(source / ENGINE / "CMakeLists.txt", *CMAKE)
    replace(source / ENGINE / "CMakeLists.txt", *UNITY)
    bindings = source / ENGINE / "ai.cpp"
    replace(bindings, "\n  PyObject* get_state_python(", OBSERVE)
    get_info = '.def("get_info", &GameEnv_Python::get_info)'
    observe = '.def("observe", &GameEnv_Python::observe_python)'
    replace(bindings, get_info, f"{get_info}\n      {observe}")


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    if text.count(old) != 1:
        sys.exit(f"{path} has {old!r} {text.count(old)} times, not once")
    path.write_text(text.replace(old, new), encoding="utf-8")


def pack(source: Path, engine: Path, version: str, tag: str, wheel: Path, libraries: list[Path]) -> None:
    """The package's Python files as they are, the engine with the libraries it was linked to."""
    files: dict[str, Path] = {}
    for folder, inside in (
        (source / "gfootball", "gfootball"),
        (source / ENGINE / "data", "gfootball_engine/data"),
    ):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                files[f"{inside}/{path.relative_to(folder)}"] = path
    for path in sorted((source / "third_party" / "fonts").iterdir()):
        files[f"gfootball_engine/fonts/{path.name}"] = path
    files["gfootball_engine/__init__.py"] = source / ENGINE / "__init__.py"
    files["gfootball_engine/_gameplayfootball.so"] = engine
    for path in libraries:
        files[f"gfootball_engine/{path.name}"] = path

    info = f"gfootball-{version}.dist-info"
    texts = {
        # Our use needs nothing more; the package's own wrappers want gym, absl-py, six and OpenCV.
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: gfootball\n"
        f"Version: {version}\nSummary: Google Research Football, built by Lamarckian\nLicense: Apache-2.0\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: lamarckian\nRoot-Is-Purelib: false\nTag: {tag}\n",
        f"{info}/LICENSE": (source / "LICENSE").read_text(encoding="utf-8"),
    }
    record = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in [*files.items(), *texts.items()]:
            data = content.encode() if isinstance(content, str) else content.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")
            archive.writestr(entry(name), data)
        lines = "\n".join([*record, f"{info}/RECORD,,", ""])
        archive.writestr(entry(f"{info}/RECORD"), lines)


def entry(name: str) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    made.compress_type = zipfile.ZIP_DEFLATED
    made.external_attr = 0o100644 << 16
    return made


def play(folder: Path) -> None:
    """One against one, each with a goalkeeper. A crash ends this process, with a status of its own."""
    sys.path.insert(0, str(folder))
    engine = importlib.import_module("gfootball_engine")
    env = engine.GameEnv()
    env.start_game()
    scenario = engine.ScenarioConfig.make()
    for team in (scenario.left_team, scenario.right_team):
        team.append(engine.FormationEntry(-1.0, 0.0, engine.e_PlayerRole.e_PlayerRole_GK, False, True))
        team.append(engine.FormationEntry(-0.1, 0.1, engine.e_PlayerRole.e_PlayerRole_CB, False, True))
    env.state = engine.GameState.game_running
    env.reset(scenario, False)
    for _ in range(50):
        env.perform_action(int(engine.e_BackendAction.right), True, 0)
        env.step()
    seen = struct.unpack("460f", env.observe())
    if seen[15] < 1 or seen[16:18] != (2.0, 2.0):
        sys.exit(f"after 50 steps the engine shows {seen[:20]}")


def main() -> None:
    what, source, *rest = sys.argv[1:]
    if what == "prepare":
        prepare(Path(source))
    elif what == "play":
        play(Path(source))
    else:
        engine, version, tag, wheel, *libraries = rest
        pack(Path(source), Path(engine), version, tag, Path(wheel), [Path(path) for path in libraries])


if __name__ == "__main__":
    main()
