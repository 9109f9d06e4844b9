"""Machines leave a cluster, by what its record and Ray say, and nothing of theirs stays."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from clusterrecords import running, script, silent

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.clusters import bringup, node, takedown
from lamarckian_cli.launch.clusters import record as records
from lamarckian_cli.launch.clusters.node import IDENTITY
from lamarckian_cli.launch.clusters.record import Node, Record, find_access

STUBBORN = """
import signal, sys
from lamarckian_cli.launch.guardian import Guardian
signal.signal(signal.SIGTERM, signal.SIG_IGN)
watched = Guardian(sys.argv[1])
print("watched", flush=True)
while True:
    signal.pause()
"""


DEAD = Node(host="127.0.0.3", address="127.0.0.3", python=sys.executable, ssh=("ssh", "-p", "1"))


def test_down_of_a_cluster_forgets_a_host_that_is_gone_and_names_it() -> None:
    record = running()
    records.write_record(dataclasses.replace(record, nodes=(*record.nodes, DEAD)))
    ended = takedown.down("mine", (), silent)
    assert psutil.pid_exists(record.head.pid)  # ours, and it carries no identity of that cluster
    assert ended.machines == ("this machine",)
    (warning,) = ended.warnings
    assert warning.startswith("127.0.0.3: SSH does not get there (")
    assert "Ray ends there by itself" in warning
    assert takedown.status(None) == []
    assert find_access("auto") is None
    assert not records.cluster_folder("mine").exists()


def test_a_host_that_is_gone_is_taken_out_of_a_cluster_that_stays() -> None:
    record = running()
    records.write_record(dataclasses.replace(record, nodes=(*record.nodes, DEAD)))
    ended = takedown.down("mine", ("127.0.0.3",), silent)
    assert ended.machines == ()
    (warning,) = ended.warnings
    assert warning.startswith("127.0.0.3: SSH does not get there (")
    assert "ends by itself once the cluster's head does" in warning
    assert "remove" not in warning  # nothing that would harm the cluster
    assert records.read_record("mine") == record
    assert find_access("auto") is not None


def test_a_head_that_does_not_end_stays_in_the_record_alone() -> None:
    record = running()
    head = dataclasses.replace(record.head, python="/no/such/python")
    records.write_record(dataclasses.replace(record, nodes=(head, DEAD)))
    with pytest.raises(ClusterError, match=r"^this machine: .* run lamarck cluster down --name mine again"):
        takedown.down("mine", (), silent)
    left = records.read_record("mine")
    assert (left.nodes, left.state) == ((head,), "ending")


def known_to_ray(tmp_path: Path, *rows: tuple[str, str], jobs: Sequence[int] = ()) -> Record:
    """A cluster whose head takes these machines, each an address and Ray's id of it, for alive.

    `jobs` run there, as processes of these numbers.
    """
    answer = {
        "jobs": [{"pid": pid, "address": "10.0.0.7"} for pid in jobs],
        "machines": [
            {"id": name, "name": "n", "address": at, "cores": 1, "gpus": 0, "alive": True, "head": False}
            for at, name in rows
        ],
    }
    python = script(tmp_path / "head", f"#!/bin/sh\necho 'lamarck-node {json.dumps(answer)}'\n").strip("'")
    record = running()
    return dataclasses.replace(record, nodes=(dataclasses.replace(record.head, python=python),))


def test_a_machine_that_was_ended_is_not_listed_although_ray_takes_it_for_alive(
    tmp_path: Path, stand_in: str
) -> None:
    record = known_to_ray(tmp_path, ("10.0.0.1", "h"), ("10.0.0.5", "a"), ("10.0.0.6", "b"))
    host = Node(host="five", address="10.0.0.5", python=sys.executable, ssh=(stand_in.strip("'"),))
    records.write_record(dataclasses.replace(record, nodes=(*record.nodes, host)))
    assert takedown.down("mine", ("five",), silent).machines == ("five",)
    rows = takedown.status("mine")[0]["machines"]
    assert [(row["host"], row["address"]) for row in rows] == [
        ("this machine", "10.0.0.1"),
        (None, "10.0.0.6"),
    ]


def test_a_cluster_is_not_ended_under_a_job_unless_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = known_to_ray(tmp_path, ("10.0.0.1", "h"), jobs=[4711])
    records.write_record(record)
    with pytest.raises(
        ClusterError,
        match=r"^1 job runs on cluster mine \(process 4711 on 10\.0\.0\.7\); end it there .* take --force$",
    ):
        takedown.down("mine", (), silent)
    assert records.read_record("mine") == record
    monkeypatch.setattr(takedown, "end", lambda *_: {})
    assert takedown.down("mine", (), silent, force=True).machines == ("this machine",)
    records.write_record(known_to_ray(tmp_path, ("10.0.0.1", "h")))
    assert takedown.down("mine", (), silent).machines == ("this machine",)


def test_up_waits_for_the_machines_that_it_was_asked_for_alone(tmp_path: Path) -> None:
    """A machine that died stays in the record, and is nobody's fault who brings up another."""
    new = Node(host="six", address="10.0.0.6", python=sys.executable)
    record = known_to_ray(tmp_path, ("10.0.0.1", "h"), ("10.0.0.6", "b"))
    record = dataclasses.replace(record, nodes=(*record.nodes, DEAD, new))
    bringup._await_all(record, [new], timeout_s=0.0)
    with pytest.raises(ClusterError, match=r"^127.0.0.3 started Ray but did not join"):
        bringup._await_all(record, [DEAD], timeout_s=0.0)
    rows = takedown._status(record)["machines"]
    assert [(row["host"], row["alive"]) for row in rows] == [
        ("this machine", True),
        ("127.0.0.3", False),
        ("six", True),
    ]


@pytest.mark.timeout(120)
def test_what_a_job_has_in_shared_memory_is_gone_when_a_machine_is_ended(tmp_path: Path) -> None:
    """Its guardian outlives a process that does not end when asked to, and ends before `stop` does."""
    folder = tmp_path / "shared"
    folder.mkdir()
    job = subprocess.Popen(
        [sys.executable, "-c", STUBBORN, str(folder)],
        env={**os.environ, IDENTITY: "x-job"},
        stdout=subprocess.PIPE,
    )
    try:
        assert job.stdout is not None
        assert job.stdout.readline() == b"watched\n"
        node.stop(folder=str(tmp_path / "a" / "b" / "c"), identity="x-job")
        assert not folder.exists()
        assert node._marked("x-job") == ([], [])
    finally:
        job.kill()
        job.communicate()
