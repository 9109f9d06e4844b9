"""What `lamarck train` hands to the launcher, over the whole of Hydra's command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from lamarckian_cli.errors import RunError
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.runfolder import RunFolder
from lamarckian_cli.launch.runs import list_runs
from lamarckian_cli.learner.impala import IMPALA
from lamarckian_cli.learner.ppo import PPO

LAUNCHER = "lamarckian_cli.launch.train"
GAME = """
class Game:
    def __init__(self, size: int = 1) -> None:
        self.size = size
"""


def test_a_job_of_checked_records(lamarck) -> None:
    answer = lamarck("train", "env=cartpole", "seed=3", "algo.lr=1e-4", "budget.env_steps=1e6")
    assert answer.status == 0, answer.err
    (job,) = lamarck.jobs
    assert job.seed == 3
    assert isinstance(job.algo, PPO)
    assert job.algo.lr == 1e-4
    assert job.budget.env_steps == 1_000_000
    assert isinstance(job.budget.env_steps, int)
    assert isinstance(job.model.policy, tuple)
    assert job.env.spec["id"] == "CartPole-v1"
    assert job.config["algo"]["lr"] == 1e-4
    assert job.command_line[:3] == ("lamarck", "train", "env=cartpole")
    assert Path(job.run.dir).parts[0] == "runs"
    assert Path(job.run.dir).name.startswith("cartpole-ppo-")


def test_hydra_leaves_nothing_of_its_own(lamarck, tmp_path: Path) -> None:
    assert lamarck("train", "run.dir=here").status == 0
    assert Path.cwd() == tmp_path
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["here", "summary.json"]


def test_an_environment_brings_the_model_that_fits(lamarck) -> None:
    lamarck("train", "env=pong_pixels")
    lamarck("train", "env=pong_pixels", "model=mlp")
    assert [job.model.policy for job in lamarck.jobs] == [(256,), (256, 128)]


def test_tuned_values_follow_environment_and_algorithm(lamarck) -> None:
    lamarck("train", "env=cartpole")
    lamarck("train", "env=cartpole", "tuned=none")
    lamarck("train", "env=cartpole", "algo.batch_size=512", "algo.minibatch_size=null")
    lamarck("train", "env=cartpole", "algo=impala")
    lamarck("train", "experiment=cartpole_impala")
    tuned, plain, given, impala, experiment = lamarck.jobs
    assert tuned.algo != plain.algo
    assert plain.algo == PPO()
    assert given.algo.batch_size == 512
    assert isinstance(impala.algo, IMPALA)
    assert (experiment.algo, experiment.budget, experiment.env) == (impala.algo, impala.budget, impala.env)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("env.kwargs={g: 5.0}", {"g": 5.0}),
        ("env.kwargs.g=5.0", {"g": 5.0}),
        ("+env.kwargs.g=5.0", {"g": 5.0}),
        ("env.kwargs.deep={a: [1]}", {"deep": {"a": [1]}}),
    ],
)
@pytest.mark.parametrize("env", ["gym", "pendulum", "pettingzoo"])
def test_arguments_of_a_library_take_any_key(lamarck, env: str, override: str, expected: object) -> None:
    named = {"gym": ["env.id=Pendulum-v1"], "pettingzoo": ["env.target=a.b"]}.get(env, [])
    answer = lamarck("train", f"env={env}", *named, override)
    assert answer.status == 0, answer.err
    assert lamarck.jobs[0].env.spec["kwargs"] == expected


def test_arguments_of_a_library_can_be_swept(lamarck) -> None:
    assert lamarck("train", "-m", "env=pendulum", "env.kwargs.g=5.0,9.0").status == 0
    assert [job.env.spec["kwargs"]["g"] for job in lamarck.jobs] == [5.0, 9.0]


def test_multirun_hands_over_every_combination(lamarck, tmp_path: Path) -> None:
    answer = lamarck("train", "-m", "env=cartpole,pong", "seed=0,1", "--json")
    assert answer.status == 0, answer.err
    assert [(job.env.spec.get("id"), job.seed) for job in lamarck.jobs] == [
        ("CartPole-v1", 0),
        ("CartPole-v1", 1),
        (None, 0),
        (None, 1),
    ]
    folders = {Path(job.run.dir) for job in lamarck.jobs}
    assert len(folders) == 4
    assert all(folder.is_relative_to(tmp_path / "multirun") for folder in folders)
    assert {folder.name for folder in folders} >= {"0-env-cartpole+seed-0", "3-env-pong+seed-1"}
    document = json.loads(answer.out)
    assert [job["seed"] for job in document["jobs"]] == [0, 1, 0, 1]
    assert document["jobs"][0]["overrides"] == ["env=cartpole", "seed=0"]
    assert Path(document["jobs"][3]["run"]).name == "3-env-pong+seed-1"


def test_flags_may_stand_between_overrides(lamarck) -> None:
    answer = lamarck("train", "env=cartpole", "-m", "seed=0,1", "tuned=none")
    assert answer.status == 0, answer.err
    assert [job.seed for job in lamarck.jobs] == [0, 1]


def test_jobs_of_a_sweep_are_named_by_what_varies(lamarck) -> None:
    fixed = ["env=cartpole", "tuned=none", "budget.env_steps=7"]
    assert lamarck("train", "-m", *fixed, "seed=0,1").status == 0
    assert lamarck("train", "-m", *fixed, "algo=ppo,impala", "algo.lr=choice(0.5)").status == 0
    names = [Path(job.run.dir).name for job in lamarck.jobs]
    assert names == ["0-seed-0", "1-seed-1", "0-algo.lr-0.5+algo-ppo", "1-algo.lr-0.5+algo-impala"]


def test_multirun_with_run_folders_of_ones_own(lamarck) -> None:
    assert lamarck("train", "-m", "seed=0,1", "run.dir='mine/${seed}'").status == 0
    assert [job.run.dir for job in lamarck.jobs] == ["mine/0", "mine/1"]


def test_a_long_sweep_line_still_makes_a_folder(lamarck) -> None:
    many = [f"algo.{key}=0.5" for key in ("lr", "adam_epsilon", "discount", "gae_lambda", "policy_weight")]
    assert (
        lamarck(
            "train", "-m", "seed=0,1", "experiment=paper/pendulum", *many, "algo.entropy_weight=0.25"
        ).status
        == 0
    )
    assert all(len(Path(job.run.dir).name) < 140 for job in lamarck.jobs)


def test_one_bad_job_of_a_sweep_does_not_stop_the_others(lamarck) -> None:
    answer = lamarck("train", "-m", "algo.lr=fast,1e-3", "env=cartpole")
    assert answer.status == 2
    *_, last = answer.err.splitlines()
    assert last == (
        "lamarck: 1 of 2 jobs failed; algo.lr=fast: algo.lr is 'fast'; it must be a finite number"
    )
    assert "Error executing job" not in answer.err
    assert [job.algo.lr for job in lamarck.jobs] == [1e-3]
    assert "failed: algo.lr is 'fast'" in answer.out


def test_one_bad_job_of_a_sweep_is_in_its_place_in_the_document(lamarck) -> None:
    answer = lamarck("train", "-m", "algo.lr=fast,1e-3", "--json")
    assert answer.status == 2
    bad, good = json.loads(answer.out)["jobs"]
    assert bad == {"overrides": ["algo.lr=fast"], "error": "algo.lr is 'fast'; it must be a finite number"}
    assert (good["overrides"], good["best_return"]) == (["algo.lr=0.001"], 0.0)
    assert answer.err.count("\n") == 1


def test_what_nobody_expected_of_a_job_of_a_sweep_is_one_line(lamarck) -> None:
    lamarck.error = ZeroDivisionError("a bug")
    answer = lamarck("train", "-m", "seed=0,1", "--json")
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert [set(job) for job in json.loads(answer.out)["jobs"]] == [{"overrides", "error"}] * 2
    assert answer.err.startswith("lamarck: 2 of 2 jobs failed; seed=0: ZeroDivisionError: a bug (")


def test_a_sweep_ends_with_a_table_and_the_best_job(lamarck) -> None:
    answer = lamarck("train", "-m", "env=cartpole", "seed=0,2,1")
    assert answer.status == 0, answer.err
    assert [
        line.split()[:2] for line in answer.out.splitlines() if " seed=" in line and "multirun" in line
    ] == [
        ["seed=0", "0"],
        ["seed=2", "2"],
        ["seed=1", "1"],
    ]
    *_, best, command = answer.out.splitlines()
    assert best == "the best is seed=2"
    assert command.endswith("1-seed-2")
    assert "the best" not in lamarck("train", "-m", "env=cartpole", "seed=0").out


@pytest.mark.parametrize("written", ["~/x", "'~/x'"])
def test_a_tilde_that_the_shell_left_is_the_home_folder(lamarck, monkeypatch, tmp_path, written: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert lamarck("train", f"run.dir={written}").status == 0
    assert lamarck.jobs[0].run.dir == str(tmp_path / "home" / "x")
    assert [p.name for p in tmp_path.iterdir()] == ["home"]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["env=gym", "env.id=LunarLander-v3"], "LunarLander-v3-ppo-"),
        (["env=atari", "env.id=ALE/Breakout-v5"], "ALE-Breakout-v5-ppo-"),
        (["env=pettingzoo", "env.target=pettingzoo.classic.rps_v2"], "pettingzoo.classic.rps_v2-ppo-"),
        (["env=lunarlander"], "lunarlander-ppo-"),
    ],
)
def test_a_run_folder_is_named_by_what_its_environment_is(lamarck, arguments: list[str], name: str) -> None:
    assert lamarck("train", *arguments).status == 0
    assert Path(lamarck.jobs[0].run.dir).name.startswith(name)


def test_cfg_prints_yaml_and_starts_nothing(lamarck, tmp_path: Path) -> None:
    answer = lamarck("train", "env=cartpole", "--cfg", "job", "--resolve")
    assert answer.status == 0
    assert yaml.safe_load(answer.out)["env"]["id"] == "CartPole-v1"
    part = lamarck("train", "--cfg=job", "-p", "algo")
    assert "lr_schedule" in yaml.safe_load(part.out)
    assert lamarck("train", "--info", "searchpath").status == 0
    assert lamarck("train", "--hydra-help").status == 0
    assert not lamarck.jobs
    assert not list(tmp_path.iterdir())


def test_json_is_one_document(lamarck) -> None:
    assert json.loads(lamarck("train", "seed=5", "--json").out)["best_return"] == 5.0


def test_a_configuration_folder_and_a_package_of_the_users_own(lamarck, tmp_path, monkeypatch) -> None:
    (tmp_path / "games.py").write_text(GAME)
    (tmp_path / "mine" / "env").mkdir(parents=True)
    (tmp_path / "mine" / "env" / "my_game.yaml").write_text("# My own game.\n_target_: games.Game\nsize: 3\n")
    answer = lamarck("train", "--config-dir", "mine", "env=my_game", "env.size=4")
    assert answer.status == 0, answer.err
    assert lamarck.jobs[0].env.make_mdp().size == 4
    assert "my_game" in lamarck("list", "env", "--config-dir", "mine").out
    assert "my_game" in lamarck("train", "--help", "-cd", "mine").out
    monkeypatch.setenv("LAMARCK_CONFIG_PATH", "mine")
    assert lamarck("train", "env=my_game").status == 0
    wrong = lamarck("train", "env=my_game", "env.size=big")
    assert "env.size is 'big'; it must be a whole number" in wrong.err


def test_a_package_adds_options(lamarck, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "my_package" / "conf" / "experiment"
    folder.mkdir(parents=True)
    for place in (folder.parent, folder.parent.parent):
        (place / "__init__.py").write_text("")
    (folder / "quick.yaml").write_text("# @package _global_\n# A quick one.\nbudget:\n  env_steps: 7\n")
    monkeypatch.setenv("LAMARCK_CONFIG_PATH", "pkg://my_package.conf")
    assert "A quick one." in lamarck("list", "experiment").out
    assert lamarck("train", "experiment=quick").status == 0
    assert lamarck.jobs[0].budget.env_steps == 7


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["env=pettingzoo", "env.target=a.b"], {"env": "pettingzoo", "algo": "ppo"}),
        (["env=pong_pixels", "algo=impala"], {"env": "pong_pixels", "algo": "impala"}),
        (["env=gym", "env.id=Acrobot-v1"], {"env": "Acrobot-v1", "algo": "ppo"}),
        (["experiment=cartpole_impala"], {"env": "CartPole-v1", "algo": "impala"}),
    ],
)
def test_a_run_is_called_by_what_was_chosen(lamarck, monkeypatch, tmp_path, arguments, expected) -> None:
    def create(job: Job, *, json_output: bool) -> dict[str, object]:
        RunFolder.create(Path(job.run.dir), job.config, ["lamarck"]).finish("finished")
        return {"best_return": None}

    monkeypatch.setattr(sys.modules[LAUNCHER], "train", create)
    assert lamarck("train", *arguments, "run.dir=runs/x").status == 0
    (run,) = list_runs(tmp_path / "runs")
    assert {key: run[key] for key in expected} == expected


def test_what_the_launcher_says_is_the_message(lamarck, tmp_path: Path) -> None:
    lamarck.error = RunError("run.dir is 'x'; it exists and holds a run")
    answer = lamarck("train")
    assert (answer.status, answer.out) == (2, "")
    assert answer.err == "lamarck: run.dir is 'x'; it exists and holds a run\n"
    assert not list(tmp_path.iterdir())


def test_a_traceback_on_request(lamarck, monkeypatch) -> None:
    monkeypatch.setenv("LAMARCK_TRACEBACK", "1")
    lamarck.error = RunError("said")
    with pytest.raises(RunError):
        lamarck("train")


def test_ctrl_c(lamarck) -> None:
    lamarck.error = KeyboardInterrupt()
    assert lamarck("train").status == 130


def test_an_error_of_our_own_is_one_line_and_not_dressed_as_the_users(lamarck) -> None:
    lamarck.error = ZeroDivisionError("a bug\nin two lines")
    answer = lamarck("train")
    assert answer.err.startswith("lamarck: ZeroDivisionError: a bug in two lines (")
    assert answer.err.count("\n") == 1
    assert answer.err.endswith("LAMARCK_TRACEBACK=1 shows the traceback\n")
