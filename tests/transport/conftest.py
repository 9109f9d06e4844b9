"""Places to open channels at: one for each implementation, torn down with everything in it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import zmq

from lamarckian_cli import transport
from lamarckian_cli.transport import JobKeys, Message

DEADLINE_S = 20.0
"""Far beyond what anything here takes; it only ends a test that would hang."""

End = TypeVar("End")


class Place:
    """Opens ends of channels at addresses of one scheme and closes them after the test."""

    deadline_s = DEADLINE_S

    def __init__(self, scheme: str, folder: Path, keys: JobKeys | None, stack: ExitStack) -> None:
        self.scheme, self.folder, self.keys, self._stack = scheme, folder, keys, stack

    def uri(self, name: str) -> str:
        scheme = "ipc" if self.scheme == "shm" and name.startswith("gather") else self.scheme
        return {
            "inproc": f"inproc://{self.folder.name}-{name}",
            "shm": f"shm://{self.folder}/{name}",
            "ipc": f"ipc://{self.folder}/{name}",
            "tcp": "tcp://127.0.0.1:0",
        }[scheme]

    def receiver(self, uri: str = "", **options: Any) -> Any:
        return self._kept(transport.bind_gather(uri or self.uri("gather"), keys=self.keys, **options))

    def sender(self, uri: str, **options: Any) -> Any:
        options = {"timeout_s": DEADLINE_S, "keys": self.keys} | options
        return self._kept(transport.connect_gather(uri, **options))

    def publisher(self, uri: str = "", **options: Any) -> Any:
        return self._kept(transport.bind_weights(uri or self.uri("weights"), keys=self.keys, **options))

    def subscriber(self, uri: str, **options: Any) -> Any:
        options = {"timeout_s": DEADLINE_S, "keys": self.keys} | options
        return self._kept(transport.connect_weights(uri, **options))

    def raw(self, kind: int, **options: Any) -> zmq.Socket[bytes]:
        """A plain ZeroMQ socket, for peers that do not keep to our protocol."""
        context = zmq.Context()
        self._stack.callback(context.term)
        socket = context.socket(kind)
        socket.linger = 0
        socket.rcvtimeo = int(DEADLINE_S * 1000)
        self._stack.callback(socket.close)
        for option, value in options.items():
            setattr(socket, option, value)
        return socket

    def fake(self, name: str) -> tuple[zmq.Socket[bytes], str]:
        """A bound end that the test plays by hand, and its URI; ipc only."""
        self._stack.callback(self.folder.joinpath(name).unlink)
        socket = self.raw(zmq.ROUTER)
        socket.bind(self.uri(name))
        return socket, self.uri(name)

    def _kept(self, end: End) -> End:
        return self._stack.enter_context(closing(end))  # type: ignore[type-var]


def _place(scheme: str, keys: JobKeys | None) -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="lamarck-"))  # short: a socket's path is limited
    try:
        with ExitStack() as stack:
            yield Place(scheme, folder, keys, stack)
        assert not list(folder.iterdir()), "socket files were left behind"
    finally:
        shutil.rmtree(folder)


@pytest.fixture(params=["inproc", "shm", "ipc", "tcp"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Each implementation in turn; tcp with keys."""
    yield from _place(request.param, JobKeys.make() if request.param == "tcp" else None)


@pytest.fixture(params=["ipc", "tcp"])
def sockets(request: pytest.FixtureRequest) -> Iterator[Place]:
    """The implementations that cross processes; tcp with keys."""
    yield from _place(request.param, JobKeys.make() if request.param == "tcp" else None)


@pytest.fixture
def ipc() -> Iterator[Place]:
    """Socket files without keys: where a test can speak the protocol by hand."""
    yield from _place("ipc", None)


@pytest.fixture
def curve() -> Iterator[Place]:
    """tcp with keys."""
    yield from _place("tcp", JobKeys.make())


@pytest.fixture
def unroll() -> Any:
    """Makes small unrolls that can be told apart."""

    def make(number: int = 0, size: int = 8) -> Message:
        return Message("unroll", {"number": number}, (np.full(size, number, np.float32), np.array(True)))

    return make


@pytest.fixture
def weights() -> Any:
    """Makes weights of a policy and version."""

    def make(version: int, policy: str = "main", size: int = 8) -> Message:
        return Message(
            "weights", {"policy": policy, "version": version}, (np.full(size, version, np.float32),)
        )

    return make
