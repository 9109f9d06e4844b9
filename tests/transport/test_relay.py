"""Relays and forwarders, over real sockets with keys: what arrives below is what was sent above."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
import zmq
from waiting import wait_until

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport import (
    JobKeys,
    Message,
    bind_gather,
    bind_weights,
    connect_gather,
    connect_weights,
    encode,
    handshake,
)
from lamarckian_cli.transport.address import parse
from lamarckian_cli.transport.forward import UnrollForwarder
from lamarckian_cli.transport.relay import WeightsRelay
from lamarckian_cli.transport.service import Service

DEADLINE_S = 20.0
ANY_PORT = "tcp://127.0.0.1:0"


class Job:
    """A job's keys, and machines as folders; everything is closed at the end of the test."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.keys = JobKeys.make()
        self.folder, self._stack = folder, stack

    def kept(self, end: Any) -> Any:
        return self._stack.enter_context(closing(end))

    def learner(self) -> Any:
        return self.kept(bind_weights(ANY_PORT, keys=self.keys))

    def relay(self, name: str, parent: str = "") -> WeightsRelay:
        machine = self.folder / name
        machine.mkdir(mode=0o700, exist_ok=True)
        relay = self.kept(WeightsRelay(ANY_PORT, f"shm://{machine}/weights", keys=self.keys, name=name))
        if parent:
            relay.hang(parent)
        return relay

    def actor(self, relay: WeightsRelay) -> Any:
        return self.kept(connect_weights(relay.shared_uri, timeout_s=DEADLINE_S))


class HandFedParent:
    """A publisher that sends what the test tells it to, to whoever joined last."""

    def __init__(self, job: Job) -> None:
        self._peer = b""
        self._outgoing: deque[list[Any]] = deque()
        self._service = Service(
            parse(ANY_PORT), job.keys, handshake.WEIGHTS, max_frame_bytes=1 << 20, handler=self
        )
        self.uri = self._service.uri
        self._service.start()
        job.kept(self._service)

    def begin(self, message: Message, *, piece_bytes: int) -> list[bytes]:
        """Announce weights; the pieces that are to follow."""
        head, array = map(bytes, encode(message))
        announcement = [message.header["version"], head, [len(array)], piece_bytes]
        self.send(b"BEGIN", msgpack.packb(announcement))
        return [array[at : at + piece_bytes] for at in range(0, len(array), piece_bytes)]

    def send(self, command: bytes, content: bytes) -> None:
        self._outgoing.append([command, b"main", content])
        self._service.wake()

    def welcome(self, peer: bytes, hello: dict[str, Any]) -> dict[str, Any]:
        return {}

    def joined(self, peer: bytes) -> None:
        self._peer = peer
        self.woken()

    def arrived(self, peer: bytes, command: bytes, frames: Any) -> None:
        pass

    def left(self, peer: bytes) -> None:
        pass

    def ended(self) -> None:
        pass

    def woken(self) -> None:
        while self._peer and self._outgoing:
            self._service.send(self._peer, self._outgoing.popleft())


@pytest.fixture
def job() -> Iterator[Job]:
    folder = Path(tempfile.mkdtemp(prefix="lamarck-"))  # short: a socket's path is limited
    try:
        with ExitStack() as stack:
            yield Job(folder, stack)
    finally:
        shutil.rmtree(folder)


def of_size(version: int, size: int = 100_000, policy: str = "main") -> Message:
    header = {"policy": policy, "version": version}
    return Message("weights", header, (np.arange(size, dtype=np.float32) * version,))


def until(version: int, actor: Any, size: int = 100_000) -> list[int]:
    """Versions that an actor reads up to this one, each checked from end to end."""
    seen: list[int] = []
    while not seen or seen[-1] < version:
        news = actor.wait(DEADLINE_S)
        assert news, f"version {version} did not come; had {seen}"
        for message in news:
            seen.append(message.header["version"])
            expected = np.arange(size, dtype=np.float32) * seen[-1]
            np.testing.assert_array_equal(message.arrays[0], expected)
    return seen


