"""`resume=RUN`: the run's own configuration, and the few keys that may change."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import yaml

from lamarckian_cli.launch.runfolder import RunFolder


@pytest.fixture
def run_folder(lamarck, tmp_path: Path) -> Path:
    assert lamarck("train", "env=cartpole", "algo.lr=1e-4", "run.dir=old").status == 0
    (job,) = lamarck.jobs
    (tmp_path / "old" / "config.yaml").write_text(yaml.safe_dump(job.config))
    lamarck.jobs.clear()
    return Path("old")


def test_continues_with_its_own_configuration(lamarck, run_folder: Path) -> None:
    answer = lamarck(
        "train", f"resume={run_folder}", "budget.env_steps=4e6", "cluster.actors=1", "run.log_every_s=1"
    )
    assert answer.status == 0, answer.err
    (job,) = lamarck.jobs
    assert job.algo.lr == 1e-4
    assert job.env.spec["id"] == "CartPole-v1"
    assert (job.budget.env_steps, job.cluster.actors, job.run.log_every_s) == (4_000_000, 1, 1.0)
    assert job.resume == run_folder
    assert job.run.dir == str(run_folder)


@pytest.mark.parametrize("name", ["last", "mine"])
def test_finds_a_run_as_eval_does(lamarck, run_folder: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "runs").mkdir()
    run_folder.rename("runs/mine")
    assert lamarck("train", f"resume={name}").status == 0
    assert lamarck.jobs[0].resume == Path("runs/mine")
    assert lamarck.jobs[0].run.dir == "runs/mine"


def test_finds_the_code_where_the_run_had_it(lamarck, tmp_path: Path, monkeypatch) -> None:
    project = tmp_path / "project"
    (project / "mine" / "env").mkdir(parents=True)
    (project / "resumed_game.py").write_text("class Game:\n    pass\n")
    (project / "mine" / "env" / "my_game.yaml").write_text("# Mine.\n_target_: resumed_game.Game\n")
    monkeypatch.delitem(sys.modules, "resumed_game", raising=False)
    answer = lamarck("train", "--config-dir", "project/mine", "env=my_game", "run.dir=old")
    assert answer.status == 0, answer.err
    (tmp_path / "old" / "summary.json").unlink()
    RunFolder.create(tmp_path / "old", lamarck.jobs[0].config, ["lamarck"]).finish("interrupted")

    def elsewhere() -> None:
        monkeypatch.delitem(sys.modules, "resumed_game", raising=False)
        monkeypatch.setattr(sys, "path", [p for p in sys.path if not Path(p).is_relative_to(tmp_path)])
        monkeypatch.setenv("PYTHONPATH", "")

    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    elsewhere()
    answer = lamarck("train", "resume=../old")
    assert answer.status == 0, answer.err
    assert str(project) in os.environ["PYTHONPATH"]  # for the processes that it starts
    elsewhere()
    project.rename(tmp_path / "moved")
    answer = lamarck("train", "resume=../old")
    assert answer.status == 2
    assert f"had code from folders that are gone: {project}" in answer.err


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("algo.lr=1", "algo.lr cannot change when a run is resumed"),
        ("env=pong", "env cannot change"),
        ("cluster=inproc", "cluster is given as a whole, which cannot change"),
        ("run.dir=x", "run.dir cannot change"),
        ("seed=1", "seed cannot change"),
        ("budget.env_stepz=1", "did you mean budget.env_steps?"),
        ("budget.env_steps=1,2", "give budget.env_steps one value"),
        ("~budget.seconds", "give budget.seconds one value"),
        ("budget.env_steps=many", "budget.env_steps is 'many'; it must be a whole number, or null"),
        ("-m", "one run at a time"),
        ("--info", "only overrides and --cfg job"),
    ],
)
def test_refuses_what_would_make_it_another_run(lamarck, run_folder: Path, override: str, said: str) -> None:
    answer = lamarck("train", f"resume={run_folder}", override)
    assert answer.status == 2
    assert said in answer.err
    assert not lamarck.jobs


def test_cfg_shows_what_would_be_resumed(lamarck, run_folder: Path) -> None:
    answer = lamarck("train", f"resume={run_folder}", "budget.seconds=5", "--cfg", "job")
    assert yaml.safe_load(answer.out)["budget"]["seconds"] == 5
    assert not lamarck.jobs


@pytest.mark.parametrize("content", [None, "a: [", "just text", "a: 1", "\x00"])
def test_a_folder_that_is_no_run(lamarck, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "odd").mkdir()
        (tmp_path / "odd" / "config.yaml").write_text(content)
    answer = lamarck("train", "resume=odd")
    assert answer.status == 2
    assert answer.err.startswith("lamarck: resume is 'odd'; ")


def test_resume_null_is_a_new_run(lamarck) -> None:
    assert lamarck("train", "resume=null").status == 0
    assert lamarck.jobs[0].resume is None
