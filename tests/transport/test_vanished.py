"""Peers that go without a good-bye, or join over and over: what is kept for them stays bounded."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest
import zmq

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport import PROTOCOL, Message, encode, service
from lamarckian_cli.transport.forward import UnrollForwarder
from lamarckian_cli.transport.gather import ZmqSender

SOON_S = 0.05


@pytest.fixture
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bound ends that look for lost peers all the time."""
    monkeypatch.setattr(service, "_LOOK_EVERY_S", SOON_S)


def hello(role: str, **more: Any) -> list[bytes]:
    values = {"protocol": PROTOCOL, "job": "", "role": role, "name": "raw", "turn": 1, **more}
    return [b"HELLO", msgpack.packb(values)]


def until(place: Any, condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(place.deadline_s / 0.01)):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it did not become true in time")


def visit(place: Any, uri: str, role: str, *messages: list[bytes]) -> None:
    """Join, say this, and be gone, as a process that is killed is."""
    context = zmq.Context()
    try:
        raw = context.socket(zmq.DEALER)
        raw.linger = 0
        raw.rcvtimeo = int(place.deadline_s * 1000)
        raw.connect(uri)
        raw.send_multipart(hello(role))
        assert raw.recv_multipart()[0] == b"WELCOME"
        for message in messages:
            raw.send_multipart(message)
        raw.send_multipart(hello(role, turn=2))  # answered when all of the above was looked at
        while raw.recv_multipart()[0] != b"WELCOME":
            pass
        raw.close()
    finally:
        context.destroy(linger=0)


# ------------------------------------------------------------------ without a good-bye


def test_many_that_vanish_are_forgotten(ipc: Any, looks_often: None, unroll: Any) -> None:
    receiver, publisher = ipc.receiver(), ipc.publisher()
    sender, subscriber = ipc.sender(receiver.uri), ipc.subscriber(publisher.uri)
    for _ in range(60):
        visit(ipc, receiver.uri, "gather")
        visit(ipc, publisher.uri, "weights")
    until(ipc, lambda: receiver.senders == publisher.subscribers == 1)
    # Those that are there are not: they say nothing for many looks, and go on.
    threading.Event().wait(10 * SOON_S)
    assert receiver.senders == publisher.subscribers == 1
    assert sender.send(unroll(1), ipc.deadline_s)
    assert receiver.receive(ipc.deadline_s).header["number"] == 1
    assert subscriber.latest() == []
    assert not sender.dropped


def test_the_last_messages_of_one_that_vanished_are_taken(ipc: Any, looks_often: None, unroll: Any) -> None:
    receiver = ipc.receiver(capacity=3)
    sent = [[b"DATA", *(bytes(frame) for frame in encode(unroll(number)))] for number in range(3)]
    visit(ipc, receiver.uri, "gather", *sent)
    threading.Event().wait(10 * SOON_S)
    assert receiver.senders == 1  # for its messages are still here
    assert [receiver.receive(0.0).header["number"] for _ in range(3)] == [0, 1, 2]
    until(ipc, lambda: receiver.senders == 0)
    assert not receiver.dropped


def test_one_that_vanished_keeps_no_weights(ipc: Any, looks_often: None, weights: Any) -> None:
    """Weights that were on their way to it, and will never be confirmed, are let go."""
    publisher = ipc.publisher()
    message = weights(1, size=100_000)
    freed = threading.Event()
    weakref.finalize(message.arrays[0], freed.set)
    publisher.publish(message)
    del message
    visit(ipc, publisher.uri, "weights")
    publisher.publish(weights(2))
    assert freed.wait(ipc.deadline_s)


# ------------------------------------------------------------------ joining over and over


def test_joining_again_and_again_keeps_few_versions(ipc: Any) -> None:
    """A peer that never reads, and says HELLO again after each version."""
    publisher = ipc.publisher()
    raw = ipc.raw(zmq.DEALER)
    raw.connect(publisher.uri)
    alive: set[int] = set()
    sent = 40
    for version in range(sent):
        array = np.full(100_000, version, np.float32)
        alive.add(version)
        weakref.finalize(array, alive.discard, version)
        publisher.publish(Message("weights", {"policy": "main", "version": version}, (array,)))
        del array
        raw.send_multipart(hello("weights", turn=version + 1))
        other = ipc.subscriber(publisher.uri)  # joins after that HELLO was answered
        assert other.wait(ipc.deadline_s)[0].header["version"] == version
        other.close()
    # What ZeroMQ's thread holds of the last ones is let go a moment later.
    until(ipc, lambda: len(alive) <= 12)
    commands = []
    while raw.poll(100):
        commands.append(raw.recv_multipart())
    refused = [values for command, *values in commands if command == b"REFUSED"]
    assert len(refused) == publisher.dropped["refused"] == sent - 8
    assert "without taking the weights" in msgpack.unpackb(refused[0][0])["reason"]


