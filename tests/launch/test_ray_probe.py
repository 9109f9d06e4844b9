"""What a Ray cluster's door tells: nobody there, TLS on one side alone, certificates of another cluster."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.clusters.secrets import Authority, ray_environment, write_private
from lamarckian_cli.launch.ray_probe import probe


@pytest.fixture(autouse=True)
def no_tls_of_ours(monkeypatch: Any) -> None:
    for name in ("RAY_USE_TLS", "RAY_TLS_CA_CERT", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def door(context: ssl.SSLContext | None) -> Iterator[str]:
    """Somebody who answers one caller, with TLS or by hanging up on what is no HTTP/2."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)

        def answer() -> None:
            caller, _ = server.accept()
            caller.settimeout(20)
            with caller:
                try:
                    if context is None:
                        caller.recv(1000)
                    else:
                        context.wrap_socket(caller, server_side=True).close()
                except OSError:
                    pass  # the caller did not like us

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(20)


def certificates(folder: Path, authority: Authority) -> dict[str, str]:
    write_private(folder, authority.issue(["127.0.0.1"]))
    return {name: value for name, value in ray_environment(folder).items() if "AUTH" not in name}


def serving(folder: Path, authority: Authority) -> ssl.SSLContext:
    files = certificates(folder, authority)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files["RAY_TLS_SERVER_CERT"], files["RAY_TLS_SERVER_KEY"])
    return context


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ClusterError, match=rf"'127.0.0.1:{port}'; nothing answers there .*refused.*firewall"):
        probe(f"127.0.0.1:{port}")


def test_an_unknown_host_and_an_impossible_port() -> None:
    for address in ("no-such-host.invalid:6379", "127.0.0.1:99999"):
        with pytest.raises(ClusterError, match="nothing answers there"):
            probe(address)


def test_without_tls_on_either_side() -> None:
    with door(None) as address:
        probe(address)


def test_tls_there_and_none_here(tmp_path: Path) -> None:
    with (
        door(serving(tmp_path / "there", Authority.new("x"))) as address,
        pytest.raises(ClusterError, match="it speaks TLS, and RAY_USE_TLS is not set here"),
    ):
        probe(address)


def test_tls_here_and_none_there(tmp_path: Path, monkeypatch: Any) -> None:
    for name, value in certificates(tmp_path / "here", Authority.new("x")).items():
        monkeypatch.setenv(name, value)
    with (
        door(None) as address,
        pytest.raises(ClusterError, match="it does not speak TLS, and RAY_USE_TLS is 1"),
    ):
        probe(address)


@pytest.mark.parametrize("same", [True, False])
def test_certificates_of_one_authority_or_of_two(tmp_path: Path, monkeypatch: Any, same: bool) -> None:
    authority = Authority.new("x")
    ours = authority if same else Authority.new("y")
    for name, value in certificates(tmp_path / "here", ours).items():
        monkeypatch.setenv(name, value)
    with door(serving(tmp_path / "there", authority)) as address:
        if same:
            probe(address)
        else:
            with pytest.raises(ClusterError, match=r"of another authority than ours.*clock that differs"):
                probe(address)


def test_files_that_are_not_there(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    monkeypatch.setenv("RAY_TLS_CA_CERT", str(tmp_path / "ca.pem"))
    with door(None) as address, pytest.raises(ClusterError, match=r"RAY_TLS_CA_CERT is '.*ca.pem'; set"):
        probe(address)


@pytest.mark.parametrize("address", ["auto", "local", "ray://x"])
def test_what_is_no_host_and_port_is_rays_to_find(address: str) -> None:
    probe(address)
