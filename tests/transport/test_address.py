"""Where channels may be, and what is said about other places."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from lamarckian_cli.errors import ConfigError, TransportError
from lamarckian_cli.transport import JobKeys, bind_gather, bind_weights, connect_gather, connect_weights
from lamarckian_cli.transport.address import IPC_PATH_BYTES, parse


@pytest.mark.parametrize(
    ("uri", "complaint"),
    [
        ("", "is not an address"),
        ("localhost:5555", "is not an address"),
        ("udp://127.0.0.1:5555", "is not an address"),
        ("inproc://", "has no name"),
        ("ipc://relative/file", "full path"),
        ("ipc:///folder/", "full path"),
        ("ipc:///zero\0byte", "full path"),
        ("ipc:///" + "x" * IPC_PATH_BYTES, "has 108 bytes; a socket file may have 107"),
        ("ipc:///" + "ü" * 60, "has 121 bytes"),
        ("tcp://127.0.0.1", "needs a host and a port"),
        ("tcp://:5555", "needs a host and a port"),
        ("tcp://127.0.0.1:http", "needs a host and a port"),
        ("tcp://127.0.0.1:-1", "needs a host and a port"),
        ("tcp://127.0.0.1:65536", "port 65536"),
        ("tcp://no such host:5555", "'no such host'.*is unknown"),
    ],
)
def test_bad_addresses_are_explained(uri: str, complaint: str) -> None:
    for open_ in (bind_gather, bind_weights, connect_gather, connect_weights):
        with pytest.raises(TransportError, match=complaint):
            open_(uri)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("uri", "endpoint"),
    [
        ("tcp://127.0.0.1:0", "tcp://127.0.0.1:*"),
        ("tcp://127.0.0.1:*", "tcp://127.0.0.1:*"),
        ("tcp://localhost:80", "tcp://127.0.0.1:80"),
        ("tcp://*:80", "tcp://0.0.0.0:80"),
        ("tcp://[::1]:80", "tcp://[::1]:80"),
        ("ipc:///a/b", "ipc:///a/b"),
    ],
)
def test_endpoints(uri: str, endpoint: str) -> None:
    assert parse(uri).endpoint == endpoint


@pytest.mark.parametrize("uri", ["tcp://0.0.0.0:0", "tcp://*:0", "tcp://192.0.2.1:5555", "tcp://[::]:0"])
def test_nothing_listens_unencrypted_beyond_this_machine(uri: str) -> None:
    for bind in (bind_gather, bind_weights):
        with pytest.raises(TransportError, match="would not be encrypted; pass keys"):
            bind(uri)


def test_nothing_is_sent_unencrypted_beyond_this_machine() -> None:
    for connect in (connect_gather, connect_weights):
        with pytest.raises(TransportError, match="would not be encrypted; pass keys"):
            connect("tcp://192.0.2.1:5555", timeout_s=0.0)  # type: ignore[operator]


def test_with_keys_it_may_listen_everywhere() -> None:
    keys = JobKeys.make()
    receiver = bind_gather("tcp://0.0.0.0:0", keys=keys)
    try:
        port = receiver.uri.rpartition(":")[2]
        assert int(port) > 0
        connect_gather(f"tcp://127.0.0.1:{port}", keys=keys.for_clients(), timeout_s=20.0).close()
    finally:
        receiver.close()


def test_other_machines_addresses_cannot_be_bound() -> None:
    with pytest.raises(TransportError, match=r"cannot listen on tcp://192\.0\.2\.1:5555: .*; use"):
        bind_gather("tcp://192.0.2.1:5555", keys=JobKeys.make())


def test_a_port_to_connect_to_is_needed() -> None:
    with pytest.raises(TransportError, match="names no port"):
        connect_gather("tcp://127.0.0.1:0")


def test_the_folder_of_a_socket_file_is_made_private(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    receiver = bind_gather(f"ipc://{folder}/s")
    try:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert (folder / "s").is_socket()
    finally:
        receiver.close()
    assert not (folder / "s").exists()


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    for open_ in (bind_gather, connect_gather):
        with pytest.raises(TransportError, match=f"has mode {mode:04o}.*use a folder of your own"):
            open_(f"ipc://{folder}/s")  # type: ignore[operator]


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    tmp_path.chmod(0o700)
    with pytest.raises(TransportError, match="is not a socket"):
        bind_gather(f"ipc://{tmp_path}/notes")
    assert (tmp_path / "notes").read_text() == "mine"


def test_the_socket_file_of_a_killed_learner_is_replaced(ipc: Any, unroll: Any) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stale:
        stale.bind(f"{ipc.folder}/gather")
        stale.listen()
    receiver = ipc.receiver()
    assert receiver.uri == f"ipc://{ipc.folder}/gather"
    assert ipc.sender(receiver.uri).send(unroll(), 0.0)
    assert receiver.receive(ipc.deadline_s)


def test_a_file_in_the_way_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TransportError, match="cannot be used"):
        bind_gather(f"ipc://{tmp_path}/file/s")


def test_capacity_is_at_least_one() -> None:
    with pytest.raises(ConfigError, match="capacity is 0"):
        bind_gather("inproc://any", capacity=0)
    with pytest.raises(ConfigError, match="capacity is 0"):
        connect_gather("inproc://any", capacity=0)


def test_a_failed_bind_leaves_nothing_open(sockets: Any) -> None:
    receiver, closed = sockets.receiver(), sockets.publisher()
    closed.close()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(TransportError):
        sockets.receiver(receiver.uri)
    with pytest.raises(TransportError):
        sockets.sender(closed.uri, timeout_s=0.01)
    assert len(os.listdir("/proc/self/fd")) == before
