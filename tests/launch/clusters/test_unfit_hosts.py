"""What keeps a host out of a cluster, told before anything is started there."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest
from clusterrecords import refused, script, silent

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.clusters import record as records
from lamarckian_cli.launch.clusters.bringup import Bringup, up
from lamarckian_cli.launch.clusters.record import Node
from lamarckian_cli.launch.clusters.ssh import ask


def answers(tmp_path: Path, **changes: object) -> str:
    """A Python that answers a probe with these changes to what is true here."""
    real = ask(Node(host="", address="", python=sys.executable), "probe", timeout_s=60)
    path = tmp_path / "other-python"
    script(
        path,
        f"#!/bin/sh\necho hello from the login shell\necho 'lamarck-node {json.dumps(real | changes)}'\n",
    )
    return str(path)


def test_a_host_that_cannot_be_reached(tmp_path: Path) -> None:
    said = refused(ssh="ssh -p 1 -F none", hosts=("127.0.0.3",), user="me")
    assert said.startswith("127.0.0.3: SSH does not get there (")
    assert said.endswith("`ssh -p 1 -F none -l me 127.0.0.3 true` must work without a question")
    assert refused(ssh="no-such-program").startswith("far: no-such-program cannot be run")


def test_a_host_without_our_python(stand_in: str, tmp_path: Path) -> None:
    said = refused(ssh=stand_in, python="/no/such/python")
    assert "far: /no/such/python cannot be run there" in said
    assert "--python" in said
    empty = script(tmp_path / "python", f'#!/bin/sh\nexec "{sys.executable}" -S -E "$@"\n').strip("'")
    said = refused(ssh=stand_in, python=empty)
    assert "has no lamarckian-cli of this version" in said


@pytest.mark.parametrize("what", ["Python", "Ray", "lamarckian-cli"])
def test_a_host_with_another_version(stand_in: str, tmp_path: Path, what: str) -> None:
    versions = ask(Node(host="", address="", python=sys.executable), "probe", timeout_s=60)["versions"]
    other = answers(tmp_path, versions={**versions, what: "0.0"})
    said = refused(ssh=stand_in, python=other)
    assert said.startswith(f"far: {what} is 0.0 there and {versions[what]} here; install the same")


@pytest.mark.parametrize(
    ("free", "said"),
    [(None, "far: there is no /dev/shm"), (64 << 20, "far: /dev/shm has 64 MiB free, and 256 are needed")],
)
def test_a_host_without_shared_memory(stand_in: str, tmp_path: Path, free: int | None, said: str) -> None:
    assert refused(ssh=stand_in, python=answers(tmp_path, shared_memory_bytes=free)).startswith(said)


def test_where_native_code_crashed_is_nobodys_reason(stand_in: str, tmp_path: Path) -> None:
    python = script(
        tmp_path / "crashing",
        "#!/bin/sh\necho 'no room left' >&2\n"
        "echo '/usr/bin/python(_start+0x21) [0x558ebf7c1081] _start' >&2\nexit 1\n",
    ).strip("'")
    assert refused(ssh=stand_in, python=python) == "far: it ended with status 1: no room left"


def test_another_up_at_work_keeps_its_folder() -> None:
    records.cluster_folder("mine").mkdir(parents=True)
    with pytest.raises(ClusterError, match="is there already; another lamarck cluster up is at work"):
        up(Bringup(name="mine", here=True), silent)
    assert records.cluster_folder("mine").exists()


def test_all_hosts_that_fail_are_named(stand_in: str) -> None:
    said = refused(ssh=stand_in, python="/no/such/python", hosts=("a", "b", "c"))
    assert said.startswith("a: ")
    assert said.endswith("(2 more failed: b, c)")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"hosts": ()}, "no machine is named; give --hosts, --hosts-file, or --here"),
        ({"hosts": ("a", "b", "a")}, "--hosts names a twice"),
        ({"hosts": ("-oProxyCommand=x",)}, "which is no name of a machine"),
        ({"hosts": ("a", "localhost")}, "localhost is this machine; use --here"),
        ({"hosts": (socket.gethostname(),)}, f"{socket.gethostname()} is this machine; use --here"),
        ({"name": "../x"}, "--name is '../x'; take letters"),
    ],
)
def test_what_cannot_be_asked_for(keys: dict[str, object], said: str) -> None:
    assert said in refused(**keys)
