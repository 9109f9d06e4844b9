"""`lamarck cluster`: one document for scripts, silence where nobody looks, one message for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lamarckian_cli.launch.clusters.takedown import Ended

UP = "lamarckian_cli.launch.clusters.bringup.up"
DOWN = "lamarckian_cli.launch.clusters.takedown.down"
STATUS = "lamarckian_cli.launch.clusters.takedown.status"
PLAN_NUMBERS = ("--bandwidth", "--latency-us", "--rate", "--update-seconds")
NO_NUMBERS = ("nan", "inf", "-inf", "-1", "1e300", "many", "")
CLUSTER = {
    "name": "default",
    "address": "10.0.0.1:6379",
    "state": "up",
    "error": None,
    "machines": [
        {"host": "this machine", "name": "a", "address": "10.0.0.1", "cores": 8, "gpus": 1, "alive": True},
        {"host": "b", "name": None, "address": "10.0.0.2", "cores": 0, "gpus": 0, "alive": False},
    ],
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What reached the launcher."""
    reached: list[Any] = []

    def bring_up(asked: Any, say: Any) -> None:
        reached.append(asked)
        say("starting")

    def take_down(name: str, hosts: tuple[str, ...], say: Any, *, force: bool) -> Ended:
        reached.append((name, hosts))
        say("ending")
        warnings = tuple(f"{host}: no answer" for host in hosts if host == "dead")
        return Ended(machines=("this machine", *(h for h in hosts if h != "dead")), warnings=warnings)

    monkeypatch.setattr(UP, bring_up)
    monkeypatch.setattr(DOWN, take_down)
    monkeypatch.setattr(STATUS, lambda name: [CLUSTER])
    return reached


def test_plan_is_one_document_and_starts_nothing(lamarck, tmp_path: Path) -> None:
    answer = lamarck("cluster", "plan", "cluster=6000cores", "--json", "--bandwidth", "25", "--rate", "500")
    assert answer.status == 0, answer.err
    document = json.loads(answer.out)
    assert {"machines", "tree", "weights", "rates", "egress", "staleness", "assumed"} == set(document)
    assert document["assumed"]["bandwidth_gbit_per_s"] == 25
    assert document["assumed"]["env_steps_per_s"] == 500
    assert list(tmp_path.iterdir()) == []
    assert lamarck.jobs == []


