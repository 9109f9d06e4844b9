"""What a Ray cluster's door tells: nobody there, no head, TLS on one side alone, another's certificates.

That real heads are let pass, with and without TLS and token, is seen by every training of
test_machines.py.
"""

from __future__ import annotations

import contextlib
import http.server
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lamarckian_cli.errors import ClusterError, ConfigError
from lamarckian_cli.launch import ray_probe
from lamarckian_cli.launch.clusters.secrets import Authority, ray_environment, write_private
from lamarckian_cli.launch.ray_cluster import join
from lamarckian_cli.launch.ray_probe import parse_address, probe
from lamarckian_cli.launch.settings import Cluster


@pytest.fixture(autouse=True)
def no_tls_of_ours(monkeypatch: Any) -> None:
    for name in ("RAY_USE_TLS", "RAY_TLS_CA_CERT", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY"):
        monkeypatch.delenv(name, raising=False)


# Frames as a real server of gRPC sends them to our call: settings, then headers that end the stream.
SETTINGS = bytes.fromhex("00001e040000000000") + bytes.fromhex(
    "000400400000000500400000000600004000fe0300000001000300000064"
)
OK_SO_FAR = b"\x88@\x0ccontent-type\x10application/grpc"
WANTS_TOKEN = OK_SO_FAR + b"\x00\x0bgrpc-status\x0216"
NO_SUCH_CALL = OK_SO_FAR + b"@\x0bgrpc-status\x0212"


def headers(block: bytes) -> bytes:
    return len(block).to_bytes(3, "big") + b"\x01\x05" + b"\x00\x00\x00\x01" + block


HEAD = SETTINGS + headers(WANTS_TOKEN)


@contextmanager
def door(context: ssl.SSLContext | None, answer: bytes = b"") -> Iterator[str]:
    """Somebody who answers whoever says something, with TLS or without, and then hangs up."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                caller, _ = server.accept()
                with caller, contextlib.suppress(OSError):  # the caller did not like us
                    if ended.is_set():
                        return
                    caller.settimeout(20)
                    with context.wrap_socket(caller, server_side=True) if context else caller as connection:
                        connection.recv(1000)
                        connection.sendall(answer)
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(1000):
                            pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            ended.set()
            socket.create_connection(server.getsockname()).close()
            thread.join(20)
            assert not thread.is_alive()


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


def test_an_unknown_host() -> None:
    with pytest.raises(ClusterError, match="nothing answers there"):
        probe("no-such-host.invalid:6379")


def test_a_head_without_tls_on_either_side() -> None:
    with door(None, HEAD) as address:
        probe(address)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a web server listens there, no Ray head"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", r"something else .* it says 'SSH-2\.0-OpenSSH_9\.2'"),
        (SETTINGS + headers(NO_SUCH_CALL), "a server of Ray's, or another one of gRPC, .* no Ray head"),
        (b"", "hangs up on us"),
    ],
)
def test_what_is_no_head_is_told_by_what_it_says(answer: bytes, said: str) -> None:
    with (
        door(None, answer) as address,
        pytest.raises(ClusterError, match=rf"^cluster\.address is '{address}'; .*{said}.*6379 unless"),
    ):
        probe(address)


def test_a_web_server_is_told_at_once() -> None:
    handler = http.server.SimpleHTTPRequestHandler
    handler.log_message = lambda *_: None  # type: ignore[method-assign]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        with pytest.raises(ClusterError, match="a web server listens there"):
            probe(f"127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("tls", [False, True])
def test_silence_is_given_up_after_a_while(tmp_path: Path, monkeypatch: Any, tls: bool) -> None:
    """One span of time for all: connecting, TLS, and the first words."""
    monkeypatch.setattr(ray_probe, "PROBE_S", 0.3)
    for name, value in certificates(tmp_path, Authority.new("x")).items() if tls else ():
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(
            ClusterError, match=rf"^cluster\.address is '{address}'; something .* nothing within"
        ):
            probe(address)
        assert time.monotonic() - began < 20  # Ray itself takes a minute


def test_a_message_names_the_cluster_as_it_was_given() -> None:
    with (
        door(None, b"x") as address,
        pytest.raises(ClusterError, match=r"^cluster\.address is 'mine', which"),
    ):
        probe(address, f"cluster.address is 'mine', which is {address}")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ray://node1:10001", r"Ray Client, which is not supported: .* such as node1:6379"),
        ("http://node1:8265", r"HTTP.* such as node1:6379"),
        ("node1:99999", r"port 99999 is no number from 1 to 65535: .* such as node1:6379"),
        ("node1:0", "port 0 is no number from 1"),
        ("node1:-1", "port -1 is no number"),
        ("node1:x", "port x is no number"),
        ("node1:", "the port is missing: .* such as node1:6379"),
        (":6379", "the host is missing"),
        ("-x:6379", "'-x' is no host"),
        ("a b:6379", "give auto, the name of a cluster"),
        ("", "give auto, the name of a cluster"),
    ],
)
def test_what_can_be_no_address_is_told_with_what_can(address: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"^cluster\.address is '{re.escape(address)}'; .*{said}"):
        join(Cluster(kind="auto", actors=None, address=address))


def test_an_address_of_the_environment_is_named_as_such(monkeypatch: Any) -> None:
    """Which is what `auto` means to Ray where it is set."""
    for variable in ("HOME", "RAY_ADDRESS"):
        monkeypatch.setenv(variable, "/nowhere")
    monkeypatch.setenv("RAY_ADDRESS", "ray://node1:10001")
    with pytest.raises(ConfigError, match=r"^RAY_ADDRESS is 'ray://node1:10001'"):
        join(Cluster(kind="auto", actors=None))


def test_host_and_port_of_every_kind_of_address() -> None:
    assert parse_address("node-1.example.org:6379") == ("node-1.example.org", 6379)
    assert parse_address("10.0.0.1:1") == ("10.0.0.1", 1)
    assert parse_address("[::1]:65535") == ("::1", 65535)


def test_tls_there_and_none_here(tmp_path: Path) -> None:
    with (
        door(serving(tmp_path / "there", Authority.new("x")), HEAD) as address,
        pytest.raises(ClusterError, match="it speaks TLS, and RAY_USE_TLS is not set here"),
    ):
        probe(address)


def test_tls_here_and_none_there(tmp_path: Path, monkeypatch: Any) -> None:
    for name, value in certificates(tmp_path / "here", Authority.new("x")).items():
        monkeypatch.setenv(name, value)
    with (
        door(None, HEAD) as address,
        pytest.raises(ClusterError, match="it does not speak TLS, and RAY_USE_TLS is 1"),
    ):
        probe(address)


@pytest.mark.parametrize("same", [True, False])
def test_certificates_of_one_authority_or_of_two(tmp_path: Path, monkeypatch: Any, same: bool) -> None:
    authority = Authority.new("x")
    ours = authority if same else Authority.new("y")
    for name, value in certificates(tmp_path / "here", ours).items():
        monkeypatch.setenv(name, value)
    with door(serving(tmp_path / "there", authority), HEAD) as address:
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


def test_a_certificate_of_ours_that_is_refused_is_said(tmp_path: Path, monkeypatch: Any) -> None:
    """With TLS 1.3 the refusal comes only after the handshake."""
    authority, other = Authority.new("x"), Authority.new("y")
    context = serving(tmp_path / "there", authority)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificates(tmp_path / "there", authority)["RAY_TLS_CA_CERT"])
    ours = certificates(tmp_path / "here", other)
    ours["RAY_TLS_CA_CERT"] = certificates(tmp_path / "there", authority)["RAY_TLS_CA_CERT"]
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            caller, _ = server.accept()
            with caller, pytest.raises(ssl.SSLError):
                context.wrap_socket(caller, server_side=True)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ClusterError, match="it refuses our certificate"):
            probe(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join(20)


@pytest.mark.parametrize("address", ["auto", "a-name"])
def test_what_is_no_host_and_port_is_for_others_to_find(address: str) -> None:
    probe(address)
