"""Channels by URI: what their ends promise, and how to open them.

    learner                                  actors
    bind_gather(uri)  -> Receiver    <---    connect_gather(uri)  -> Sender       unrolls
    bind_weights(uri) -> Publisher   --->    connect_weights(uri) -> Subscriber   weights

The scheme of the URI chooses the implementation, `inproc://`, `shm://` (weights alone), `ipc://`
or `tcp://` (see `address`), and all of them behave alike. Every end is used by one thread at a
time and may be closed by any. A call on a closed end, or one that is closed meanwhile, raises
TransportError.

Whoever sends or publishes a message gives its arrays away: they are not copied, so they
must not be written to again. Arrays that come out of a channel are read-only.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from lamarckian_cli.errors import TransportError, require
from lamarckian_cli.transport.address import Address, parse
from lamarckian_cli.transport.codec import LIMITS, Limits, Message
from lamarckian_cli.transport.gather import ZmqReceiver, ZmqSender
from lamarckian_cli.transport.inproc import InprocPublisher, InprocReceiver, InprocSender, InprocSubscriber
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.shared import SharedPublisher, SharedSubscriber
from lamarckian_cli.transport.weights import ZmqPublisher, ZmqSubscriber

JOIN_TIMEOUT_S = 30.0
"""How long a connecting end waits for the learner, unless told otherwise."""

CAPACITY = 4
"""Messages of one sender that may wait for the learner, unless told otherwise."""


class Receiver(Protocol):
    """Bound end of a gather channel."""

    uri: str  # connect to this; the port is the real one
    dropped: Counter[str]  # messages by reason, e.g. garbled, truncated, stranger

    def receive(self, timeout_s: float) -> Message | None:
        """Next message of any sender, or None when the time is over (0: only look)."""

    def close(self) -> None:
        """Free everything; what was not received is gone. Twice is fine."""


class Sender(Protocol):
    """Connecting end of a gather channel."""

    dropped: Counter[str]  # `lost`: messages that a broken connection took away

    def send(self, message: Message, timeout_s: float) -> bool:
        """Queue a message for the learner; the order is kept.

        False, with nothing sent, if `capacity` messages were still waiting for the learner
        when the time was over, or the learner was gone: the caller decides what becomes of it.
        """

    def close(self) -> None:
        """Free everything; what was sent has a second to leave. Twice is fine."""


class Publisher(Protocol):
    """Bound end of a weights channel."""

    uri: str
    dropped: Counter[str]
    sent_bytes: int  # over all subscribers

    def publish(self, message: Message) -> None:
        """Make this the newest message of its policy; never waits.

        The header needs `policy` (str) and `version` (int from 0). It goes to every
        subscriber as soon as that took the one before, and at once to those who join later.
        TransportError if a newer version was published; the same version again is ignored.
        """

    def close(self) -> None:
        """Free everything; what was not fetched is gone. Twice is fine."""


class Subscriber(Protocol):
    """Connecting end of a weights channel."""

    dropped: Counter[str]  # `replayed`: versions not newer than one already seen

    def latest(self) -> list[Message]:
        """For every policy with news since the last call its newest message here; does not wait."""

    def wait(self, timeout_s: float) -> list[Message]:
        """Like `latest`, but waits for news; empty when the time is over."""

    def close(self) -> None:
        """Free everything. Twice is fine."""


def bind_gather(
    uri: str,
    *,
    keys: JobKeys | None = None,
    capacity: int = CAPACITY,
    limits: Limits = LIMITS,
    senders: int = 1,
    beside: Receiver | None = None,
) -> Receiver:
    """Listen for unrolls; each sender may have `capacity` messages waiting (or fewer, if it wants).

    A node agent speaks for its machine's actors; `senders` is for how many it may do so at most.
    What comes here comes out of `beside.receive`, where one is given: one queue, several addresses.
    """
    require(capacity >= 1, "capacity", capacity, "it must be at least 1 message")
    address = _parse_gather(uri)
    if address.scheme == "inproc":
        return InprocReceiver(address, keys, capacity=capacity)
    assert beside is None or isinstance(beside, ZmqReceiver)
    return ZmqReceiver(address, keys, capacity=capacity, limits=limits, senders=senders, beside=beside)


def _parse_gather(uri: str) -> Address:
    address = parse(uri)
    if address.scheme == "shm":
        raise TransportError(f"{uri} is a weights channel alone; unrolls take an ipc:// address")
    return address


def connect_gather(
    uri: str,
    *,
    keys: JobKeys | None = None,
    capacity: int = CAPACITY,
    name: str = "",
    timeout_s: float = JOIN_TIMEOUT_S,
) -> Sender:
    """Join a gather channel; TransportError if it does not answer in time or refuses.

    Inside a process nothing is waited for: the channel is bound or it is not.
    """
    require(capacity >= 1, "capacity", capacity, "it must be at least 1 message")
    address = _parse_gather(uri)
    if address.scheme == "inproc":
        return InprocSender(address, keys, capacity=capacity)
    return ZmqSender(address, keys, capacity=capacity, name=name, timeout_s=timeout_s)


def bind_weights(uri: str, *, keys: JobKeys | None = None, limits: Limits = LIMITS) -> Publisher:
    """Listen for subscribers and keep the newest weights of every policy for them."""
    address = parse(uri)
    if address.scheme == "inproc":
        return InprocPublisher(address, keys)
    if address.scheme == "shm":
        return SharedPublisher(address, keys, limits=limits)
    return ZmqPublisher(address, keys, limits=limits)


def connect_weights(
    uri: str,
    *,
    keys: JobKeys | None = None,
    name: str = "",
    timeout_s: float = JOIN_TIMEOUT_S,
    limits: Limits = LIMITS,
) -> Subscriber:
    """Join a weights channel; TransportError if it does not answer in time or refuses."""
    address = parse(uri)
    if address.scheme == "inproc":
        return InprocSubscriber(address, keys)
    if address.scheme == "shm":
        return SharedSubscriber(address, keys, name=name, timeout_s=timeout_s, limits=limits)
    return ZmqSubscriber(address, keys, name=name, timeout_s=timeout_s, limits=limits)
