"""What tests of `lamarck cluster` share: records of clusters, and what stays of real ones."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.clusters import record as records
from lamarckian_cli.launch.clusters.bringup import Bringup, up
from lamarckian_cli.launch.clusters.node import IDENTITY
from lamarckian_cli.launch.clusters.record import Node, Record
from lamarckian_cli.launch.guardian import ticks_of


def silent(_: str) -> None:
    """Nobody watches."""


def a_record(
    name: str = "mine", *, pid: int = 0, started: int = 0, state: str = "up", port: int = 1
) -> Record:
    node = Node(host="", address="10.0.0.1", python=sys.executable, pid=pid, started=started)
    return Record(
        name=name, identity="x", state=state, address=f"10.0.0.1:{port}", created=0.0, nodes=(node,)
    )


def running(name: str = "mine", **keys: object) -> Record:
    """The record of a cluster whose head is this very process."""
    return a_record(name, pid=os.getpid(), started=ticks_of(os.getpid()), **keys)


def processes_of_clusters() -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if IDENTITY in process.environ() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline())[:100])
        except psutil.Error:
            continue
    return found


def script(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return f"'{path}'"


def refused(**keys: object) -> str:
    """What `up` says, having left nothing behind."""
    with pytest.raises(ClusterError) as caught:
        up(Bringup(**{"hosts": ("far",), "address": "127.0.0.2", **keys}), silent)
    assert list(records.clusters_folder().glob("*")) == []
    assert not processes_of_clusters()
    return str(caught.value)
