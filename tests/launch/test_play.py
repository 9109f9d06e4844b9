"""Evaluating and playing a run: exact under a seed, without bias, and shown in every way there is."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from lamarckian_cli.config.folders import open_user_code
from lamarckian_cli.errors import ConfigError, LamarckError, MDPError, MissingPackage, RunError
from lamarckian_cli.launch import evaluate as evaluation
from lamarckian_cli.launch import video as recording
from lamarckian_cli.launch.evaluate import evaluate, report
from lamarckian_cli.launch.play import play
from lamarckian_cli.launch.runfolder import RunFolder
from lamarckian_cli.launch.video import record
from lamarckian_cli.learner.learner import Learner
from lamarckian_cli.learner.ppo import PPO
from lamarckian_cli.model.architecture import Architecture
from lamarckian_cli.records import (
    RUNNING,
    TERMINATED,
    ContinuousHead,
    InputSpec,
    MDPSpec,
    Outcome,
    SeatSpec,
    State,
)

SEAT = SeatSpec(
    inputs=(InputSpec(name="place", shape=(2,), dtype="float32"),),
    heads=(ContinuousHead(name="push", low=(-1.0,), high=(1.0,)),),
)


class Walk:
    """One or two players, each at a place of its own; a match lasts 1 to 9 steps, as its seed says.

    The return is the match's length, so who counted the first matches that end would see less.
    """

    def __init__(
        self, draws: str = "both", fails: bool = False, external: bool = False, seats: int = 1, size: int = 16
    ) -> None:
        self.draws, self.fails, self.external, self.seats, self.size = draws, fails, external, seats, size
        self.closed = 0

    def describe(self) -> MDPSpec:
        return MDPSpec(name="walk", seats=(SEAT,) * self.seats, frames_per_step=4, results=("win", "seed"))

    def reset(self, seats: Sequence[int], seed: int) -> Any:
        kinds = {"both": Drawn, "frame": Framed, "nothing": WalkMatch, "wrong": Misdrawn}
        return kinds[self.draws](self, seats, seed)

    def close(self) -> None:
        self.closed += 1


class WalkMatch:
    def __init__(self, mdp: Walk, seats: Sequence[int], seed: int) -> None:
        self.mdp, self.seed = mdp, seed
        self.length = 1 + seed % 9
        self.steps = 0
        self.controllers = [Walker(self, seat) for seat in seats]
        self.ticks: Sequence[Any] = ()

    def close(self) -> None:
        pass


class Framed(WalkMatch):
    def frame(self) -> np.ndarray:
        picture = np.zeros((self.mdp.size, 2 * self.mdp.size, 3), np.uint8)
        picture[:, : 2 * self.steps] = (255, 200, 0)
        return picture


class Drawn(Framed):
    def text(self) -> str:
        return f"\x1b[31mstep {self.steps} of {self.length}\x1b[0m"


class Misdrawn(WalkMatch):
    def frame(self) -> np.ndarray:
        return np.zeros((4, 4))


class Walker:
    def __init__(self, match: WalkMatch, seat: int) -> None:
        self.match, self.seat = match, seat
        self.place = np.zeros(2, np.float32)
        self.steps = 0

    def state(self) -> State:
        return State(inputs=(self.place,))

    async def act(self, action: Any) -> Outcome:
        if self.match.mdp.external:
            loop = asyncio.get_running_loop()
            told = loop.create_future()
            loop.call_soon(told.set_result, None)
            await told
        if self.match.mdp.fails:
            raise ValueError("the wall fell")
        self.place = self.place + np.float32(action[0][0])
        self.steps += 1
        self.match.steps = max(self.match.steps, self.steps)
        return TERMINATED if self.steps == self.match.length else RUNNING

    def reward(self) -> Sequence[float]:
        return (1.0 + self.seat,)

    def result(self) -> dict[str, float]:
        return {"win": float(self.match.length > 5), "seed": float(self.match.seed)}


def make_run(folder: Path, players: Sequence[str] | None = None, **env: Any) -> Path:
    """A run of Walk whose policies are as they were made, each with a bias of its own."""
    model = {"policy": [8], "critic": [8]}
    config = {
        "seed": 3,
        "algo": {"_target_": "lamarckian_cli.learner.ppo.PPO", "batch_size": 64, "unroll": 16},
        "env": {"_target_": f"{__name__}.Walk", **env},
        "model": {"_target_": "lamarckian_cli.model.architecture.Architecture", **model},
        "cluster": {"kind": "inproc", "actors": 1},
        "players": {"seats": None if players is None else list(players)},
        "run": {"dir": str(folder)},
    }
    run = RunFolder.create(folder, config, ["lamarck", "train"])
    architecture = Architecture(policy=(8,), critic=(8,))
    learners = {
        name: Learner(name, SEAT, architecture, PPO(batch_size=64, unroll=16), seed=3).state()
        for name in dict.fromkeys(players or ["main"])
        if name != "random"
    }
    run.save_checkpoint({"learners": learners}, env_steps=640, version=10)
    run.finish("finished")
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


@pytest.fixture
def run_of_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A run that was started in a folder with a game of its own, and that folder; now we are elsewhere."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "strolling.py").write_text(f"from {__name__} import Walk\n\nclass Stroll(Walk):\n    pass\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.chdir(project)
    with monkeypatch.context() as started:
        started.setattr(sys, "path", list(sys.path))
        started.setenv("PYTHONPATH", "")
        open_user_code()
        run = make_run(tmp_path / "run", _target_="strolling.Stroll")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "strolling", raising=False)
    return run, project


def terminal(is_terminal: bool = True) -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, force_terminal=is_terminal, width=60, highlight=False), written


# ------------------------------------------------------------------ evaluate


def test_a_game_of_ones_own_is_found_from_anywhere(run_of_a_project: tuple[Path, Path]) -> None:
    run, _ = run_of_a_project
    assert evaluate(run, episodes=2)["episodes"] == 2


def test_a_game_of_ones_own_is_played_from_anywhere(run_of_a_project: tuple[Path, Path]) -> None:
    run, _ = run_of_a_project
    assert play(run, console=terminal(False)[0])["steps"] > 0


def test_a_game_that_moved_is_found_in_the_current_folder(
    run_of_a_project: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, project = run_of_a_project
    project.rename(tmp_path / "moved")
    with pytest.raises(RunError, match=r"no module strolling here.*folders that are gone: .*project"):
        evaluate(run, episodes=2)
    monkeypatch.chdir(tmp_path / "moved")
    assert evaluate(run, episodes=2)["episodes"] == 2


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(run: Path) -> None:
    first = evaluate(run, episodes=20, seed=5)
    assert evaluate(run, episodes=20, seed=5) == first
    assert evaluate(run, episodes=20, seed=6)["results"] != first["results"]


def test_every_match_counts_however_long_it_lasts(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "MATCHES_AT_ONCE", 8)
    few_at_once = evaluate(run, episodes=30)
    monkeypatch.setattr(evaluation, "MATCHES_AT_ONCE", 64)
    assert evaluate(run, episodes=30) == few_at_once
    assert few_at_once["episodes"] == 30
    # A match is 5 steps long on average; those that end first would be shorter.
    assert 4.0 < few_at_once["return_mean"] < 6.0


def test_more_episodes_begin_with_the_same_matches(run: Path) -> None:
    one, two = evaluate(run, episodes=1), evaluate(run, episodes=2)
    assert one["results"]["seed"]["mean"] in (
        two["results"]["seed"]["min"],
        two["results"]["seed"]["max"],
    )


def test_the_document_has_what_scripts_rely_on(run: Path) -> None:
    document = evaluate(run, episodes=10)
    keys = {"episodes", "return_mean", "return_std", "return_min", "return_max", "win_rate", "results"}
    assert keys | {f"return_p{q}" for q in ("05", "25", "50", "75", "95")} <= set(document)
    assert set(document["results"]) == {"win", "seed"}
    assert document["win_rate"] == document["results"]["win"]["mean"]
    assert (document["policy"], document["version"], document["checkpoint"]) == ("main", 0, "latest")


def test_statistics_are_numpys_and_a_number_that_is_none_is_null() -> None:
    document = report([{"return": float(x), "odd": float("nan")} for x in range(101)])
    assert (document["return_mean"], document["return_min"], document["return_max"]) == (50.0, 0.0, 100.0)
    assert (document["return_p05"], document["return_p95"]) == (5.0, 95.0)
    assert document["return_std"] == pytest.approx(np.std(np.arange(101)))
    assert document["results"]["odd"]["mean"] is None
    assert "win_rate" not in document


def test_what_some_matches_leave_out_is_summed_up_over_the_others() -> None:
    document = report([{"return": 1.0}, {"return": 2.0, "bonus": 4.0}])
    assert document["results"]["bonus"]["mean"] == 4.0


def test_a_policy_is_evaluated_from_its_first_seat(tmp_path: Path) -> None:
    shared = evaluate(make_run(tmp_path / "shared", ["main", "main"], seats=2), episodes=5)
    two = make_run(tmp_path / "two", ["main", "second"], seats=2)
    first, second = evaluate(two, episodes=5), evaluate(two, episodes=5, policy="second")
    assert shared["episodes"] == 5
    assert shared["return_mean"] == first["return_mean"] == second["return_mean"] / 2
    with pytest.raises(ConfigError, match=r"policy is 'third'; .* trained main, second"):
        evaluate(two, policy="third")


def test_random_and_frozen_players_play_along(tmp_path: Path, run: Path) -> None:
    for other in ("random", f"frozen:{run}"):
        mixed = make_run(tmp_path / other.partition(":")[0], ["main", "random"], seats=2)
        config = (mixed / "config.yaml").read_text().replace("- random", f"- {other}")
        (mixed / "config.yaml").write_text(config)
        assert evaluate(mixed, episodes=3, seed=1) == evaluate(mixed, episodes=3, seed=1)


def test_games_outside_the_process_are_played_too(tmp_path: Path, run: Path) -> None:
    outside = evaluate(make_run(tmp_path / "outside", external=True), episodes=12)
    assert outside["results"] == evaluate(run, episodes=12)["results"]


def test_a_match_that_fails_is_an_error_and_not_a_smaller_number(tmp_path: Path) -> None:
    failing = make_run(tmp_path / "failing", fails=True)
    with pytest.raises(MDPError, match=r"3 of 3 matches failed.*the wall fell"):
        evaluate(failing, episodes=3)
    with pytest.raises(MDPError, match="the wall fell"):
        play(failing, console=terminal(False)[0])


def test_a_checkpoint_of_another_network_is_refused(run: Path) -> None:
    config = (run / "config.yaml").read_text().replace("- 8", "- 9")
    (run / "config.yaml").write_text(config)
    with pytest.raises(RunError, match="does not fit its configuration"):
        evaluate(run, episodes=1)


@pytest.mark.parametrize(
    "bad", [{"episodes": 0}, {"seed": -1}, {"checkpoint": "best"}, {"checkpoint": "no.ckpt"}]
)
def test_bad_input_is_one_clear_error(run: Path, bad: dict[str, Any]) -> None:
    with pytest.raises(LamarckError):
        evaluate(run, **bad)


# ------------------------------------------------------------------ play


def test_a_match_is_drawn_at_its_pace_and_the_screen_given_back(run: Path) -> None:
    out, written = terminal()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        time.sleep(seconds)

    told = play(run, seed=5, fps=1000.0, console=out, sleep=sleep)
    text = written.getvalue()
    for step in range(told["steps"] + 1):
        assert f"step {step} of {told['steps']}" in text
    assert text.index("\x1b[?1049h") < text.index("\x1b[?1049l") < text.index("return ")
    assert told["result"]["return"] == told["steps"]
    assert all(0 < pause <= 0.001 + 1e-9 for pause in slept)
    assert len(slept) <= told["steps"] + 1


def test_the_last_picture_stays(run: Path) -> None:
    out, written = terminal()
    told = play(run, seed=5, fps=1000.0, console=out, sleep=lambda _: None)
    after = written.getvalue().rpartition("\x1b[?1049l")[2]
    assert after.index(f"step {told['steps']} of {told['steps']}") < after.index("return ")


def test_which_seat_the_policy_plays_is_told(tmp_path: Path) -> None:
    two = make_run(tmp_path / "two", ["main", "second"], seats=2)
    for is_terminal in (True, False):
        out, written = terminal(is_terminal)
        play(two, policy="second", fps=1000.0, console=out, sleep=lambda _: None)
        after = written.getvalue().rpartition("\x1b[?1049l")[2]
        assert after.count("second plays seat 1\n") == 1


def test_a_policy_without_a_name_and_a_pace_without_end_are_refused(run: Path) -> None:
    for fps in (float("inf"), float("nan"), 0.0):
        with pytest.raises(ConfigError, match=r"--fps is .*; it must be a number above 0"):
            play(run, fps=fps)
    with pytest.raises(ConfigError, match=r"policy is ''; .* trained main"):
        evaluate(run, episodes=1, policy="")


def test_it_is_the_first_match_that_eval_counts(run: Path) -> None:
    told = play(run, seed=5, console=terminal(False)[0])
    assert evaluate(run, episodes=1, seed=5)["results"]["seed"]["mean"] == told["result"]["seed"]


def test_without_a_terminal_only_the_result_is_told(run: Path) -> None:
    out, written = terminal(False)
    told = play(run, console=out)
    line, end = written.getvalue().split("\n")
    assert line.startswith(f"return {told['steps']}, win ")
    assert end == ""


def test_a_picture_will_do_where_there_is_no_text(tmp_path: Path) -> None:
    out, written = terminal()
    play(make_run(tmp_path / "framed", draws="frame"), fps=1000.0, console=out, sleep=lambda _: None)
    assert "▀" in written.getvalue()


def test_a_game_that_cannot_be_drawn_says_so_and_leaves_the_terminal_clean(tmp_path: Path) -> None:
    plain = make_run(tmp_path / "plain", draws="nothing")
    out, written = terminal()
    with pytest.raises(MDPError, match=r"walk cannot be drawn.*text\(\) nor frame\(\)"):
        play(plain, console=out)
    assert written.getvalue().rstrip().endswith(("\x1b[?25h", "\x1b[?1049l"))
    with pytest.raises(MDPError, match=r"walk draws no picture.*leave out --video"):
        play(plain, video=tmp_path / "a.gif", console=out)
    assert not (tmp_path / "a.gif").exists()


# ------------------------------------------------------------------ video


@pytest.mark.parametrize("suffix", ["mp4", "gif", "MP4"])
@pytest.mark.parametrize("size", [16, 17])
def test_a_match_is_recorded_frame_by_frame(tmp_path: Path, suffix: str, size: int) -> None:
    target = tmp_path / f"out.{suffix}"
    told = play(
        make_run(tmp_path / "run", size=size), video=target, seed=5, fps=20.0, console=terminal(False)[0]
    )
    shape = (size + size % 2, 2 * size, 3)  # video needs even sides
    frames = frames_of(target, shape)
    assert len(frames) == told["steps"] + 1
    assert frames[0].shape == shape
    column = frames[-1][4, 2 * told["steps"] - 2].astype(int)
    assert abs(column - (255, 200, 0)).max() < 60  # what the codec leaves of it
    assert sorted(path.name for path in tmp_path.iterdir()) == [target.name, "run"]


def frames_of(path: Path, shape: tuple[int, int, int]) -> list[np.ndarray]:
    if path.suffix == ".gif":
        import imageio.v2

        return [np.asarray(frame)[..., :3] for frame in imageio.v2.mimread(path)]
    import imageio_ffmpeg

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(path)]
    raw = [*command, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    pixels = np.frombuffer(subprocess.run(raw, capture_output=True, check=True).stdout, np.uint8)
    return list(pixels.reshape(-1, *shape))


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_recording_that_fails_leaves_what_was_there(tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"out{suffix}"
    target.write_text("mine")

    def interrupted() -> None:
        with record(target, 20.0) as append:
            append(np.zeros((16, 16, 3), np.uint8))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [target]


def test_a_frame_of_the_wrong_shape_is_named(tmp_path: Path) -> None:
    with pytest.raises(MDPError, match=r"frame\(\) gave \[4, 4\] of float64; \[H, W, 3\] of uint8"):
        play(make_run(tmp_path / "run", draws="wrong"), video=tmp_path / "a.mp4", console=terminal(False)[0])
    assert not (tmp_path / "a.mp4").exists()


def test_a_frame_that_changes_its_size_is_named(tmp_path: Path) -> None:
    def grow() -> None:
        with record(tmp_path / "a.mp4", 20.0) as append:
            append(np.zeros((16, 16, 3), np.uint8))
            append(np.zeros((16, 18, 3), np.uint8))

    with pytest.raises(MDPError, match="changed its size"):
        grow()
    assert list(tmp_path.iterdir()) == []


def test_where_no_video_can_be_made_the_match_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for target, says in (("a.avi", "must end in"), ("nowhere/a.mp4", "no folder")):
        with pytest.raises(ConfigError, match=says):
            play(tmp_path / "no run", video=tmp_path / target)
    monkeypatch.setattr(recording, "find_spec", lambda _: None)
    with pytest.raises(MissingPackage, match="pip install imageio-ffmpeg"):
        play(tmp_path / "no run", video=tmp_path / "a.mp4")
    with pytest.raises(MissingPackage, match="pip install imageio"):
        play(tmp_path / "no run", video=tmp_path / "a.gif")


def test_a_missing_ffmpeg_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", "")

    def none() -> str:
        raise RuntimeError("No ffmpeg exe could be found.")

    monkeypatch.setattr("imageio_ffmpeg.get_ffmpeg_exe", none)
    with pytest.raises(MissingPackage, match=r"an \.mp4 needs ffmpeg"):
        play(tmp_path / "no run", video=tmp_path / "a.mp4")