def test_weights_go_down_three_layers(job: Job) -> None:
    learner = job.learner()
    relays = [job.relay(f"relay{n}", learner.uri) for n in range(2)]
    leaves = [job.relay(f"leaf{n}", relays[n % 2].uri) for n in range(4)]
    actors = [job.actor(machine) for machine in (*relays, *leaves)]
    for version in (0, 1, 2):
        learner.publish(of_size(version))
        for actor in actors:
            until(version, actor)
    size = 3 * 400_000
    # The learner pays for its own children alone, however many hang below them.
    assert 2 * size <= learner.sent_bytes <= 2 * size * 1.01


def test_a_late_machine_and_a_late_actor_get_the_newest(job: Job) -> None:
    learner = job.learner()
    learner.publish(of_size(3))
    relay = job.relay("relay", learner.uri)
    until(3, job.actor(relay))
    leaf = job.relay("leaf", relay.uri)
    assert until(3, job.actor(leaf)) == [3]


def test_every_policy_has_its_own_way(job: Job) -> None:
    learner = job.learner()
    relay = job.relay("relay", learner.uri)
    actor = job.actor(relay)
    learner.publish(of_size(5, policy="a/b: ö"))
    learner.publish(of_size(2))
    got: dict[str, int] = {}
    while len(got) < 2:
        got |= {m.header["policy"]: m.header["version"] for m in actor.wait(DEADLINE_S)}
    assert got == {"a/b: ö": 5, "main": 2}


def test_a_branch_is_hung_elsewhere_when_its_relay_dies(job: Job) -> None:
    learner = job.learner()
    lost, other = job.relay("lost", learner.uri), job.relay("other", learner.uri)
    leaf = job.relay("leaf", lost.uri)
    actor = job.actor(leaf)
    learner.publish(of_size(1))
    until(1, actor)
    lost.close()
    learner.publish(of_size(2))
    leaf.hang(other.uri)
    assert until(2, actor) == [2]
    assert leaf.status()["dropped"] == {}


def test_a_new_parent_sends_nothing_that_is_here_already(job: Job) -> None:
    learner = job.learner()
    first, second = job.relay("first", learner.uri), job.relay("second", learner.uri)
    leaf = job.relay("leaf", first.uri)
    learner.publish(of_size(1))
    until(1, job.actor(leaf))
    until(1, job.actor(second))
    leaf.hang(second.uri)
    wait_until(lambda: leaf.status()["joined"] and leaf.status()["parent"] == second.uri)
    learner.publish(of_size(2))
    until(2, job.actor(leaf))
    assert leaf.received_bytes < 2.1 * 400_000


def test_a_relay_passes_on_what_it_has_of_a_version(job: Job) -> None:
    """Cut-through: the leaf has the first piece before its relay was sent the second."""
    parent = HandFedParent(job)
    relay = job.relay("relay", parent.uri)
    leaf = job.relay("leaf", relay.uri)
    wait_until(lambda: leaf.status()["joined"])
    first, second = parent.begin(of_size(1, size=2048), piece_bytes=4096)
    parent.send(b"PIECE", first)
    wait_until(lambda: leaf.received_bytes > 4096)
    assert leaf.status()["versions"] == {}
    parent.send(b"PIECE", second)
    until(1, job.actor(leaf), size=2048)


def test_a_version_that_breaks_off_is_begun_anew_by_another_parent(job: Job) -> None:
    parent, other = HandFedParent(job), job.learner()
    relay = job.relay("relay", parent.uri)
    leaf = job.relay("leaf", relay.uri)
    wait_until(lambda: leaf.status()["joined"])
    first, _ = parent.begin(of_size(1, size=2048), piece_bytes=4096)
    parent.send(b"PIECE", first)
    wait_until(lambda: leaf.received_bytes > 4096)
    other.publish(of_size(1, size=2048))
    relay.hang(other.uri)
    assert until(1, job.actor(leaf), size=2048) == [1]
    other.publish(of_size(2, size=2048))
    until(2, job.actor(leaf), size=2048)


