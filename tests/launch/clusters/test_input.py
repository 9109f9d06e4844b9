"""What `lamarck cluster` is given that cannot be: names, addresses, commands, a home folder that is none."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import psutil
import pytest
from clusterrecords import silent

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.clusters import record as records
from lamarckian_cli.launch.clusters import takedown
from lamarckian_cli.launch.clusters.bringup import Bringup, up
from lamarckian_cli.launch.clusters.names import check_own_address
from lamarckian_cli.launch.clusters.record import Node, Record, find_access
from lamarckian_cli.launch.clusters.ssh import ask


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused is refused before any machine is asked to start anything."""

    def start(*_: object) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr("lamarckian_cli.launch.clusters.bringup._start_node", start)


def refused(**keys: object) -> str:
    """What `up` says, having left nothing behind."""
    with pytest.raises(ClusterError) as caught:
        up(Bringup(**{"here": True, **keys}), silent)
    assert list(records.clusters_folder().glob("*")) == []
    return str(caught.value)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"hosts": ("a b",)}, "--hosts has 'a b', which is no name of a machine"),
        ({"hosts": ("",)}, "--hosts has '', which is no name of a machine"),
        ({"user": "-oProxyCommand=x"}, "--user is '-oProxyCommand=x', which is no name of a user"),
        ({"ssh": "'"}, '--ssh is "\'", which cannot be read as a command (no closing quotation)'),
        ({"ssh": "ssh \\"}, "which cannot be read as a command (no escaped character)"),
        ({"ssh": "  "}, "--ssh is '  '; give a command"),
        ({"ssh": "''"}, "give a command"),
        ({"python": " "}, "--python is ' '; give the path of Python"),
        ({"address": "localhost"}, "--address is 'localhost', which other machines, and Ray, do not take"),
    ],
)
def test_what_cannot_be_asked_for(keys: dict[str, object], said: str) -> None:
    assert said in refused(**keys)


@pytest.mark.parametrize("address", ["1.2.3.4", "2001:db8::1", "no.such.host.invalid", "", "x" * 300, "a b"])
def test_an_address_of_another_machine_is_refused_with_those_of_this_one(address: str) -> None:
    said = refused(address=address)
    assert said.startswith(
        f"--address is {address!r}, which is no address of this machine; this machine has "
    )
    for rows in psutil.net_if_addrs().values():
        for row in rows:
            if row.family == socket.AF_INET and not row.address.startswith("127."):
                assert row.address in said


def test_addresses_of_this_machine() -> None:
    own = [r.address for rows in psutil.net_if_addrs().values() for r in rows if r.family == socket.AF_INET]
    for address in {*own, "127.0.0.2", socket.gethostname()} - {"127.0.0.1"}:
        check_own_address(address)


# ---------------------------------------------------------------------- a home folder that is none


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "HOME is '', and no folder that is there; set it to"),
        ("relative", "HOME is 'relative', and no folder that is there"),
        ("/proc/none", "HOME is '/proc/none', and no folder that is there"),
        ("/dev/null", "HOME is '/dev/null', and no folder that is there"),
    ],
)
def test_without_a_home_folder_there_is_one_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "relative").mkdir()
    monkeypatch.setenv("HOME", given)
    for command in (
        lambda: up(Bringup(here=True, address="127.0.0.2"), silent),
        lambda: takedown.status(None),
        lambda: takedown.status("mine"),
        lambda: takedown.down("mine", (), silent),
    ):
        with pytest.raises(ClusterError) as caught:
            command()
        assert str(caught.value).startswith(said)
    # A job may still join a cluster that is nobody's record.
    assert find_access("auto") is None
    assert list((tmp_path / "relative").iterdir()) == []


def test_a_home_folder_that_cannot_be_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/proc")
    with pytest.raises(
        ClusterError, match=r"^/proc/.lamarck.* cannot be written .*; set HOME, which is '/proc'"
    ):
        up(Bringup(here=True, address="127.0.0.2"), silent)


def test_a_file_where_clusters_are_written_down(home: Path) -> None:
    (home / ".lamarck").touch()
    with pytest.raises(ClusterError, match=r"/.lamarck/clusters cannot be read .* or set HOME"):
        takedown.status(None)
    with pytest.raises(ClusterError, match=r"/.lamarck/clusters cannot be read .* or set HOME"):
        up(Bringup(here=True, address="127.0.0.2"), silent)


def test_a_machine_whose_home_cannot_be_written_to_says_so(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"  # stands in for it: runs what would run there, here
    ssh.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    ssh.chmod(0o755)
    host = Node(host="far", address="127.0.0.3", python=sys.executable, ssh=(str(ssh),))
    request = {"identity": "x", "files": {}, "address": "", "head_address": None, "port": 0, "cores": 1}
    with pytest.raises(
        ClusterError, match=r"^far: /proc/x.* cannot be written .*there, HOME must be a folder"
    ):
        ask(host, "start", {**request, "folder": "/proc/x/y/z", "timeout_s": 1.0}, timeout_s=60)


@pytest.mark.parametrize("name", ["../mine", "", ".", "a/b"])
def test_a_name_is_no_way_out_of_the_folder_of_clusters(home: Path, name: str) -> None:
    head = Node(host="", address="10.0.0.1", python=sys.executable)
    record = Record(name="mine", identity="x", state="up", address="10.0.0.1:1", created=0.0, nodes=(head,))
    records.write_record(record)
    for command in (lambda: takedown.down(name, (), silent), lambda: takedown.status(name)):
        with pytest.raises(ClusterError, match=f"--name is '{name}'; take letters"):
            command()
    assert records.read_record("mine").state == "up"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('lamarck-node {"versions": {"Python"', "it ended with status 0"),
        ("lamarck-node [1]", "it ended with status 0"),
        ("lamarck-node {}", "its answer is not that of lamarckian-cli of this version"),
        ('lamarck-node {"versions": 3}', "its answer is not that of lamarckian-cli of this version"),
    ],
)
def test_a_machine_that_answers_nonsense_is_named(tmp_path: Path, answer: str, said: str) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\ncat >/dev/null\necho '{answer}'\n")
    ssh.chmod(0o700)
    assert said in refused(hosts=("far",), ssh=str(ssh))
    assert "far: " in refused(hosts=("far",), ssh=str(ssh))


def test_an_ssh_command_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    assert f"{tmp_path} cannot be run" in refused(hosts=("far",), ssh=str(tmp_path))


@pytest.mark.parametrize("address", ["0.0.0.0", "127.1", "::"])
def test_an_address_that_others_cannot_reach_is_refused(address: str) -> None:
    assert f"--address is {address!r}, which other machines" in refused(address=address)


def test_a_record_without_machines_is_named(home: Path) -> None:
    folder = records.cluster_folder("default")
    folder.mkdir(parents=True)
    tree = {"name": "default", "identity": "x", "state": "up", "address": "a:1", "created": 0.0, "nodes": []}
    (folder / records.FILE).write_text(json.dumps(tree))
    with pytest.raises(ClusterError, match="cannot be read \\(it names no machine\\)"):
        records.read_record("default")
