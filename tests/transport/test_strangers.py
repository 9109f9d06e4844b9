"""Peers that do not keep to the protocol, and peers that have no business here at all."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import msgpack
import numpy as np
import pytest
import zmq
from waiting import wait_until

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport import (
    PROTOCOL,
    JobKeys,
    Limits,
    Message,
    connect_gather,
    connect_weights,
    encode,
)


def _hello(**changes: Any) -> list[bytes]:
    values = {"protocol": PROTOCOL, "job": "", "role": "gather", "name": "raw", "turn": 1}
    return [b"HELLO", msgpack.packb(values | changes)]


# ------------------------------------------------------------------ without the keys


def test_without_keys_nobody_gets_in(curve: Any, unroll: Any) -> None:
    receiver = curve.receiver()
    with pytest.raises(TransportError, match=r"did not answer.*but not with the keys of this job"):
        connect_gather(receiver.uri, timeout_s=0.3)
    raw = curve.raw(zmq.DEALER, immediate=1)
    raw.connect(receiver.uri)
    with pytest.raises(zmq.Again):
        raw.send_multipart(_hello(), zmq.NOBLOCK)
    _only_ours_arrives(curve, receiver, unroll)


def test_with_keys_of_ones_own_nobody_gets_in(curve: Any, unroll: Any) -> None:
    """The server's public key alone is no ticket: the client's key has to be on the list."""
    receiver, publisher = curve.receiver(), curve.publisher()
    own = JobKeys.make()
    forged = JobKeys.from_dict(
        {**own.to_dict(), "job": curve.keys.job, "server_public": curve.keys.server_public}
    )
    for connect, uri in ((connect_gather, receiver.uri), (connect_weights, publisher.uri)):
        with pytest.raises(TransportError, match="refused our keys"):
            connect(uri, keys=forged, timeout_s=curve.deadline_s)  # type: ignore[operator]
    assert receiver.dropped["stranger"] >= 1
    _only_ours_arrives(curve, receiver, unroll)


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 500, b"\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL"]
)
def test_strangers_who_come_no_further_than_the_door_count(curve: Any, unroll: Any, sent: bytes) -> None:
    receiver = curve.receiver()
    with socket.create_connection(("127.0.0.1", int(receiver.uri.rpartition(":")[2]))) as stranger:
        stranger.sendall(sent)
        with suppress(OSError):  # it has been hung up on
            stranger.shutdown(socket.SHUT_WR)
        wait_until(lambda: receiver.dropped["stranger"], curve.deadline_s)
    _only_ours_arrives(curve, receiver, unroll)
    assert receiver.dropped["stranger"] == 1


def test_a_learner_with_other_keys_is_not_believed(curve: Any) -> None:
    receiver = curve.receiver()
    other = JobKeys.from_dict({**curve.keys.to_dict(), "server_public": JobKeys.make().server_public})
    with pytest.raises(TransportError, match="did not answer"):
        connect_gather(receiver.uri, keys=other, timeout_s=0.3)


def test_stray_bytes_are_no_message(sockets: Any, unroll: Any) -> None:
    receiver = sockets.receiver()
    family, address = socket.AF_UNIX, receiver.uri.removeprefix("ipc://")
    if sockets.scheme == "tcp":
        family, address = socket.AF_INET, ("127.0.0.1", int(receiver.uri.rpartition(":")[2]))
    with socket.socket(family, socket.SOCK_STREAM) as stray:
        stray.connect(address)
        stray.sendall(b"GET / HTTP/1.1\r\n\r\n" + b"\xff" * 500)
    _only_ours_arrives(sockets, receiver, unroll)


def _only_ours_arrives(place: Any, receiver: Any, unroll: Any) -> None:
    sender = place.sender(receiver.uri)
    assert sender.send(unroll(77), place.deadline_s)
    assert receiver.receive(place.deadline_s).header["number"] == 77
    assert receiver.receive(0.0) is None


# ------------------------------------------------------------------ bad manners at the receiver


def test_bad_messages_are_dropped_and_counted(ipc: Any, unroll: Any) -> None:
    receiver = ipc.receiver(capacity=50, limits=Limits(frame_bytes=1000, message_bytes=1500, arrays=3))
    raw = ipc.raw(zmq.DEALER)
    raw.connect(receiver.uri)
    raw.send_multipart([b"DATA", *encode(unroll())])  # before joining
    raw.send_multipart(_hello())
    assert raw.recv_multipart()[0] == b"WELCOME"
    head, array, flag = (bytes(frame) for frame in encode(unroll()))
    wide = [np.zeros(900, np.uint8)] * 2
    for frames in (
        [b"DATA"],
        [b"DATA", b"\xc1garbage"],
        [b"DATA", head, array[:-1], flag],
        [b"DATA", head, array],
        [b"DATA", head, array, flag, flag],
        [b"DATA", *encode(Message("unroll", {}, tuple(wide)))],
        [b"DATA", *encode(Message("unroll", {}, (np.zeros(1),) * 4))],
        [b"DATA", head.replace(b"<f4", b">f4"), array, flag],
        [b"NONSENSE", head],
        [b"x" * 100, head],
        [b""],
        [b"HELLO"],
        [b"HELLO", b"\xc1"],
        [b"HELLO", b"\x01"],
    ):
        raw.send_multipart(frames)
    raw.send_multipart([b"DATA", head, array, flag])
    assert receiver.receive(ipc.deadline_s).kind == "unroll"
    assert receiver.receive(0.0) is None
    assert receiver.dropped == {
        "not joined": 1,
        "frames": 3,
        "garbled": 7,
        "truncated": 1,
        "oversized": 2,
        "dtype": 1,
    }
    assert ipc.sender(receiver.uri).send(unroll(), 0.0)
    assert receiver.receive(ipc.deadline_s)


def test_noise_after_joining_stops_nobody(ipc: Any, unroll: Any, weights: Any) -> None:
    receiver, publisher = ipc.receiver(), ipc.publisher()
    publisher.publish(weights(1))
    rng = np.random.default_rng(0)
    odd = [
        _hello(turn=[[[1]]])[1],
        _hello(role="weights", seen={b"\xff": None}, turn=2)[1],
        _hello(job=[1])[1],
    ]
    bodies = [b"", b"\x80", *odd, b"\x81\xa4turn\xd4\x05x", *encode(unroll())]
    for end, role in ((receiver, "gather"), (publisher, "weights")):
        raw = ipc.raw(zmq.DEALER)
        raw.connect(end.uri)
        raw.send_multipart(_hello(role=role))
        for _ in range(300):
            command = rng.choice([b"HELLO", b"DATA", b"TAKEN", b"", b"WELCOME", b"REFUSED"])
            noise = [bodies[n] for n in rng.integers(len(bodies), size=2)] + [rng.bytes(9)]
            frames = [noise[n] for n in rng.permutation(3)[: rng.integers(4)]]
            raw.send_multipart([bytes(command), *frames])
        raw.send_multipart([b"BYE", b"\xff"])
    assert ipc.subscriber(publisher.uri).wait(ipc.deadline_s)[0].header["version"] == 1
    sender = ipc.sender(receiver.uri)
    assert sender.send(unroll(9), ipc.deadline_s)
    while receiver.receive(ipc.deadline_s).header["number"] != 9:
        pass  # by chance some of the noise was a message
    assert receiver.dropped["garbled"] > 50


def test_more_than_agreed_is_dropped_and_counted(ipc: Any, unroll: Any) -> None:
    receiver = ipc.receiver(capacity=2)
    raw = ipc.raw(zmq.DEALER)
    raw.connect(receiver.uri)
    raw.send_multipart(_hello())
    for number in range(5):
        raw.send_multipart([b"DATA", *encode(unroll(number))])
    raw.send_multipart(_hello(turn=2))  # answered after all of the above was looked at
    assert [msgpack.unpackb(raw.recv_multipart()[1])["under_way"] for _ in range(2)] == [0, 2]
    assert receiver.dropped == {"over capacity": 3}
    assert [receiver.receive(0.0).header["number"] for _ in range(2)] == [0, 1]
    assert receiver.receive(0.0) is None


def test_a_sender_is_told_when_its_message_is_too_large(sockets: Any, unroll: Any) -> None:
    receiver = sockets.receiver(limits=Limits(frame_bytes=1000))
    sender = sockets.sender(receiver.uri)
    with pytest.raises(TransportError, match="4000 bytes; the limit is 1000"):
        sender.send(unroll(size=1000), 0.0)
    assert sender.send(unroll(5), 0.0)
    assert receiver.receive(sockets.deadline_s).header["number"] == 5


def test_a_frame_beyond_the_limit_ends_the_connection_only(ipc: Any, unroll: Any) -> None:
    """Not even memory is reserved for it; whoever else is joined does not notice."""
    receiver = ipc.receiver(limits=Limits(frame_bytes=1000))
    sender = ipc.sender(receiver.uri)
    raw = ipc.raw(zmq.DEALER)
    events = raw.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    raw.connect(receiver.uri)
    raw.send_multipart(_hello())
    assert raw.recv_multipart()[0] == b"WELCOME"
    raw.send_multipart([b"DATA", bytes(5000)])
    assert events.poll(ipc.deadline_s * 1000)
    raw.disable_monitor()
    events.close()
    assert sender.send(unroll(6), 0.0)
    assert receiver.receive(ipc.deadline_s).header["number"] == 6
    assert receiver.receive(0.0) is None


# ------------------------------------------------------------------ the handshake


def test_different_protocols_tell_each_other(ipc: Any) -> None:
    receiver = ipc.receiver()
    raw = ipc.raw(zmq.DEALER)
    raw.connect(receiver.uri)
    raw.send_multipart(_hello(protocol=999))
    command, values = raw.recv_multipart()
    assert command == b"REFUSED"
    reason = msgpack.unpackb(values)["reason"]
    assert f"protocol {PROTOCOL}" in reason
    assert "protocol 999" in reason
    assert receiver.dropped == {"refused": 1}


def test_a_hello_without_a_turn_is_refused(ipc: Any) -> None:
    """The answer repeats the turn, so it has to be something that can be repeated."""
    receiver = ipc.receiver()
    raw = ipc.raw(zmq.DEALER)
    raw.connect(receiver.uri)
    raw.send_multipart(_hello(turn=[1]))
    command, values = raw.recv_multipart()
    assert command == b"REFUSED"
    assert "turn" in msgpack.unpackb(values)["reason"]


@pytest.mark.parametrize("connect", [connect_gather, connect_weights])
def test_a_refusal_is_shown(ipc: Any, connect: Any) -> None:
    raw, uri = ipc.fake("old")
    with _joining(connect, uri, ipc.deadline_s) as joining:
        peer, command, values = raw.recv_multipart()
        assert command == b"HELLO"
        assert msgpack.unpackb(values)["protocol"] == PROTOCOL
        raw.send_multipart([peer, b"REFUSED", msgpack.packb({"reason": "it speaks protocol 0"})])
    with pytest.raises(TransportError, match="refused us: it speaks protocol 0"):
        joining.result(0)


def test_a_peer_that_says_nothing_runs_into_the_deadline(ipc: Any) -> None:
    _, uri = ipc.fake("mute")
    for connect in (ipc.sender, ipc.subscriber):
        with pytest.raises(
            TransportError, match=r"mute did not answer within 0\.05 s; check that the learner"
        ):
            connect(uri, timeout_s=0.05)


# ------------------------------------------------------------------ bad manners at the subscriber


def test_replayed_weights_are_dropped_and_counted(ipc: Any, weights: Any) -> None:
    raw, uri = ipc.fake("weights")
    with _joining(connect_weights, uri, ipc.deadline_s) as joining:
        peer, _, values = raw.recv_multipart()
        raw.send_multipart([peer, b"WELCOME", msgpack.packb({"turn": msgpack.unpackb(values)["turn"]})])
    subscriber = joining.result(0)
    try:
        half = Message("weights", {"policy": "main", "version": 6}, (np.zeros(4096, np.float32),))
        for frames in (
            *_stream(weights(5)),
            *_stream(weights(5)),
            *_stream(weights(3)),
            [b"BEGIN", b"main", b"\xc1"],
            *_stream(Message("weights", {"policy": "main"}), version=9),
            *_stream(weights(9), policy="other"),
            [b"BEGIN", b"main", msgpack.packb([9, encode(weights(9))[0], [10**12], 4096])],
            [b"PIECE", b"main", b"without a beginning"],
            _stream(half)[0],
            [b"PIECE", b"main", b"too short"],
            *_stream(weights(1, "other")),
        ):
            raw.send_multipart([peer, *frames])
        raw.send_multipart([peer, b"NONSENSE"])
        got: list[Any] = []
        while ("other", 1) not in got:
            messages = subscriber.wait(ipc.deadline_s)
            assert messages
            got += [(m.header["policy"], m.header["version"]) for m in messages]
        assert got == [("main", 5), ("other", 1)]
        assert subscriber.dropped == {
            "replayed": 2,
            "garbled": 1,
            "header": 2,
            "oversized": 1,
            "truncated": 1,
        }
        # The publisher may go on after each of them: none of them blocks the channel.
        answers = [raw.recv_multipart()[1:] for _ in range(5)]
        assert answers == [
            [b"TAKEN", policy, msgpack.packb(version)]
            for policy, version in ((b"main", 5), (b"main", 5), (b"main", 3), (b"main", 6), (b"other", 1))
        ]
    finally:
        subscriber.close()


def test_subscribers_with_bad_manners_harm_nobody(ipc: Any, weights: Any) -> None:
    publisher = ipc.publisher()
    publisher.publish(weights(1))
    raw = ipc.raw(zmq.DEALER)
    raw.connect(publisher.uri)
    raw.send_multipart([b"TAKEN", b"main"])
    raw.send_multipart(_hello(role="weights", seen={"main": "new", "\udc80".encode(errors="replace"): 1}))
    assert raw.recv_multipart()[0] == b"WELCOME"
    assert raw.recv_multipart()[:2] == [b"BEGIN", b"main"]
    assert raw.recv_multipart()[:2] == [b"PIECE", b"main"]
    for frames in (
        [b"TAKEN"],
        [b"TAKEN", b"\xff"],
        [b"TAKEN", b"unknown", msgpack.packb(1)],
        [b"DATA", b"main"],
    ):
        raw.send_multipart(frames)
    raw.send_multipart(_hello(role="weights", seen=7, turn=2))
    assert raw.recv_multipart()[0] == b"WELCOME"
    assert publisher.dropped == {"garbled": 5}
    assert ipc.subscriber(publisher.uri).wait(ipc.deadline_s)[0].header["version"] == 1


def _stream(message: Message, **announced: Any) -> list[list[bytes]]:
    """A message of weights as a publisher sends it, in one piece an array."""
    head, *arrays = encode(message)
    values = {"policy": message.header["policy"], "version": message.header.get("version")} | announced
    sizes = [memoryview(array).nbytes for array in arrays]
    policy = values["policy"].encode()
    begin = [b"BEGIN", policy, msgpack.packb([values["version"], bytes(head), sizes, 1 << 20])]
    return [begin, *([b"PIECE", policy, bytes(array)] for array in arrays)]


@contextmanager
def _joining(connect: Any, uri: str, timeout_s: float) -> Iterator[Future[Any]]:
    """Runs a join in a thread while the test plays the other end by hand."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(connect, uri, timeout_s=timeout_s)
