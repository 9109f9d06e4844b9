"""Records, secrets, and clusters that are brought up for real: here, and over a real sshd on loopback."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store
from sshserver import SSHD, ssh_server

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.clusters import bringup, node, takedown
from lamarckian_cli.launch.clusters import record as records
from lamarckian_cli.launch.clusters.bringup import Bringup, up
from lamarckian_cli.launch.clusters.node import IDENTITY
from lamarckian_cli.launch.clusters.record import Node, Record, find_access
from lamarckian_cli.launch.clusters.secrets import (
    AUTHORITY,
    CERTIFICATE,
    EXPORTS,
    KEY,
    TOKEN,
    Authority,
    main,
    new_secrets,
    write_private,
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


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "my home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return folder


def silent(_: str) -> None:
    """Nobody watches."""


def a_record(
    name: str = "mine", *, pid: int = 0, started: float = 0.0, state: str = "up", port: int = 1
) -> Record:
    node = Node(host="", address="10.0.0.1", python=sys.executable, pid=pid, started=started)
    return Record(
        name=name, identity="x", state=state, address=f"10.0.0.1:{port}", created=0.0, nodes=(node,)
    )


def running(name: str = "mine", **keys: object) -> Record:
    """The record of a cluster whose head is this very process."""
    process = psutil.Process()
    return a_record(name, pid=process.pid, started=process.create_time(), **keys)


def processes_of_clusters() -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if IDENTITY in process.environ() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline())[:100])
        except psutil.Error:
            continue
    return found


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


# ---------------------------------------------------------------------- secrets


def test_certificates_are_of_the_authority_and_for_the_addresses(tmp_path: Path) -> None:
    authority = Authority.new("mine")
    files = authority.issue(["10.1.2.3", "machine.example"])
    certificate = x509.load_pem_x509_certificate(files[CERTIFICATE].encode())
    store = Store([x509.load_pem_x509_certificate(authority.certificate.encode())])
    for name in (x509.DNSName("machine.example"), x509.DNSName("localhost")):
        PolicyBuilder().store(store).build_server_verifier(name).verify(certificate, [])
    PolicyBuilder().store(store).build_client_verifier().verify(certificate, [])
    with pytest.raises(x509.verification.VerificationError):
        PolicyBuilder().store(store).build_server_verifier(x509.DNSName("other")).verify(certificate, [])
    foreign = Store([x509.load_pem_x509_certificate(Authority.new("mine").certificate.encode())])
    with pytest.raises(x509.verification.VerificationError):
        PolicyBuilder().store(foreign).build_client_verifier().verify(certificate, [])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(a) for a in names.get_values_for_type(x509.IPAddress)} == {"10.1.2.3", "127.0.0.1"}


def test_a_machine_makes_its_own_files_of_the_secrets(tmp_path: Path) -> None:
    write_private(tmp_path / "secrets", new_secrets("mine"))
    own = tmp_path / "own place"
    main([str(tmp_path / "secrets"), str(own), "10.1.2.3", ""])
    assert {path.name for path in own.iterdir()} == {AUTHORITY, CERTIFICATE, KEY, TOKEN, EXPORTS}
    done = subprocess.run(
        [
            "bash",
            "-c",
            f". '{own / EXPORTS}'; cat \"$RAY_AUTH_TOKEN_PATH\"; echo $RAY_AUTH_MODE $RAY_USE_TLS",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == (own / TOKEN).read_text() + "token 1\n"
    assert len((own / TOKEN).read_text()) == 64


def test_files_are_for_their_owner_alone_and_written_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    write_private(folder, {"x": "1"})
    write_private(folder, {"x": "2", "y": "3"})
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"x": "2", "y": "3"}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


# ---------------------------------------------------------------------- records


def test_no_cluster_of_ours_is_no_error() -> None:
    assert find_access("auto") is None
    assert find_access("10.0.0.1:6379") is None


def test_a_cluster_is_found_by_itself_by_name_and_by_address(home: Path) -> None:
    records.write_record(running())
    found = find_access("auto")
    assert found is not None
    assert found == find_access("mine") == find_access("10.0.0.1:1")
    assert find_access("10.0.0.2:1") is None
    assert (found.name, found.address) == ("mine", "10.0.0.1:1")
    folder = home / ".lamarck" / "clusters" / "mine" / "nodes" / "this_machine"
    assert found.environment["RAY_AUTH_TOKEN_PATH"] == str(folder / "auth_token")
    assert found.environment["RAY_USE_TLS"] == "1"


def test_which_of_several_must_be_said() -> None:
    records.write_record(running("a", port=1))
    records.write_record(running("b", port=2))
    with pytest.raises(ClusterError, match=r"2 clusters are up; name one: cluster.address=a"):
        find_access("auto")
    found = find_access("b")
    assert found is not None
    assert found.address == "10.0.0.1:2"
    with pytest.raises(ClusterError, match=r"cluster.address is 'c'; .*there are: a, b"):
        find_access("c")


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (a_record(pid=2**22 + 1), "has lost its head: process 4194305 has ended"),
        (a_record(pid=os.getpid(), started=1.0), "has lost its head"),
        (running(state="starting"), "is starting, or that was cut short"),
    ],
)
def test_a_cluster_that_is_gone_is_an_error_with_a_remedy(record: Record, said: str) -> None:
    records.write_record(record)
    with pytest.raises(ClusterError, match=f"cluster mine {said}.*lamarck cluster down --name mine"):
        find_access("auto")


def test_a_record_that_cannot_be_read_says_which_file(home: Path) -> None:
    records.write_record(running())
    path = home / ".lamarck" / "clusters" / "mine" / "cluster.json"
    for text in ("", "[]", '{"name": "mine"}', path.read_text().replace('"pid"', '"pit"')):
        path.write_text(text)
        with pytest.raises(ClusterError, match="cannot be read"):
            find_access("auto")


# ---------------------------------------------------------------------- what keeps a machine out

STUBBORN = """
import signal, sys
from lamarckian_cli.launch.guardian import Guardian
signal.signal(signal.SIGTERM, signal.SIG_IGN)
watched = Guardian(sys.argv[1])
print("watched", flush=True)
while True:
    signal.pause()
"""

# Stands in for ssh: runs what would run there, here.
STAND_IN = '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n'


@pytest.fixture
def stand_in(tmp_path: Path) -> str:
    return script(tmp_path / "ssh stand-in", STAND_IN)


def script(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return f"'{path}'"


def answers(tmp_path: Path, **changes: object) -> str:
    """A Python that answers a probe with these changes to what is true here."""
    real = ask(Node(host="", address="", python=sys.executable), "probe", timeout_s=60)
    path = tmp_path / "other-python"
    script(
        path,
        f"#!/bin/sh\necho hello from the login shell\necho 'lamarck-node {json.dumps(real | changes)}'\n",
    )
    return str(path)


def refused(**keys: object) -> str:
    """What `up` says, having left nothing behind."""
    with pytest.raises(ClusterError) as caught:
        up(Bringup(**{"hosts": ("far",), "address": "127.0.0.2", **keys}), silent)
    assert list(records.clusters_folder().glob("*")) == []
    assert not processes_of_clusters()
    return str(caught.value)


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


def known_to_ray(tmp_path: Path, *rows: tuple[str, str]) -> Record:
    """A cluster whose head takes these machines, each an address and Ray's id of it, for alive."""
    answer = {
        "machines": [
            {"id": name, "name": "n", "address": at, "cores": 1, "gpus": 0, "alive": True, "head": False}
            for at, name in rows
        ]
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


# ---------------------------------------------------------------------- for real


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