def test_plan_for_people(lamarck) -> None:
    answer = lamarck("cluster", "plan", "cluster=6000cores")
    assert answer.status == 0, answer.err
    for said in ("151", "150 workers", "fan-out 12", "sends to 12 machines", "10 Gbit/s", "staleness"):
        assert said in answer.out
    assert answer.err == ""
    assert len(answer.out.splitlines()) < 40


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("plan", "cluster=auto"), "cluster.cores is null"),
        (("plan", "cluster=5cores"), "cluster"),
        (("plan", "cluster=80cores", "cluster.fanout=0"), "cluster.fanout is 0"),
        *((("plan", option, value), option) for option in PLAN_NUMBERS for value in NO_NUMBERS),
        (("plan", "--latency-us", "-1"), "--latency-us"),
        *((("plan", option, "0"), option) for option in PLAN_NUMBERS if option != "--latency-us"),
        *((("up", "--here", "--timeout", value), "--timeout") for value in (*NO_NUMBERS, "0")),
        *((("up", "--here", "--cores", value), "--cores") for value in (*NO_NUMBERS, "0", "1.5")),
        *((("up", "--here", "--port", value), "--port") for value in (*NO_NUMBERS, "65536")),
        (("up", "--here", "--ssh", "'"), '--ssh is "\'", which cannot be read as a command'),
        (("up", "--here", "--address", "1.2.3.4"), "--address is '1.2.3.4', which is no address of this"),
        (("plan", "cluster=auto", "cluster.actors=10000000"), "cluster.actors is 10,000,000"),
        (("manifest", "cluster=80cores", "--out", "x", "--kind", "ray", "--hosts", "a,a,b"), "names a twice"),
        (
            ("manifest", "cluster=80cores", "--out", "x", "--kind", "ray", "--hosts", "-o,a,b"),
            "--hosts has '-o'",
        ),
        (("manifest", "cluster=80cores", "--out", "x", "--images", "A b/"), "--images is 'A b/'"),
        (("manifest", "cluster=80cores", "--out", "x", "--user", "me"), "--user goes with --kind ray"),
        (("manifest", "cluster=80cores", "--out", ""), "--out is '.', which is a folder"),
        (("manifest", "cluster=80cores"), "--out"),
        (
            ("manifest", "cluster=80cores", "--out", "no/x.yaml"),
            "--out is 'no/x.yaml', which cannot be written",
        ),
        (("up", "--hosts-file", "none.txt"), "--hosts-file is 'none.txt', which cannot be read"),
        (("status", "--name", "nix"), "there is no cluster 'nix' (there is none)"),
        (("down",), "there is no cluster 'default'"),
    ],
)
def test_what_is_wrong_is_one_message(
    lamarck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    answer = lamarck("cluster", *arguments)
    assert answer.status == 2
    assert said in answer.err
    assert len(answer.err.splitlines()) == 1
    assert answer.out == ""
    assert list(tmp_path.iterdir()) == []


def test_manifest_names_what_it_wrote(lamarck, tmp_path: Path) -> None:
    answer = lamarck("cluster", "manifest", "cluster=80cores", "--out", "job.yaml", "--kind", "kuberay")
    assert answer.status == 0, answer.err
    assert [line.partition(": ")[0] for line in answer.out.splitlines()] == [
        "job.yaml",
        str(tmp_path / "job.yaml.secrets"),
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.yaml", "job.yaml.secrets"]


def test_manifest_overwrites_with_force_alone(lamarck, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("mine")
    answer = lamarck("cluster", "manifest", "cluster=80cores", "--out", "job.yaml")
    assert (answer.status, answer.out) == (2, "")
    assert "--out is 'job.yaml', which is there already" in answer.err
    assert (tmp_path / "job.yaml").read_text() == "mine"
    answer = lamarck("cluster", "manifest", "cluster=80cores", "--out", "job.yaml", "--force")
    assert answer.status == 0, answer.err
    assert "RayJob" in (tmp_path / "job.yaml").read_text()


def test_up_hands_over_what_was_asked(lamarck, calls: list[Any], tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("# ours\nc\n\nd  # the fast one\n")
    options = ("--user", "me", "--python", "/opt/python", "--ssh", "ssh -p 2222", "--cores", "8", "--here")
    answer = lamarck(
        "cluster", "up", "--hosts", "a, b", "--hosts-file", "hosts.txt", "--name", "big", *options
    )
    assert answer.status == 0, answer.err
    (asked,) = calls
    assert asked.hosts == ("a", "b", "c", "d")
    assert (asked.name, asked.user, asked.python, asked.ssh) == ("big", "me", "/opt/python", "ssh -p 2222")
    assert (asked.cores, asked.here) == (8, True)
    assert answer.err == ""  # nobody watches
    assert "lamarck train cluster=auto" in answer.out


def test_status_as_a_table_and_as_a_document(
    lamarck, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lamarck("cluster", "status").out
    assert "cluster default at 10.0.0.1:6379: up" in table
    assert "this machine" in table
    assert "no" in table
    assert json.loads(lamarck("cluster", "status", "--json").out) == {"clusters": [CLUSTER]}
    assert json.loads(lamarck("cluster", "up", "--here", "--json").out) == {"clusters": [CLUSTER]}
    monkeypatch.setattr(STATUS, lambda name: [])
    assert "No cluster is up" in lamarck("cluster", "status").out
    assert json.loads(lamarck("cluster", "status", "--json").out) == {"clusters": []}


def test_down_names_what_it_ended(lamarck, calls: list[Any]) -> None:
    answer = lamarck("cluster", "down", "--hosts", "b")
    assert (answer.out, answer.err) == ("cluster default: ended on this machine, b\n", "")
    assert calls == [("default", ("b",))]
    answer = lamarck("cluster", "down", "--hosts", "b,dead")
    assert (answer.status, answer.out) == (0, "cluster default: ended on this machine, b\n")
    assert answer.err == "lamarck: dead: no answer\n"
