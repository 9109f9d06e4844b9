"""The secrets and the records of clusters that are up."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
from clusterrecords import a_record, running
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.clusters import record as records
from lamarckian_cli.launch.clusters.record import Record, find_access
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


def test_what_is_left_of_a_lost_cluster_is_in_nobodys_way() -> None:
    records.write_record(a_record("a", pid=os.getpid(), started=1, port=1))
    records.write_record(running("b", port=2))
    found = find_access("auto")
    assert found is not None
    assert found.name == "b"
    with pytest.raises(ClusterError, match="a has lost its head"):
        find_access("a")


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (a_record(pid=2**22 + 1), "has lost its head: process 4194305 has ended"),
        (a_record(pid=os.getpid(), started=1), "has lost its head"),
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
