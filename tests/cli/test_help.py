"""Help answers at once, and lists what there is."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest

from lamarckian_cli.config.catalogue import groups_of
from lamarckian_cli.errors import pip_install

PROBE = """
import sys
sys.argv = ["lamarck", *{arguments!r}]
from lamarckian_cli.cli.main import run
try:
    run()
except SystemExit:
    pass
heavy = {{"torch", "ray", "hydra", "gymnasium", "numpy"}} & set(sys.modules)
print("HEAVY", sorted(heavy), file=sys.stderr)
"""


def probe(*arguments: str) -> tuple[float, str]:
    """Seconds of processor time, and standard error, of one command in a process of its own."""
    before = children_cpu_s()
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(arguments=list(arguments))],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return children_cpu_s() - before, done.stderr


def children_cpu_s() -> float:
    """Processor time of the processes that this one has waited for; a busy machine does not add to it."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize(
    "arguments", [["--help"], ["train", "--help"], ["evolve", "--help"], ["list", "--json"], ["--version"]]
)
def test_answers_without_importing_anything_heavy(arguments: list[str]) -> None:
    _, err = probe(*arguments)
    assert "HEAVY []" in err


def test_help_takes_less_than_half_a_second() -> None:
    assert min(probe("--help")[0] for _ in range(5)) < 0.5


def test_help_names_every_command(lamarck) -> None:
    answer = lamarck("--help")
    assert answer.status == 0
    for command in ("train", "evolve", "eval", "play", "runs", "front", "doctor", "list", "cluster", "bench"):
        assert f"  {command} " in answer.out


def test_version(lamarck) -> None:
    assert lamarck("--version").out.startswith("lamarck 0")


def test_train_help_lists_groups_options_and_keys(lamarck) -> None:
    answer = lamarck("train", "--help")
    assert answer.status == 0
    for options in groups_of("train").values():
        for option in options:
            assert option.name in answer.out
    for key in ("algo.lr=", "budget.env_steps=", "cluster.actors=", "run.dir=", "--multirun", "--cfg"):
        assert key in answer.out


def test_list_is_one_document_with_a_line_on_each(lamarck) -> None:
    document = json.loads(lamarck("list", "--json").out)
    assert {"algo", "env", "model", "cluster", "players", "experiment"} <= set(document)
    assert {"ppo", "impala"} == {option["name"] for option in document["algo"]}
    assert "paper/pendulum" in {option["name"] for option in document["experiment"]}
    assert all(option["description"] for options in document.values() for option in options)


def test_list_as_a_table_and_one_group_alone(lamarck) -> None:
    assert "cartpole" in lamarck("list", "env").out
    wrong = lamarck("list", "enw")
    assert wrong.status == 2
    assert "did you mean env?" in wrong.err


def test_doctor_knows_the_packages_and_the_machine(lamarck) -> None:
    document = json.loads(lamarck("doctor", "--json").out)
    checks = {check["name"]: check for check in document["checks"]}
    assert {"python", "torch", "ray", "zeromq", "ale-py", "ffmpeg", "/dev/shm", "disk"} <= set(checks)
    assert not any(checks[name]["needed"] for name in ("box2d", "pettingzoo"))
    assert checks["zeromq"]["ok"]
    assert all(check["ok"] or check["remedy"] for check in checks.values())
    table = lamarck("doctor")
    assert table.status == 0
    assert "torch" in table.out


def test_doctor_has_the_command_for_an_optional_package(lamarck, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lamarckian_cli.launch.doctor._version", lambda _: None)
    monkeypatch.setitem(sys.modules, "Box2D", None)
    checks = {check["name"]: check for check in json.loads(lamarck("doctor", "--json").out)["checks"]}
    assert checks["pettingzoo"]["remedy"] == pip_install("pettingzoo")
    assert checks["box2d"]["remedy"] == pip_install('"gymnasium[box2d]"')


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("lamarck tr", {"train"}),
        ("lamarck evolve problem=zdt", {f"problem=zdt{n}" for n in range(1, 7)}),
        ("lamarck train algo=", {"algo=ppo", "algo=impala"}),
        ("lamarck train env=pong_i", {"env=pong_image"}),
        ("lamarck train algo.lr_", {"algo.lr_schedule="}),
        (
            "lamarck train env=cartpole budget.s",
            {"budget.seconds=", "budget.stop_return=", "budget.stop_win_rate="},
        ),
        ("/somewhere/bin/lamarck train experiment=paper/pen", {"experiment=paper/pendulum"}),
        ("lamarck train env=nothing algo.l", set()),
    ],
)
def test_completion(lamarck, monkeypatch: pytest.MonkeyPatch, line: str, expected: set[str]) -> None:
    monkeypatch.setenv("COMP_LINE", line)
    assert set(lamarck("train", "-sc", "query=bash").out.split()) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(lamarck, shell: str) -> None:
    assert "lamarck" in lamarck("train", "-sc", f"install={shell}").out
    assert "lamarck" in lamarck("train", "--shell-completion", f"uninstall={shell}").out


def test_completion_in_bash_replaces_what_follows_the_equals_sign(lamarck) -> None:
    script = lamarck("train", "-sc", "install=bash").out
    # A stand-in for the program, so that the script alone is tested.
    lines = [
        "lamarck() { echo 'env=pong env=pendulum'; }",
        script,
        "COMP_LINE='lamarck train env=po'; COMP_POINT=${#COMP_LINE}; _lamarck_complete; echo ${COMPREPLY[@]}",
    ]
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["pong"]
