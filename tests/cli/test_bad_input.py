"""Bad input: one clear message, status 2, no traceback, nothing half-written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lamarckian_cli.errors import pip_install
from lamarckian_cli.launch.job import Job

CASES = [
    (["env=pnog"], "env is 'pnog'; there is no such option; did you mean pong? (available: atari, "),
    (["experiment=paper/x"], "experiment is 'paper/x'; there is no such option"),
    (["hydra/launcher=nothing"], "hydra/launcher is 'nothing'; there is no such option (available: basic"),
    (["algo=null"], "algo is null; give one of its options, or leave it out (available: impala, ppo)"),
    (["env=cartpole", "algo=null"], "algo is null; "),
    (["env=pong", "model=null", "seed=1"], "model is null; give one of its options"),
    (["env=cartpole", "env=1"], "env is 1; "),
    (["env=pong", "algo=[ppo,impala]"], "algo is [ppo,impala]; it takes exactly one of its options"),
    (["-m", "env=pong", "algo=ppo,null"], "algo is ppo,null; "),
    (["algo.lrr=1"], "algo.lrr is not a known key; did you mean algo.lr? (algo has: lr, "),
    (["+algo.lrr=1"], "algo.lrr is not a known key; did you mean algo.lr?"),
    (["sed=1"], "sed is not a known key; did you mean seed?"),
    (["+sed=1"], "sed is not a known key; did you mean seed?"),
    (["budget.foo=1"], "budget.foo is not a known key (budget has: env_steps, "),
    (["nogroup/x=1"], "nogroup/x is not a known key"),
    (["algo.lr=fast"], "algo.lr is 'fast'; it must be a finite number"),
    (["algo.lr=null"], "algo.lr is null; it must be a finite number"),
    (["algo.lr=-1"], "algo.lr is -1.0; it must lie in (0, 10]"),
    (["algo.unroll=0"], "algo.unroll is 0; it must be at least 1"),
    (["algo.unroll=1.5"], "algo.unroll is 1.5; it must be a whole number"),
    (["algo.unroll=true"], "algo.unroll is true; it must be a whole number"),
    (["algo.normalize_advantages=1"], "algo.normalize_advantages is 1; it must be true or false"),
    (["algo.precision=fp8"], "algo.precision is 'fp8'; choose auto, fp32 or bf16"),
    (["algo.batch_size=-64"], "algo.batch_size is -64; "),
    (["cluster.actors=0"], "cluster.actors is 0; it must be at least 1"),
    (["cluster.matches=-3"], "cluster.matches is -3; it must be at least 1"),
    (["cluster=inproc", "cluster.actors=2"], "cluster.actors is 2; cluster=inproc has one actor"),
    (["budget.env_steps=0"], "budget.env_steps is 0; it must be above 0"),
    (["budget.env_steps=null"], "give budget.env_steps or budget.seconds"),
    (["budget=1"], "budget is 1; it must be a group of keys"),
    (["model.policy=[0]"], "model.policy is [0]; each layer needs at least 1 unit"),
    (["model.policy=256"], "model.policy is 256; it must be a list, each a whole number"),
    (["model.conv=[[1,2]]"], "it must be a list of 3"),
    (["players.seats=main"], "players.seats is 'main'; it must be a list, each text, or null"),
    (["players.seats=[builtin]"], "at least one seat must be played by a policy that trains"),
    (["players=frozen"], "opponent is not given"),
    (["seed=a"], "seed is 'a'; it must be a whole number"),
    (["seed=-1"], "seed is -1; it must be 0 or more"),
    (["~seed"], "seed is null"),
    (["~algo"], "algo is left out; it takes exactly one of its options"),
    (["run.dir="], "run.dir is ''; give a folder"),
    (["run.dir=null"], "run.dir is null; give a folder"),
    (["-m", "run.dir=null", "seed=0,1"], "run.dir is null; give a folder"),
    (["env=gym"], "env.id is not given"),
    (["env._target_=nowhere.Game"], "env._target_ is 'nowhere.Game'; there is no module nowhere here"),
    (["env._target_=Game"], "env._target_ is 'Game'; write module and class"),
    (["env._target_=lamarckian_cli.mdp.pong.Pnog"], "has no class of that name; did you mean Pong?"),
    (["algo._target_=lamarckian_cli.mdp.pong.Pong"], "algo.lr is not a known key"),
    (["env.rounds=many"], "env.rounds is 'many'; it must be a whole number"),
    (["algo.lr=1,2"], "algo.lr is '1,2': several values; write 'algo.lr=[1,2]' for a list, or add -m"),
    (["algo.lr=[1"], "'algo.lr=[1' cannot be read as an override"),
    (["word"], "'word' cannot be read as an override"),
    (["algo.lr=${nothing}"], "algo.lr refers to something that cannot be resolved"),
    (["--foo"], "--foo is no option of lamarck train"),
    (["--cfgg=job"], "--cfgg is no option of lamarck train; did you mean --cfg?"),
    (["--cfg", "foo"], "--cfg is 'foo'; choose one of job, hydra, all"),
    (["--cfg"], "--cfg needs WHAT after it"),
    (["--resolve"], "--resolve goes with --cfg alone"),
    (["-m", "--cfg", "job"], "--multirun and --cfg cannot go together"),
    (["--config-dir", "nowhere"], "--config-dir names 'nowhere'; there is no such folder"),
    (["--config-name", "nothing"], "there is no configuration file nothing.yaml"),
    (["-m", "env=pnog,pong"], "env is 'pnog'; there is no such option"),
    (["-m", "algo.lrr=1,2"], "algo.lrr is not a known key; did you mean algo.lr?"),
    (["-m", "algo.lr=fast,slow"], "algo.lr is 'fast'; it must be a finite number"),
    (["-m", "algo.lr=interval(0,1)"], "the basic sweeper takes lists"),
    (["-sc", "what=bash"], "-sc is followed by 'what=bash'"),
    (["run.dir=/proc/nothing/here"], "run.dir"),
    (["resume="], "resume is empty; give the folder of a run"),
    (["algo.lr=1e300"], "algo.lr is 1e+300; it must lie in (0, 10]"),
    (["resume=nowhere"], "resume is 'nowhere'; there is no run folder 'nowhere'"),
    (["resume=last"], "resume is 'last'; there is no run below runs/"),
    (["env=gym", "env.id=A-v0", "env.kwargz.g=1"], "env.kwargz is not a known key; did you mean env.kwargs?"),
    (["env=gym", "env.id=A-v0", "env.g=1"], "env.g is not a known key"),
    (["env=cartpole", "env.kwargs=5"], "env.kwargs is 5; it must be a group of keys"),
]


@pytest.mark.parametrize(("arguments", "said"), CASES, ids=[" ".join(arguments) for arguments, _ in CASES])
def test_one_message_status_two_and_nothing_written(
    lamarck, tmp_path: Path, arguments: list[str], said: str
) -> None:
    answer = lamarck("train", *arguments)
    assert answer.status == 2
    assert said in answer.err
    assert answer.out == ""
    assert "Traceback" not in answer.err
    assert "HYDRA_FULL_ERROR" not in answer.err
    if "-m" not in arguments:
        assert len(answer.err.splitlines()) == 1
    assert not lamarck.jobs
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("nowhere", "names 'nowhere'; there is no such folder"),
        ("pkg://nowhere", "there is no package nowhere here"),
    ],
)
def test_a_configuration_path_that_is_not_there(lamarck, monkeypatch, entry: str, said: str) -> None:
    monkeypatch.setenv("LAMARCK_CONFIG_PATH", entry)
    for command in ("train", "list"):
        answer = lamarck(command)
        assert (answer.status, said in answer.err) == (2, True)


def test_yaml_of_the_users_that_cannot_be_read(lamarck, tmp_path: Path) -> None:
    (tmp_path / "mine" / "env").mkdir(parents=True)
    (tmp_path / "mine" / "env" / "broken.yaml").write_text("x: [\n")
    answer = lamarck("train", "-cd", "mine", "env=broken")
    assert answer.status == 2
    assert "broken.yaml, line 2 is not valid YAML" in answer.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trian"], "no such command 'trian'"),
        (["eval"], "missing argument 'run'; see lamarck eval --help"),
        (["eval", "x", "--sede", "1", "--json"], "no such option: --sede"),
        (["eval", "x", "--seed", "-1"], "invalid value for '--seed'"),
        (["bench", "nothing"], "no such command 'nothing'; see lamarck bench --help"),
    ],
)
def test_usage_errors_are_one_line(lamarck, arguments: list[str], said: str) -> None:
    answer = lamarck(*arguments)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith(f"lamarck: {said}")
    assert answer.err.endswith(" --help\n")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["bench"]])
def test_a_command_that_is_given_nothing_shows_its_help(lamarck, arguments: list[str]) -> None:
    answer = lamarck(*arguments)
    assert answer.status == 2
    assert "Usage: lamarck" in answer.err


def test_a_missing_optional_package_is_refused_with_the_command_that_brings_it(lamarck, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    answer = lamarck("train", "env=pettingzoo", "env.target=pettingzoo.classic.rps_v2")
    assert answer.status == 2
    assert (
        f"needs the package pettingzoo, which is not installed: {pip_install('pettingzoo')}\n" in answer.err
    )
    assert not lamarck.jobs


def test_the_command_that_brings_a_package_is_for_this_interpreter(monkeypatch, tmp_path: Path) -> None:
    for folder in (tmp_path / ".venv" / "bin", tmp_path / "no pip"):
        folder.mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "pip").touch()
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv" / "bin" / "python"))
    monkeypatch.chdir(tmp_path)
    assert pip_install("x") == ".venv/bin/pip install x"
    monkeypatch.chdir(tmp_path / "no pip")
    assert pip_install("x") == f"{tmp_path / '.venv' / 'bin' / 'pip'} install x"
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no pip" / "python"))
    monkeypatch.chdir(tmp_path)
    assert pip_install("x") == "'no pip/python' -m pip install x"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys\nsys.exit('bye')\n", "module exiting calls sys.exit('bye') when it is imported"),
        (
            "import sys\nclass Game:\n    def __init__(self):\n        sys.exit(3)\n",
            "env (Game) cannot be made: it calls sys.exit(3)",
        ),
    ],
)
def test_a_game_that_calls_sys_exit(lamarck, monkeypatch, tmp_path: Path, code: str, said: str) -> None:
    (tmp_path / "exiting.py").write_text(code)
    (tmp_path / "mine" / "env").mkdir(parents=True)
    (tmp_path / "mine" / "env" / "exiting.yaml").write_text("# Mine.\n_target_: exiting.Game\n")
    monkeypatch.delitem(sys.modules, "exiting", raising=False)

    def make(job: Job, *, json_output: bool) -> None:
        job.env.make_mdp()

    monkeypatch.setattr(sys.modules["lamarckian_cli.launch.train"], "train", make)
    answer = lamarck("train", "-cd", "mine", "env=exiting")
    assert (answer.status, said in answer.err, answer.err.count("\n")) == (2, True, 1)
