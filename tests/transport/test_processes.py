"""Ends in processes of their own: killed, stopped for good, and started again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

_SENDER = """\
import json, sys
import numpy as np
from lamarckian_cli.transport import JobKeys, Message, connect_gather

uri, name, keys = json.loads(sys.argv[1])
sender = connect_gather(uri, keys=keys and JobKeys.from_dict(keys), name=name, timeout_s=20)
for number in range(1_000_000):
    array = np.full(300_000, number, np.float32)
    if not sender.send(Message("unroll", {"name": name, "number": number}, (array, array[:3])), 20):
        break
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts processes that send without end, and kills what is left of them after the test."""
    processes: list[subprocess.Popen[bytes]] = []

    def begin(place: Any, uri: str, name: str) -> subprocess.Popen[bytes]:
        keys = place.keys.for_clients().to_dict() if place.keys else None
        process = subprocess.Popen([sys.executable, "-c", _SENDER, json.dumps([uri, name, keys])])
        processes.append(process)
        return process

    yield begin
    for process in processes:
        process.kill()
        process.wait()


def test_a_killed_sender_is_no_event(sockets: Any, start: Any) -> None:
    receiver = sockets.receiver(capacity=3)
    stays = start(sockets, receiver.uri, "stays")
    next_number: dict[str, int] = {}
    for generation in range(3):
        name = f"mortal-{generation}"
        mortal = start(sockets, receiver.uri, name)
        while next_number.get(name, 0) < 5:
            _receive(receiver, sockets, next_number)
        mortal.kill()  # in the middle of sending
        mortal.wait()
    seen = next_number["stays"]
    while next_number["stays"] < seen + 10:
        _receive(receiver, sockets, next_number)
    assert stays.poll() is None
    assert receiver.dropped == {}


def _receive(receiver: Any, place: Any, next_number: dict[str, int]) -> None:
    """Each sender's messages come whole and without a gap."""
    message = receiver.receive(place.deadline_s)
    assert message is not None
    name, number = message.header["name"], message.header["number"]
    assert number == next_number.get(name, 0)
    next_number[name] = number + 1
    assert [array.shape for array in message.arrays] == [(300_000,), (3,)]
    for array in message.arrays:
        assert np.all(array == number)


def test_senders_join_a_restarted_learner_again(sockets: Any, unroll: Any) -> None:
    first = sockets.receiver(capacity=2)
    sender = sockets.sender(first.uri, capacity=2)
    assert sender.send(unroll(1), 0.0)
    assert sender.send(unroll(2), 0.0)
    assert first.receive(sockets.deadline_s).header["number"] == 1
    first.close()
    second = sockets.receiver(first.uri, capacity=2)
    number, message = 3, None
    while message is None:  # what leaves before the sender knows of the change is lost, and counted
        assert sender.send(unroll(number), sockets.deadline_s)
        message = second.receive(0.05)
        number += 1
    assert 3 <= message.header["number"] < number
    assert 1 <= sender.dropped["lost"] <= number - 2


def test_subscribers_join_a_restarted_learner_again(sockets: Any, weights: Any) -> None:
    first = sockets.publisher()
    subscriber = sockets.subscriber(first.uri)
    first.publish(weights(3))
    assert subscriber.wait(sockets.deadline_s)[0].header["version"] == 3
    first.publish(weights(4))
    first.close()
    second = sockets.publisher(first.uri)
    second.publish(weights(2))  # from an older checkpoint: not news
    second.publish(weights(1, "other"))
    got: list[tuple[str, int]] = []
    while ("other", 1) not in got:
        messages = subscriber.wait(sockets.deadline_s)
        assert messages
        got += [(m.header["policy"], m.header["version"]) for m in messages]
    assert ("main", 2) not in got
    second.publish(weights(5))
    assert subscriber.wait(sockets.deadline_s)[0].header["version"] == 5
    assert not subscriber.dropped  # the learner was told what is known, and did not even send it
