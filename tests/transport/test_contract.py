"""What every channel promises, whatever carries it."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport import JobKeys, Message

# ------------------------------------------------------------------ gather


def test_messages_arrive_whole_and_in_order(place: Any) -> None:
    receiver = place.receiver(capacity=8)
    sender = place.sender(receiver.uri, capacity=8)
    arrays = (
        np.arange(120_000, dtype=np.float32).reshape(2, 3, -1),
        np.array([[True, False]]),
        np.zeros((0, 7), np.uint8),
        np.array(-5, np.int64),
        np.arange(12, dtype=np.int16).reshape(3, 4).T,
    )
    header = {"match": 7, "name": "ünï", "values": [1, 2.5, None, {"deep": False}]}
    for number in range(5):
        assert sender.send(Message("unroll", {**header, "number": number}, arrays), place.deadline_s)
    for number in range(5):
        message = receiver.receive(place.deadline_s)
        assert message.kind == "unroll"
        assert message.header == {**header, "number": number}
        for got, sent in zip(message.arrays, arrays, strict=True):
            assert got.dtype == sent.dtype
            np.testing.assert_array_equal(got, sent, strict=True)
            assert not got.flags.writeable
    assert receiver.receive(0.0) is None
    assert not receiver.dropped
    assert not sender.dropped


def test_many_senders_share_a_receiver(place: Any, unroll: Any) -> None:
    receiver = place.receiver(capacity=3)
    senders = [place.sender(receiver.uri, capacity=3, name=f"actor-{n}") for n in range(3)]
    for round_ in range(3):
        for number, sender in enumerate(senders):
            assert sender.send(unroll(10 * number + round_), place.deadline_s)
    numbers = [receiver.receive(place.deadline_s).header["number"] for _ in range(9)]
    for number in range(3):
        assert [n for n in numbers if n // 10 == number] == [10 * number + r for r in range(3)]


def test_a_full_queue_says_false_and_drops_nothing(place: Any, unroll: Any) -> None:
    receiver = place.receiver(capacity=5)
    sender = place.sender(receiver.uri, capacity=2)
    assert sender.send(unroll(0), 0.0)
    assert sender.send(unroll(1), 0.0)
    assert not sender.send(unroll(2), 0.0)
    assert not sender.send(unroll(2), 0.02)
    assert receiver.receive(place.deadline_s).header["number"] == 0
    assert sender.send(unroll(3), place.deadline_s)
    assert [receiver.receive(place.deadline_s).header["number"] for _ in range(2)] == [1, 3]
    assert receiver.receive(0.0) is None


def test_the_receiver_bounds_its_senders_too(place: Any, unroll: Any) -> None:
    receiver = place.receiver(capacity=1)
    sender = place.sender(receiver.uri, capacity=100)
    assert sender.send(unroll(0), 0.0)
    assert not sender.send(unroll(1), 0.0)


def test_a_full_queue_keeps_nobody_from_joining(place: Any, unroll: Any) -> None:
    receiver = place.receiver()
    full = place.sender(receiver.uri, capacity=1)
    assert full.send(unroll(1), 0.0)
    assert not full.send(unroll(2), 0.0)
    newcomer = place.sender(receiver.uri)
    assert newcomer.send(unroll(3), place.deadline_s)
    assert {receiver.receive(place.deadline_s).header["number"] for _ in range(2)} == {1, 3}


def test_a_waiting_send_goes_on_when_the_learner_takes_one(place: Any, unroll: Any) -> None:
    receiver = place.receiver()
    sender = place.sender(receiver.uri, capacity=1)
    assert sender.send(unroll(0), 0.0)
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(sender.send(unroll(1), place.deadline_s)))
    thread.start()
    assert [receiver.receive(place.deadline_s).header["number"] for _ in range(2)] == [0, 1]
    thread.join(place.deadline_s)
    assert results == [True]


def test_receive_ends_at_its_deadline(place: Any) -> None:
    receiver = place.receiver()
    assert receiver.receive(0.0) is None
    assert receiver.receive(0.02) is None


def test_a_sender_that_leaves_is_no_event(place: Any, unroll: Any) -> None:
    receiver = place.receiver()
    first = place.sender(receiver.uri)
    assert first.send(unroll(1), 0.0)
    first.close()
    second = place.sender(receiver.uri)
    assert second.send(unroll(2), 0.0)
    assert {receiver.receive(place.deadline_s).header["number"] for _ in range(2)} == {1, 2}
    assert not receiver.dropped


@pytest.mark.parametrize("array", [np.zeros(2, np.complex64), np.array([None]), np.zeros(2, ">f4")])
def test_what_channels_do_not_carry_fails_at_the_sender(place: Any, array: np.ndarray) -> None:
    receiver = place.receiver()
    sender = place.sender(receiver.uri)
    with pytest.raises(TransportError, match="dtype"):
        sender.send(Message("unroll", {}, (array,)), 0.0)
    publisher = place.publisher()
    with pytest.raises(TransportError, match="dtype"):
        publisher.publish(Message("weights", {"policy": "main", "version": 0}, (array,)))


# ------------------------------------------------------------------ weights


def test_subscribers_get_new_versions(place: Any, weights: Any) -> None:
    publisher = place.publisher()
    subscribers = [place.subscriber(publisher.uri) for _ in range(2)]
    assert [s.latest() for s in subscribers] == [[], []]
    for version in (1, 2, 5):
        publisher.publish(weights(version))
        for subscriber in subscribers:
            (message,) = subscriber.wait(place.deadline_s)
            assert message.header["version"] == version
            np.testing.assert_array_equal(message.arrays[0], np.full(8, version, np.float32))
            assert not message.arrays[0].flags.writeable
            assert subscriber.latest() == []


def test_weights_are_shared_and_let_go(place: Any, weights: Any) -> None:
    """No copy is kept once a newer version is out and everybody has it."""
    publisher = place.publisher()
    subscribers = [place.subscriber(publisher.uri) for _ in range(3)]
    message = weights(1, size=100_000)
    freed = threading.Event()
    weakref.finalize(message.arrays[0], freed.set)
    publisher.publish(Message("weights", message.header, (*message.arrays, np.zeros((0, 3)))))
    del message
    for version in (2, 3):
        for subscriber in subscribers:
            assert len(subscriber.wait(place.deadline_s)) == 1
        publisher.publish(weights(version))
    assert freed.wait(place.deadline_s)


def test_a_late_joiner_gets_the_newest_of_every_policy(place: Any, weights: Any) -> None:
    publisher = place.publisher()
    for version in range(4):
        publisher.publish(weights(version))
        publisher.publish(weights(10 + version, "other"))
    subscriber = place.subscriber(publisher.uri)
    got: dict[str, list[int]] = {"main": [], "other": []}
    while not all(got.values()):
        messages = subscriber.wait(place.deadline_s)
        assert messages
        for message in messages:
            got[message.header["policy"]].append(message.header["version"])
    assert got == {"main": [3], "other": [13]}


def test_a_slow_subscriber_skips_versions(place: Any, weights: Any) -> None:
    publisher = place.publisher()
    subscriber = place.subscriber(publisher.uri)
    for version in range(100):
        publisher.publish(weights(version, size=50_000))
    seen: list[int] = []
    while not seen or seen[-1] < 99:
        messages = subscriber.wait(place.deadline_s)
        assert len(messages) == 1
        seen.append(messages[0].header["version"])
    # One version may have been under way while the newer ones came.
    assert len(seen) <= 2
    assert seen == sorted(set(seen))
    assert publisher.sent_bytes < 3 * 4 * 50_000
    assert subscriber.latest() == []


def test_versions_only_grow(place: Any, weights: Any) -> None:
    publisher = place.publisher()
    subscriber = place.subscriber(publisher.uri)
    publisher.publish(weights(5))
    publisher.publish(weights(5))
    assert publisher.dropped["replayed"] == 1
    with pytest.raises(TransportError, match="version 3 of policy 'main' is older than version 5"):
        publisher.publish(weights(3))
    publisher.publish(weights(0, "other"))  # policies count on their own
    publisher.publish(weights(6))
    versions: list[int] = []
    while 6 not in versions:
        messages = subscriber.wait(place.deadline_s)
        assert messages
        versions += [m.header["version"] for m in messages if m.header["policy"] == "main"]
    assert versions == sorted(set(versions))


def test_wait_ends_at_its_deadline(place: Any) -> None:
    subscriber = place.subscriber(place.publisher().uri)
    assert subscriber.wait(0.0) == []
    assert subscriber.wait(0.02) == []


@pytest.mark.parametrize(
    "header", [{}, {"policy": "main"}, {"policy": 3, "version": 1}, {"policy": "main", "version": -1}]
)
def test_weights_need_a_policy_and_a_version(place: Any, header: dict[str, Any]) -> None:
    with pytest.raises(TransportError, match="policy"):
        place.publisher().publish(Message("weights", header, ()))


def test_publishing_works_from_another_thread(place: Any, weights: Any) -> None:
    publisher = place.publisher()
    subscriber = place.subscriber(publisher.uri)
    thread = threading.Thread(target=publisher.publish, args=(weights(1),))
    thread.start()
    assert subscriber.wait(place.deadline_s)[0].header["version"] == 1
    thread.join(place.deadline_s)


# ------------------------------------------------------------------ joining and closing


def test_nobody_there(place: Any) -> None:
    receiver = place.receiver()
    uri = receiver.uri
    receiver.close()
    for join in (place.sender, place.subscriber):
        with pytest.raises(TransportError, match=f"{uri} did not answer"):
            join(uri, timeout_s=0.05)


def test_another_job_is_refused(place: Any) -> None:
    receiver = place.receiver()
    with pytest.raises(TransportError, match=f"{receiver.uri}.*(job|keys)"):
        place.sender(receiver.uri, keys=JobKeys.make(), timeout_s=0.5)


def test_the_wrong_kind_of_channel_is_refused(place: Any) -> None:
    receiver, publisher = place.receiver(), place.publisher()
    with pytest.raises(TransportError, match="gather channel"):
        place.subscriber(receiver.uri)
    with pytest.raises(TransportError, match="weights channel"):
        place.sender(publisher.uri)


def test_an_address_in_use_is_named(place: Any) -> None:
    receiver = place.receiver()
    port = receiver.uri.rpartition(":")[2] if place.scheme == "tcp" else ""
    for bind in (place.receiver, place.publisher):
        with pytest.raises(TransportError, match=f"{port}.*in use.*;"):
            bind(receiver.uri)


def test_an_address_is_free_again_after_close(place: Any, unroll: Any) -> None:
    first = place.receiver()
    first.close()
    second = place.receiver(first.uri)
    sender = place.sender(second.uri)
    assert sender.send(unroll(4), 0.0)
    assert second.receive(place.deadline_s).header["number"] == 4


def test_closed_ends_say_so(place: Any, unroll: Any, weights: Any) -> None:
    receiver, publisher = place.receiver(), place.publisher()
    sender, subscriber = place.sender(receiver.uri), place.subscriber(publisher.uri)
    for end in (sender, subscriber, receiver, publisher):
        end.close()
        end.close()
    for call in (
        lambda: receiver.receive(0.0),
        lambda: sender.send(unroll(), 0.0),
        lambda: publisher.publish(weights(1)),
        subscriber.latest,
        lambda: subscriber.wait(0.0),
    ):
        with pytest.raises(TransportError, match="closed"):
            call()


@pytest.mark.parametrize("end", ["receiver", "sender", "subscriber"])
def test_closing_from_another_thread_ends_a_wait(place: Any, unroll: Any, end: str) -> None:
    receiver, publisher = place.receiver(), place.publisher()
    sender = place.sender(receiver.uri, capacity=1)
    subscriber = place.subscriber(publisher.uri)
    assert sender.send(unroll(), 0.0)
    if end == "receiver":
        assert receiver.receive(place.deadline_s)
    waits = {
        "receiver": lambda: receiver.receive(place.deadline_s),
        "sender": lambda: sender.send(unroll(), place.deadline_s),
        "subscriber": lambda: subscriber.wait(place.deadline_s),
    }
    about_to_wait, errors = threading.Event(), []

    def wait() -> None:
        about_to_wait.set()
        try:
            waits[end]()
        except TransportError as error:
            errors.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    assert about_to_wait.wait(place.deadline_s)
    start = time.monotonic()
    {"receiver": receiver, "sender": sender, "subscriber": subscriber}[end].close()
    thread.join(place.deadline_s)
    assert time.monotonic() - start < place.deadline_s / 2
    assert "is closed" in errors[0]


def test_a_sender_outlives_its_receiver(place: Any, unroll: Any) -> None:
    receiver = place.receiver()
    sender = place.sender(receiver.uri, capacity=3)
    receiver.close()
    sent = [sender.send(unroll(n), 0.01) for n in range(4)]
    assert sent[-1] is False
