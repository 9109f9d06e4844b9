"""Unrolls from many actors to one learner, over ZeroMQ.

    DATA, header, array, ...   sender -> receiver
    TAKEN, {count}             receiver -> sender: the learner took this many of yours

A sender has at most `capacity` messages under way that the learner did not take yet; when
it reaches that number it waits, and `send` says False at its deadline. So every queue is
bounded, joining never stands behind data, and nothing is dropped but what is counted.
"""

from __future__ import annotations

import queue
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import zmq

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport import handshake
from lamarckian_cli.transport.address import Address
from lamarckian_cli.transport.codec import Limits, Message, MessageError, check_limits, decode, encode
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.link import Link
from lamarckian_cli.transport.service import Service

_LINGER_S = 1.0
"""How long the last unrolls may take to leave a sender that closes."""


class ZmqReceiver:
    """The learner's end: messages of all senders in the order of their arrival."""

    def __init__(self, address: Address, keys: JobKeys | None, *, capacity: int, limits: Limits) -> None:
        self._capacity, self._limits = capacity, limits
        # Joined peer -> its messages that arrived and were not taken; the service's thread only.
        self._under_way: dict[bytes, int] = {}
        self._queue: queue.SimpleQueue[tuple[bytes, Sequence[zmq.Frame]] | None] = queue.SimpleQueue()
        self._taken: deque[bytes] = deque()  # peers whose message was taken, not told yet
        self._service = Service(
            address, keys, handshake.GATHER, max_frame_bytes=limits.frame_bytes, handler=self
        )
        self.uri = self._service.uri
        self.dropped = self._service.dropped
        self._service.start()

    def receive(self, timeout_s: float) -> Message | None:
        """Next valid message, or None when the time is over; invalid ones are dropped and counted."""
        deadline = time.monotonic() + timeout_s
        while True:
            item = self._next(deadline - time.monotonic())
            if item is None:
                return None
            peer, frames = item
            self._taken.append(peer)
            self._service.wake()
            try:
                return decode([frame.buffer for frame in frames], self._limits)
            except MessageError as error:
                self.dropped[error.reason] += 1

    def close(self) -> None:
        self._service.close()

    def _next(self, timeout_s: float) -> tuple[bytes, Sequence[zmq.Frame]] | None:
        self._service.check()
        try:
            item = self._queue.get_nowait() if timeout_s <= 0 else self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if item is None:
            self._service.check()
        return item

    # ------------------------------------------------------------------ in the service's thread

    def welcome(self, peer: bytes, hello: dict[str, Any]) -> dict[str, Any]:
        # A peer that joins again has its messages before this HELLO here, or has lost them.
        under_way = self._under_way.setdefault(peer, 0)
        return {"capacity": self._capacity, "under_way": under_way, "limits": asdict(self._limits)}

    def joined(self, peer: bytes) -> None:
        pass

    def arrived(self, peer: bytes, command: bytes, frames: Sequence[zmq.Frame]) -> None:
        under_way = self._under_way.get(peer)
        if command != handshake.DATA:
            self.dropped["garbled"] += 1
        elif under_way is None:
            self.dropped["not joined"] += 1
        elif under_way >= self._capacity:
            self.dropped["over capacity"] += 1
        else:
            self._under_way[peer] = under_way + 1
            self._queue.put((peer, frames))

    def left(self, peer: bytes) -> None:
        self._under_way.pop(peer, None)

    def woken(self) -> None:
        counts: Counter[bytes] = Counter()
        while self._taken:
            counts[self._taken.popleft()] += 1
        for peer, count in counts.items():
            if peer not in self._under_way:
                continue  # it said good-bye, and its last messages were taken after that
            self._under_way[peer] -= count
            # In vain if the sender was killed. Its entry stays: the socket may hold more of its messages.
            self._service.send(peer, [handshake.TAKEN, handshake.pack({"count": count})])

    def ended(self) -> None:
        self._queue.put(None)


class ZmqSender:
    """An actor's end."""

    def __init__(
        self,
        address: Address,
        keys: JobKeys | None,
        *,
        capacity: int,
        name: str,
        timeout_s: float,
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._wanted = capacity
        self._under_way = 0  # sent and not known to be taken
        # What comes back is small, whatever the other end is.
        self._link = Link(
            address, keys, role=handshake.GATHER, name=name, extra=dict, max_frame_bytes=1 << 20
        )
        welcome = self._link.join(timeout_s)
        try:
            self._settle(welcome)
        except TransportError:
            self._link.close()
            raise

    def send(self, message: Message, timeout_s: float) -> bool:
        """Queue a message; False, and nothing sent, if the learner took too few of them in that time."""
        frames = encode(message)
        check_limits(frames, self._limits)
        deadline = time.monotonic() + timeout_s
        with self._link.lock:
            self._link.check()
            self._catch_up()
            while not self._link.joined or self._under_way >= self._capacity:
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0:
                    return False
                self._link.wait(remaining_s)
                self._catch_up()
            self._link.send([handshake.DATA, *frames])
            self._under_way += 1
            return True

    def close(self) -> None:
        self._link.close(_LINGER_S)

    def _catch_up(self) -> None:
        while (frames := self._link.receive()) is not None:
            command = frames[0].bytes
            if command == handshake.TAKEN and len(frames) == 2:
                self._under_way -= _count(handshake.unpack(frames[1].buffer), "count")
            elif command == handshake.WELCOME:
                self._settle(self._link.welcome(frames) or {})

    def _settle(self, welcome: dict[str, Any]) -> None:
        """Agree with the receiver on what is under way; the rest of it was lost with the connection."""
        under_way = _count(welcome, "under_way")
        lost = self._under_way - under_way
        if lost > 0:
            self.dropped["lost"] += lost
        self._under_way = under_way
        self._capacity = min(self._wanted, _count(welcome, "capacity"))
        limits = welcome.get("limits")
        values = limits if isinstance(limits, dict) else {}
        self._limits = Limits(**{field.name: _count(values, field.name) for field in fields(Limits)})


def _count(values: dict[str, Any], name: str) -> int:
    value = values.get(name)
    if type(value) is not int or value < 0:
        raise TransportError(
            f"a control message with {name} = {value!r:.40}; a count of 0 or more was expected"
        )
    return value