def test_lies_of_a_parent_reach_nobody(job: Job) -> None:
    parent = HandFedParent(job)
    relay = job.relay("relay", parent.uri)
    leaf = job.relay("leaf", relay.uri)
    wait_until(lambda: leaf.status()["joined"])
    head = bytes(encode(of_size(1, size=2048))[0])
    parent.send(b"BEGIN", msgpack.packb([1, head, [10**9], 4096]))  # the header says 8192 bytes
    parent.send(b"BEGIN", msgpack.packb([7, head, [8192], 4096]))  # the header says version 1
    parent.send(b"BEGIN", msgpack.packb([1, head, [8192], 1]))  # in 8192 pieces
    parent.send(b"BEGIN", b"\xc1")
    parent.send(b"PIECE", b"of nothing")
    parent.begin(of_size(2, size=2048), piece_bytes=4096)
    parent.send(b"PIECE", b"too short")
    first, second = parent.begin(of_size(3, size=2048), piece_bytes=4096)
    parent.send(b"PIECE", first)
    parent.send(b"PIECE", second)
    assert until(3, job.actor(leaf), size=2048) == [3]
    parent.begin(of_size(2, size=2048), piece_bytes=4096)  # replayed
    wait_until(lambda: relay.dropped["replayed"] == 1)
    assert relay.dropped == {"shape": 1, "header": 2, "garbled": 1, "truncated": 1, "replayed": 1}


def test_strangers_cannot_hang_under_a_relay(job: Job) -> None:
    learner = job.learner()
    relay = job.relay("relay", learner.uri)
    others = JobKeys.make()
    stranger = replace(
        job.keys, client_public=others.client_public, client_secret=others.client_secret, server_secret=""
    )
    with pytest.raises(TransportError, match="refused our keys"):
        connect_weights(relay.uri, keys=stranger, timeout_s=DEADLINE_S)
    assert relay.status()["dropped"]["stranger"] > 0


def test_a_parent_that_is_not_there_is_told(job: Job) -> None:
    relay = job.relay("relay", "tcp://127.0.0.1:9")
    wait_until(lambda: "127.0.0.1:9 did not answer" in relay.status()["error"])
    learner = job.learner()
    learner.publish(of_size(1))
    relay.hang(learner.uri)
    until(1, job.actor(relay))
    assert relay.status()["error"] == ""


def test_a_full_shared_memory_is_told(job: Job, monkeypatch: Any) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    learner = job.learner()
    relay = job.relay("relay", learner.uri)
    monkeypatch.setattr(os, "posix_fallocate", full)
    learner.publish(of_size(1))
    wait_until(lambda: "has no room for 0.4 MB of weights" in relay.status()["error"])
    monkeypatch.undo()
    until(1, job.actor(relay))


def test_readers_never_see_a_torn_version(job: Job) -> None:
    """A writer at full speed, a reader that looks at every byte: all of them belong to one version."""
    machine = job.folder / "machine"
    machine.mkdir(mode=0o700)
    publisher = job.kept(bind_weights(f"shm://{machine}/weights"))
    reader = job.kept(connect_weights(publisher.uri, timeout_s=DEADLINE_S))

    def write() -> None:
        for version in range(300):
            publisher.publish(
                Message("w", {"policy": "main", "version": version}, (np.full(50_000, version),))
            )

    writer = threading.Thread(target=write)
    writer.start()
    last = -1
    while last < 299:
        for message in reader.wait(DEADLINE_S):
            version, values = message.header["version"], message.arrays[0]
            assert version > last
            assert values.min() == values.max() == version
            last = version
    writer.join()


# ------------------------------------------------------------------ unrolls


def forwarded(job: Job, *, actors: int, capacity: int = 1) -> tuple[Any, UnrollForwarder, list[Any]]:
    """A learner's receiver, a node agent's forwarder before it, and senders on its machine."""
    receiver = job.kept(bind_gather(ANY_PORT, keys=job.keys, capacity=capacity, senders=actors))
    forwarder = job.kept(UnrollForwarder(f"ipc://{job.folder}/unrolls", capacity=capacity))
    forwarder.start(receiver.uri, keys=job.keys, actors=actors, name="agent", timeout_s=DEADLINE_S)
    senders = [job.kept(connect_gather(forwarder.uri, timeout_s=DEADLINE_S)) for _ in range(actors)]
    return receiver, forwarder, senders


