"""Lists of runs that survive what they find, and summaries that say what a run was."""

from __future__ import annotations

import json
import subprocess
import time
from datetime import datetime
from pathlib import Path

import pytest

from lamarckian_cli.errors import RunError
from lamarckian_cli.launch.runfolder import RunFolder
from lamarckian_cli.launch.runs import list_runs
from lamarckian_cli.launch.summary import Totals, git_state, summarize

CONFIG = {
    "algo": {"_target_": "lamarckian_cli.learner.ppo.PPO"},
    "env": {"_target_": "lamarckian_cli.mdp.gymnasium_adapter.GymnasiumMDP", "id": "CartPole-v1"},
}


def make(path: Path, state: str = "finished", reason: str = "", steps: int = 0) -> Path:
    run = RunFolder.create(path, CONFIG, ["lamarck", "train"])
    for at in range(10, steps + 1, 10):
        run.log({"env_steps": at, "seconds": at / 10, "main/return": float(at), "second/return": 0.0})
    run.finish(state, reason)
    return path


def test_every_run_is_listed_with_state_and_score_newest_first(tmp_path: Path) -> None:
    make(tmp_path / "runs" / "a", steps=20)
    summary = {"env_steps": 25, "best_return": 30.0, "last_return": 21.0, "seconds": 2.5}
    RunFolder.open(tmp_path / "runs" / "a").write_summary(summary)
    make(tmp_path / "runs" / "b", "failed", "no space", steps=30)
    make(tmp_path / "multirun" / "day" / "0-x", "interrupted")
    runs = list_runs(tmp_path / "runs")
    assert [run["name"] for run in runs] == ["day/0-x", "b", "a"]
    when = runs[2].pop("when")
    assert abs((datetime.now() - datetime.fromisoformat(when)).total_seconds()) < 60
    assert runs[2] == {
        "name": "a",
        "path": str(tmp_path / "runs" / "a"),
        "state": "finished",
        "algo": "ppo",
        "env": "CartPole-v1",
        **summary,
    }
    assert (runs[1]["state"], runs[1]["reason"]) == ("failed", "no space")
    assert (runs[1]["env_steps"], runs[1]["last_return"], runs[1]["seconds"]) == (30, 30.0, 3.0)
    assert (runs[0]["state"], runs[0]["env_steps"], runs[0]["best_return"]) == ("interrupted", None, None)


def test_the_only_policy_of_a_killed_run_has_a_last_return(tmp_path: Path) -> None:
    path = make(tmp_path / "runs" / "a")
    run = RunFolder.open(path)
    run.log({"env_steps": 10, "best_return": 9.0, "return": 4.0, "win": 0.5, "loss": 1.0})
    run.close()
    run.set_state("running")  # and nobody holds its lock
    (entry,) = list_runs(tmp_path / "runs")
    assert (entry["state"], entry["last_return"], entry["best_return"]) == ("killed", 4.0, 9.0)


def test_an_old_summary_of_a_run_that_went_on_is_not_believed(tmp_path: Path) -> None:
    path = make(tmp_path / "runs" / "a", steps=50)
    RunFolder.open(path).write_summary({"env_steps": 20, "last_return": 1.0})
    assert list_runs(tmp_path / "runs")[0]["env_steps"] == 50


def test_damaged_folders_are_listed_as_such(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    make(runs / "no config").joinpath("config.yaml").unlink()
    make(runs / "no state").joinpath("state.json").write_bytes(b"\xff{")
    make(runs / "odd state").joinpath("state.json").write_text('["list"]')
    make(runs / "odd numbers").joinpath("metrics.jsonl").write_bytes(b"\0\xff\n[1]\n{}")
    make(runs / "odd summary").joinpath("summary.json").write_text("{")
    (runs / "stranger").mkdir()
    (runs / "stranger" / "notes.txt").write_text("hello")
    (runs / "file").write_text("")
    states = {run["name"]: run["state"] for run in list_runs(runs)}
    assert states == {
        "no config": "damaged",
        "no state": "damaged",
        "odd state": "damaged",
        "odd numbers": "finished",
        "odd summary": "finished",
    }
    json.dumps(list_runs(runs), allow_nan=False)


def test_a_damaged_summary_does_not_hide_the_other_runs(tmp_path: Path) -> None:
    for name in ("good", "bad"):
        make(tmp_path / name, steps=100)
    (tmp_path / "bad" / "summary.json").write_text('{"env_steps": "many"}')
    assert {run["name"] for run in list_runs(tmp_path)} == {"good", "bad"}


def test_no_runs_yet_is_an_empty_list_and_a_wrong_folder_an_error(tmp_path: Path) -> None:
    assert list_runs(tmp_path / "runs") == []
    with pytest.raises(RunError, match="there is no folder"):
        list_runs(tmp_path / "elsewhere")


def test_hundreds_of_runs_take_no_time(tmp_path: Path) -> None:
    state = {"state": "finished", "started": 1.0, "algo": "ppo", "env": "pong"}
    for number in range(300):
        run = tmp_path / "runs" / f"{number}"
        run.mkdir(parents=True)
        (run / "config.yaml").write_text("seed: 0\n")
        (run / "state.json").write_text(json.dumps(state))
        (run / "metrics.jsonl").write_text(json.dumps({"env_steps": 5, "pad": "x" * 200}) + "\n")
    began = time.process_time()
    assert len(list_runs(tmp_path / "runs")) == 300
    assert time.process_time() - began < 2.0


# ------------------------------------------------------------------ summary

TOTALS = Totals(
    env_steps=100,
    frames=400,
    seconds=2.00049,
    env_steps_per_s=50.0,
    best_return=float("nan"),
    last_return=None,
    staleness_mean=0.5,
    staleness_max=float("inf"),
    versions=7,
    seed=3,
    command=("lamarck", "train", "run.dir=a b"),
)


def test_the_summary_has_what_scripts_rely_on_and_no_nan(tmp_path: Path) -> None:
    summary = summarize(TOTALS, folder=tmp_path)
    assert list(summary) == [
        "env_steps",
        "frames",
        "seconds",
        "env_steps_per_s",
        "best_return",
        "last_return",
        "staleness_mean",
        "staleness_max",
        "versions",
        "seed",
        "packages",
        "command",
    ]
    assert (summary["best_return"], summary["staleness_max"], summary["seconds"]) == (None, None, 2.0)
    assert summary["command"] == "lamarck train 'run.dir=a b'"
    assert {"python", "torch", "numpy", "lamarckian-cli"} <= set(summary["packages"])
    json.dumps(summary, allow_nan=False)


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def test_git_says_commit_and_whether_files_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state(tmp_path) is None
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path) is None  # no commit yet
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-qm", "x")
    state = git_state(tmp_path)
    assert state is not None
    assert (len(state["commit"]), state["dirty"]) == (40, False)
    (tmp_path / "a").write_text("2")
    assert summarize(TOTALS, folder=tmp_path)["git"]["dirty"] is True
    monkeypatch.setenv("PATH", "/nowhere")
    assert git_state(tmp_path) is None