def test_joining_again_is_welcome_where_weights_are_taken(ipc: Any, weights: Any) -> None:
    publisher = ipc.publisher()
    raw = ipc.raw(zmq.DEALER)
    raw.connect(publisher.uri)
    for version in range(30):
        publisher.publish(weights(version))
        raw.send_multipart(hello("weights", turn=version + 1))
        for last in (b"WELCOME", b"PIECE"):  # it was sent before, too, where it came before the HELLO
            while raw.recv_multipart()[0] != last:
                pass
        raw.send_multipart([b"TAKEN", b"main", msgpack.packb(version)])
    assert publisher.dropped["refused"] == 0


def test_joining_again_is_welcome_where_there_is_nothing_new(ipc: Any, weights: Any) -> None:
    publisher = ipc.publisher()
    publisher.publish(weights(1))
    raw = ipc.raw(zmq.DEALER)
    raw.connect(publisher.uri)
    for turn in range(30):
        raw.send_multipart(hello("weights", turn=turn, seen={"main": 1}))
        assert raw.recv_multipart()[0] == b"WELCOME"
    assert publisher.subscribers == 1


def test_who_said_good_bye_joins_as_a_new_one(ipc: Any) -> None:
    receiver = ipc.receiver()
    raw = ipc.raw(zmq.DEALER)
    raw.connect(receiver.uri)
    for frames in (hello("gather"), [b"BYE"], hello("gather", turn=2)):
        raw.send_multipart(frames)
    assert [raw.recv_multipart()[0] for _ in range(2)] == [b"WELCOME", b"REFUSED"]
    assert receiver.senders == 0


# ------------------------------------------------------------------ speaking for many


@pytest.mark.parametrize(
    ("claimed", "allowed"),
    [(1, 2), (3, 6), (4, 6), (1024, 6), (10**9, 6), (0, 2), (-5, 2), ("many", 2), (True, 2), (2.0, 2)],
)
def test_nobody_speaks_for_more_than_there_are(ipc: Any, unroll: Any, claimed: Any, allowed: int) -> None:
    receiver = ipc.receiver(capacity=2, senders=3)
    raw = ipc.raw(zmq.DEALER)
    raw.connect(receiver.uri)
    raw.send_multipart(hello("gather", senders=claimed))
    assert msgpack.unpackb(raw.recv_multipart()[1])["capacity"] == allowed
    message = [bytes(frame) for frame in encode(unroll())]
    raw.send_multipart([b"BUNDLE", msgpack.packb([len(message)] * 50), *message * 50])
    raw.send_multipart(hello("gather", senders=claimed, turn=2))
    assert msgpack.unpackb(raw.recv_multipart()[1])["under_way"] == allowed
    assert receiver.dropped == {"over capacity": 50 - allowed}


# ------------------------------------------------------------------ a forwarder that passes nothing on


@pytest.mark.parametrize("error", [TransportError("it refused us: another job"), zmq.ZMQError(zmq.ENOTSOCK)])
def test_a_forwarder_that_ended_says_so(
    curve: Any, unroll: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    receiver = curve.receiver()
    forwarder = UnrollForwarder(f"ipc://{curve.folder}/unrolls")
    try:
        forwarder.start(receiver.uri, keys=curve.keys, actors=1, name="agent", timeout_s=curve.deadline_s)
        assert forwarder.status()["messages"] == 0

        def fail(*_: Any) -> int:
            raise error

        monkeypatch.setattr(ZmqSender, "free", fail)
        sender = curve.sender(forwarder.uri, keys=None)
        assert sender.send(unroll(1), curve.deadline_s)
        until(curve, lambda: not forwarder._thread.is_alive())
        with pytest.raises(TransportError, match=f"unrolls are not passed on any more: {error}"):
            forwarder.status()
    finally:
        forwarder.close()
