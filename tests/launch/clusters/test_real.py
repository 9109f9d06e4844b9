"""Clusters that are brought up for real: here, and over a real sshd on loopback."""

from __future__ import annotations

import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from clusterrecords import processes_of_clusters, refused, script, silent
from sshserver import SSHD, ssh_server

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.clusters import record as records
from lamarckian_cli.launch.clusters import takedown
from lamarckian_cli.launch.clusters.bringup import Bringup, up
from lamarckian_cli.launch.clusters.record import find_access
from lamarckian_cli.launch.clusters.secrets import (
    CERTIFICATE,
    KEY,
    TOKEN,
)
from lamarckian_cli.launch.clusters.ssh import ask

needs_sshd = pytest.mark.skipif(SSHD is None, reason="there is no sshd: apt install openssh-server")


JOIN = """
import os
from lamarckian_cli.launch.clusters.record import find_access
access = find_access({address!r})
os.environ.update(access.environment)
import ray
ray.init(address=access.address, log_to_driver=False, configure_logging=False)
where = [node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]
print("JOINED", access.name, sorted(where), ray.get(ray.remote(lambda: 6 * 7).remote()))
"""


def handshake(address: str, environment: dict[str, str], *, with_certificate: bool) -> bool:
    """Whether the head, whose own certificate must be of the authority, talks TLS with us."""
    host, _, port = address.partition(":")
    context = ssl.create_default_context(cafile=environment["RAY_TLS_CA_CERT"])
    context.set_alpn_protocols(["h2"])
    if with_certificate:
        context.load_cert_chain(environment["RAY_TLS_SERVER_CERT"], environment["RAY_TLS_SERVER_KEY"])
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=host) as wrapped,
    ):
        try:
            return len(wrapped.recv(1)) == 1  # HTTP/2's settings, or an alert
        except ssl.SSLError:
            return False


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_up_here_join_status_lose_the_head_and_down(home: Path) -> None:
    record = up(Bringup(name="one", here=True, cores=1, address="127.0.0.2", timeout_s=120.0), silent)
    try:
        assert record.state == "up"
        (found,) = takedown.status(None)
        (machine,) = found["machines"]
        assert machine["alive"]
        assert (machine["host"], machine["cores"], machine["address"]) == ("this machine", 1, "127.0.0.2")
        done = subprocess.run(
            [sys.executable, "-c", JOIN.format(address="auto")], capture_output=True, text=True, timeout=120
        )
        assert "JOINED one ['127.0.0.2'] 42" in done.stdout, done.stderr
        with pytest.raises(ClusterError, match="is up already, of 1 machine"):
            up(Bringup(name="one", here=True), silent)
        access = find_access("one")
        assert access is not None
        other = home / "another token"
        other.write_text("0" * 64)
        environment = access.environment | {"RAY_AUTH_TOKEN_PATH": str(other)}
        with pytest.raises(ClusterError, match="refuses the token in"):
            ask(record.head, "machines", {"address": record.address}, timeout_s=60, environment=environment)
        assert handshake(record.address, access.environment, with_certificate=True)
        assert not handshake(record.address, access.environment, with_certificate=False)
        head = psutil.Process(record.head.pid)
        head.kill()
        psutil.wait_procs([head], timeout=10)
        with pytest.raises(ClusterError, match="has lost its head"):
            find_access("auto")
        (found,) = takedown.status(None)
        assert found["state"] == "lost"
        assert [row["alive"] for row in found["machines"]] == [False]
        assert "has ended" in found["error"]
    finally:
        takedown.down("one", (), silent)
    assert not processes_of_clusters()
    assert takedown.status(None) == []
    assert find_access("auto") is None
    assert list((home / ".lamarck" / "clusters").iterdir()) == []
    assert not psutil.pid_exists(record.head.pid)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "sshd"
    folder.mkdir()
    with ssh_server(folder, ["127.0.0.3", "127.0.0.4"]) as command:
        yield command


@needs_sshd
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_hosts_over_ssh_join_later_and_leave(hosts: str, tmp_path: Path) -> None:
    there = tmp_path / "sshd" / "home" / ".lamarck" / "clusters" / "two"
    asked = Bringup(
        name="two", hosts=("127.0.0.3",), cores=1, address="127.0.0.2", ssh=hosts, timeout_s=120.0
    )
    record = up(asked, silent)
    try:
        rows = takedown.status("two")[0]["machines"]
        assert [(r["host"], r["cores"], r["alive"]) for r in rows] == [
            ("this machine", 0, True),  # without --here it has the head alone
            ("127.0.0.3", 1, True),
        ]
        secrets = there / "nodes" / "127.0.0.3"
        assert stat.S_IMODE(there.stat().st_mode) == stat.S_IMODE(secrets.stat().st_mode) == 0o700
        assert all(stat.S_IMODE((secrets / f).stat().st_mode) == 0o600 for f in (TOKEN, KEY, CERTIFICATE))
        assert not list(there.rglob("ca-key.pem"))  # the authority's key stays here
        up(Bringup(name="two", hosts=("127.0.0.4",), cores=1, ssh=hosts), silent)
        done = subprocess.run(
            [sys.executable, "-c", JOIN.format(address="two")], capture_output=True, text=True, timeout=120
        )
        assert "JOINED two ['127.0.0.2', '127.0.0.3', '127.0.0.4'] 42" in done.stdout, done.stderr
        with pytest.raises(ClusterError, match=r"127.0.0.4, which cluster two has already"):
            up(Bringup(name="two", hosts=("127.0.0.4",), ssh=hosts), silent)
        with pytest.raises(ClusterError, match=r"--hosts has 127.0.0.9, which cluster two has not"):
            takedown.down("two", ("127.0.0.9",), silent)
        assert takedown.down("two", ("127.0.0.3",), silent).machines == ("127.0.0.3",)
        assert not (there / "nodes" / "127.0.0.3").exists()
        assert [r["host"] for r in takedown.status("two")[0]["machines"]] == ["this machine", "127.0.0.4"]
    finally:
        takedown.down("two", (), silent)
    assert not processes_of_clusters()
    assert not there.exists()
    assert not records.cluster_folder("two").exists()
    assert not psutil.pid_exists(record.head.pid)


@needs_sshd
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_host_that_fails_takes_all_down_again(hosts: str, tmp_path: Path) -> None:
    failing = script(
        tmp_path / "python",
        f'#!/bin/sh\n[ "$4" = start ] && echo "no room left" >&2 && exit 3\nexec "{sys.executable}" "$@"\n',
    ).strip("'")
    said = refused(hosts=("127.0.0.3",), ssh=hosts, python=failing, cores=1)
    assert said == "127.0.0.3: it ended with status 3: no room left"
