"""The same channels inside one process: deques and a condition, no threads, no sockets, no copies.

Names live in a table of this module for as long as the bound end is open. With one thread
everything is deterministic: a message is there when `send` or `publish` returns.
"""

from __future__ import annotations

import threading
from collections import Counter, deque

import numpy as np

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport import handshake
from lamarckian_cli.transport.address import Address
from lamarckian_cli.transport.codec import Message, check_dtypes
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.stream import label
from lamarckian_cli.transport.weights import check_grows

_bound: dict[str, InprocReceiver | InprocPublisher] = {}
_bound_lock = threading.Lock()


class InprocReceiver:
    """The learner's end: messages of all senders in the order of `send`."""

    role = handshake.GATHER

    def __init__(self, address: Address, keys: JobKeys | None, *, capacity: int) -> None:
        self.uri = address.uri
        self.dropped: Counter[str] = Counter()
        self.keys = keys
        self.capacity = capacity
        self.queue: deque[tuple[InprocSender, Message]] = deque()
        self.changed = threading.Condition()
        self.closed = False
        _bind(self)

    def receive(self, timeout_s: float) -> Message | None:
        """Next message, or None when the time is over."""
        with self.changed:
            if not self.queue:
                self.changed.wait_for(lambda: self.queue or self.closed, max(0.0, timeout_s))
            if self.closed:
                raise TransportError(f"the gather channel {self.uri} is closed")
            if not self.queue:
                return None
            sender, message = self.queue.popleft()
            sender.under_way -= 1
            self.changed.notify_all()
            return message

    def close(self) -> None:
        _unbind(self)
        with self.changed:
            self.closed = True
            self.queue.clear()
            self.changed.notify_all()


class InprocSender:
    """An actor's end."""

    def __init__(self, address: Address, keys: JobKeys | None, *, capacity: int) -> None:
        receiver = _find(address, keys, handshake.GATHER)
        assert isinstance(receiver, InprocReceiver)
        self.dropped: Counter[str] = Counter()
        self.under_way = 0  # sent and not taken; guarded by the receiver's condition
        self._receiver = receiver
        self._capacity = min(capacity, receiver.capacity)
        self._closed = False

    def send(self, message: Message, timeout_s: float) -> bool:
        """Queue a message; False, and nothing sent, if the learner took too few of them in that time."""
        sealed = _sealed(message)
        receiver = self._receiver
        with receiver.changed:
            if self._full():
                receiver.changed.wait_for(lambda: self._closed or not self._full(), max(0.0, timeout_s))
            if self._closed:
                raise TransportError(f"the gather channel to {receiver.uri} is closed")
            if self._full():
                return False
            self.under_way += 1
            receiver.queue.append((self, sealed))
            receiver.changed.notify_all()
            return True

    def close(self) -> None:
        with self._receiver.changed:
            self._closed = True
            self._receiver.changed.notify_all()

    def _full(self) -> bool:
        """A closed receiver takes nothing any more; then it is up to the caller, as with a full queue."""
        return not self._closed and (self._receiver.closed or self.under_way >= self._capacity)


class InprocPublisher:
    """The learner's end."""

    role = handshake.WEIGHTS

    def __init__(self, address: Address, keys: JobKeys | None) -> None:
        self.uri = address.uri
        self.sent_bytes = 0  # messages pass by reference
        self.dropped: Counter[str] = Counter()
        self.keys = keys
        self.newest: dict[str, tuple[int, Message]] = {}
        self.changed = threading.Condition()
        self.closed = False
        _bind(self)

    def publish(self, message: Message) -> None:
        """Make this the newest message of its policy; returns at once."""
        policy, version = label(message.header)
        sealed = _sealed(message)
        with self.changed:
            if self.closed:
                raise TransportError(f"the weights channel {self.uri} is closed")
            newest = self.newest[policy][0] if policy in self.newest else -1
            if version == newest:
                self.dropped["replayed"] += 1
                return
            check_grows(policy, version, newest)
            self.newest[policy] = (version, sealed)
            self.changed.notify_all()

    def close(self) -> None:
        _unbind(self)
        with self.changed:
            self.closed = True
            self.newest.clear()


class InprocSubscriber:
    """An actor's end."""

    def __init__(self, address: Address, keys: JobKeys | None) -> None:
        publisher = _find(address, keys, handshake.WEIGHTS)
        assert isinstance(publisher, InprocPublisher)
        self.dropped: Counter[str] = Counter()
        self._publisher = publisher
        self._seen: dict[str, int] = {}  # policy -> newest version
        self._closed = False

    def latest(self) -> list[Message]:
        """The newest message of every policy that has news since the last call; does not wait."""
        return self.wait(0.0)

    def wait(self, timeout_s: float) -> list[Message]:
        """Like `latest`, but waits for news; empty when the time is over."""
        changed = self._publisher.changed
        with changed:
            if timeout_s > 0:
                changed.wait_for(lambda: self._closed or self._has_news(), timeout_s)
            if self._closed:
                raise TransportError(f"the weights channel to {self._publisher.uri} is closed")
            news = []
            for policy, (version, message) in self._publisher.newest.items():
                if version > self._seen.get(policy, -1):
                    self._seen[policy] = version
                    news.append(message)
            return news

    def close(self) -> None:
        with self._publisher.changed:
            self._closed = True
            self._publisher.changed.notify_all()

    def _has_news(self) -> bool:
        return any(v > self._seen.get(policy, -1) for policy, (v, _) in self._publisher.newest.items())


def _bind(end: InprocReceiver | InprocPublisher) -> None:
    with _bound_lock:
        if end.uri in _bound:
            raise TransportError(f"{end.uri} is in use; close that channel or choose another name")
        _bound[end.uri] = end


def _unbind(end: InprocReceiver | InprocPublisher) -> None:
    with _bound_lock:
        if _bound.get(end.uri) is end:
            del _bound[end.uri]


def _find(address: Address, keys: JobKeys | None, role: str) -> InprocReceiver | InprocPublisher:
    """Joining inside a process: the bound end is there or it is not, so nothing waits."""
    with _bound_lock:
        end = _bound.get(address.uri)
    if end is None:
        raise TransportError(
            f"{address.uri} did not answer: nothing is bound to it in this process; bind first"
        )
    reason = ""
    if handshake.job_id(end.keys) != handshake.job_id(keys):
        reason = "it belongs to another job; pass the keys of the same job"
    elif end.role != role:
        reason = f"it is a {end.role} channel, not a {role} channel; check the address"
    if reason:
        raise TransportError(f"{address.uri} refused us: {reason}")
    return end


def _sealed(message: Message) -> Message:
    """The same arrays as read-only views: what is sent belongs to the channel, here as everywhere."""
    check_dtypes(message)
    views = []
    for array in message.arrays:
        view: np.ndarray = array.view()
        view.flags.writeable = False
        views.append(view)
    return Message(message.kind, message.header, tuple(views))