def numbered(number: int) -> Message:
    return Message("unrolls", {"number": number}, (np.full(1000, number), np.array(True), np.empty(0)))


def test_unrolls_arrive_whole_and_each_actors_in_order(job: Job) -> None:
    receiver, forwarder, senders = forwarded(job, actors=4)

    def send(number: int) -> None:
        for k in range(25):
            assert senders[number].send(numbered(100 * number + k), DEADLINE_S)

    threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    got = []
    while len(got) < 100:
        message = receiver.receive(DEADLINE_S)
        assert message is not None
        got.append(message.header["number"])
        np.testing.assert_array_equal(message.arrays[0], np.full(1000, got[-1]))
        assert message.arrays[2].shape == (0,)
    for thread in threads:
        thread.join()
    for number in range(4):
        of_one = [n for n in got if n // 100 == number]
        assert of_one == sorted(of_one)
        assert len(of_one) == 25
    assert forwarder.status()["messages"] == 100
    assert forwarder.status()["dropped"] == {} == dict(receiver.dropped)


def test_a_learner_that_takes_nothing_holds_the_actors_back(job: Job) -> None:
    receiver, _, (sender,) = forwarded(job, actors=1, capacity=2)
    sent = 0
    while sender.send(numbered(sent), 0.5):
        sent += 1
    # two wait at the learner, one is in the agent's hand, two wait at the agent
    assert sent == 5
    for number in range(sent):
        message = receiver.receive(DEADLINE_S)
        assert message is not None
        assert message.header["number"] == number
    assert sender.send(numbered(sent), DEADLINE_S)
    assert receiver.receive(DEADLINE_S) is not None
    assert not receiver.dropped


def test_what_waits_goes_in_one_bundle(job: Job) -> None:
    receiver, forwarder, senders = forwarded(job, actors=8, capacity=1)
    for _ in range(3):
        for sender in senders:
            sender.send(numbered(0), DEADLINE_S)
        for _ in senders:
            assert receiver.receive(DEADLINE_S) is not None
    status = forwarder.status()
    assert status["messages"] == 24
    assert status["bundles"] <= 24


def test_bundles_that_lie_are_dropped_and_counted(job: Job) -> None:
    receiver = job.kept(bind_gather(f"ipc://{job.folder}/lies", capacity=4, senders=2))
    context = zmq.Context()
    raw = context.socket(zmq.DEALER)
    try:
        raw.linger = 0
        raw.connect(f"ipc://{job.folder}/lies")
        values = {"protocol": 2, "job": "", "role": "gather", "name": "raw", "turn": 1, "senders": 2}
        raw.send_multipart([b"HELLO", msgpack.packb(values)])
        raw.recv_multipart()
        good = [bytes(frame) for frame in encode(numbered(1))]
        for frames in (
            [],
            [b"\xc1"],
            [msgpack.packb([5]), *good[:2]],
            [msgpack.packb([0, 4]), *good],
            [msgpack.packb(7), *good],
            [msgpack.packb([-1, 5]), *good],
            [msgpack.packb([2, 2]), *good],  # whole frames, but no messages
        ):
            raw.send_multipart([b"BUNDLE", *frames])
        raw.send_multipart([b"BUNDLE", msgpack.packb([4, 4]), *good, *good])
        assert [receiver.receive(DEADLINE_S).header["number"] for _ in range(2)] == [1, 1]
        assert receiver.dropped["garbled"] >= 6
    finally:
        raw.close()
        context.term()


def test_receivers_beside_each_other_come_out_of_one(job: Job) -> None:
    local = job.kept(bind_gather(f"ipc://{job.folder}/local"))
    remote = job.kept(bind_gather(ANY_PORT, keys=job.keys, beside=local))
    near = job.kept(connect_gather(local.uri, timeout_s=DEADLINE_S))
    far = job.kept(connect_gather(remote.uri, keys=job.keys, timeout_s=DEADLINE_S))
    for number in range(10):
        assert near.send(numbered(number), DEADLINE_S)
        assert far.send(numbered(100 + number), DEADLINE_S)
        got = {local.receive(DEADLINE_S).header["number"] for _ in range(2)}
        assert got == {number, 100 + number}
