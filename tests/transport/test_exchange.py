"""Work to workers by name and results back: order, bounds, who is there, and what a lost connection costs."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest
from waiting import wait_until

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport import JobKeys, Message
from lamarckian_cli.transport.exchange import Exchange, ExchangeWorker

DEADLINE_S = 20.0


class Ends:
    """Opens both kinds of ends, and closes them after the test."""

    def __init__(self, uri: str, keys: JobKeys | None, stack: ExitStack) -> None:
        self._stack, self.keys = stack, keys
        self.exchange = stack.enter_context(closing(Exchange(uri, keys=keys)))

    def worker(self, name: str) -> ExchangeWorker:
        keys = None if self.keys is None else self.keys.for_clients()
        made = ExchangeWorker(self.exchange.uri, name=name, keys=keys, timeout_s=DEADLINE_S)
        return self._stack.enter_context(closing(made))


@pytest.fixture(params=["ipc", "tcp"])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    folder = Path(tempfile.mkdtemp(prefix="exchange-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if request.param == "ipc":
            yield Ends(f"ipc://{folder}/work", None, stack)
        else:
            yield Ends("tcp://127.0.0.1:0", JobKeys.make(), stack)


def work(number: int) -> Message:
    return Message("work", {"number": number}, (np.full((2, 3), number, np.float64),))


def number(message: Message | None) -> int:
    assert message is not None
    assert np.array_equal(message.arrays[0], np.full((2, 3), message.header["number"]))
    return message.header["number"]


def test_each_worker_gets_its_own_in_order_and_its_results_carry_its_name(ends: Ends) -> None:
    workers = {name: ends.worker(name) for name in ("a", "b")}
    for n in range(6):
        assert ends.exchange.send("ab"[n % 2], work(n))
    for name, worker in workers.items():
        for _ in range(3):
            message = worker.receive(DEADLINE_S)
            assert message is not None
            worker.send(Message("done", {"number": number(message)}, message.arrays))
        assert worker.receive(0) is None, name
    got: dict[str, list[int]] = {"a": [], "b": []}
    for _ in range(6):
        item = ends.exchange.receive(DEADLINE_S)
        assert item is not None
        got[item[0]].append(number(item[1]))
    assert got == {"a": [0, 2, 4], "b": [1, 3, 5]}
    assert ends.exchange.receive(0) is None


def test_who_has_not_joined_or_has_left_gets_nothing(ends: Ends) -> None:
    assert not ends.exchange.send("a", work(0))
    worker = ends.worker("a")
    assert ends.exchange.present() == {"a"}
    worker.close()
    wait_until(lambda: not ends.exchange.present())
    assert not ends.exchange.send("a", work(0))
    with pytest.raises(TransportError, match="closed"):
        worker.receive(0)


def test_a_name_that_is_taken_is_refused(ends: Ends) -> None:
    ends.worker("a")
    with pytest.raises(TransportError, match="another worker has joined as 'a'"):
        ends.worker("a")


def test_results_that_nobody_asked_for_are_dropped_and_counted(ends: Ends) -> None:
    worker = ends.worker("a")
    ends.exchange.send("a", work(1))
    assert number(worker.receive(DEADLINE_S)) == 1
    worker.send(work(1))
    worker.send(work(2))
    wait_until(lambda: ends.exchange.dropped["over capacity"] == 1)
    item = ends.exchange.receive(DEADLINE_S)
    assert item is not None
    assert number(item[1]) == 1
    assert ends.exchange.receive(0) is None


class Wire:
    """Passes the bytes of TCP connections on, until it is cut; connections that are made later pass again."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):  # the other end may have gone first
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes who waits in accept()
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._ends += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def test_a_connection_that_was_made_again_is_told_of_and_works() -> None:
    keys = JobKeys.make()
    with closing(Exchange("tcp://127.0.0.1:0", keys=keys)) as exchange:
        wire = Wire(int(exchange.uri.rpartition(":")[2]))
        worker = ExchangeWorker(wire.uri, name="a", keys=keys.for_clients(), timeout_s=DEADLINE_S)
        with closing(wire), closing(worker):
            assert exchange.rejoined() == []
            wire.cut()
            names: list[str] = []
            deadline = time.monotonic() + DEADLINE_S
            while not names:
                assert time.monotonic() < deadline
                assert worker.receive(0.05) is None
                names = exchange.rejoined()
            assert names == ["a"]
            assert exchange.send("a", work(3))
            assert number(worker.receive(DEADLINE_S)) == 3
            worker.send(work(4))
            item = exchange.receive(DEADLINE_S)
            assert item is not None
            assert number(item[1]) == 4


def test_strangers_stay_outside() -> None:
    with closing(Exchange("tcp://127.0.0.1:0", keys=JobKeys.make())) as exchange:
        with pytest.raises(TransportError):
            ExchangeWorker(exchange.uri, name="a", keys=JobKeys.make().for_clients(), timeout_s=1.0)
        with pytest.raises(TransportError):
            ExchangeWorker(exchange.uri, name="a", timeout_s=1.0)
        assert not exchange.present()


def test_only_sockets_carry_it() -> None:
    for uri in ("inproc://x", "shm:///tmp/x"):
        with pytest.raises(TransportError, match="use ipc:// or tcp://"):
            Exchange(uri)
