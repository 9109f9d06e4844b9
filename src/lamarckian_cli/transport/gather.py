"""Unrolls from many actors to one learner, over ZeroMQ.

    DATA, header, array, ...                  sender -> receiver
    BUNDLE, [frames, ...], header, array ...  the same for several messages: how many frames each has
    TAKEN, {count}                            receiver -> sender: so many of yours were taken

A sender has at most `capacity` messages under way that the learner did not take yet; when
it reaches that number it waits, and `send` says False at its deadline. So every queue is
bounded, joining never stands behind data, and nothing is dropped but what is counted.

A node agent is a receiver for its machine's actors and one sender to the learner: it passes
on what waits as one bundle, frame by frame as it came (`Forwarder`).
"""

from __future__ import annotations

import queue
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import msgpack
import zmq

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport import handshake
from lamarckian_cli.transport.address import Address
from lamarckian_cli.transport.codec import (
    Limits,
    Message,
    MessageError,
    check_limits,
    decode,
    encode,
    no_extensions,
)
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.link import Link
from lamarckian_cli.transport.service import Service

MOST_SENDERS = 1024
"""For how many senders one may speak at most, where the receiver does not know their number."""

_LINGER_S = 1.0
"""How long the last unrolls may take to leave a sender that closes."""


_Item = tuple["ZmqReceiver", bytes, Sequence[zmq.Frame]]
_Queue = queue.SimpleQueue[_Item | None]


@dataclass(slots=True)
class _Peer:
    """One sender, as the receiver knows it."""

    allowed: int  # messages that may wait
    under_way: int = 0  # messages that arrived and were not taken
    gone: bool = False  # it left; forgotten as soon as its last message is taken


class ZmqReceiver:
    """The taking end: messages of all senders in the order of their arrival.

    A sender may have `capacity` messages waiting here, and one that speaks for others (a node
    agent) as many for each of them, but for no more than `senders`, whatever it says.
    What several receivers get can come out of one of them: the others are opened `beside` it.
    """

    def __init__(
        self,
        address: Address,
        keys: JobKeys | None,
        *,
        capacity: int,
        limits: Limits,
        senders: int = 1,
        beside: ZmqReceiver | None = None,
    ) -> None:
        self._capacity, self._limits = capacity, limits
        self._most_senders = min(senders, MOST_SENDERS)
        self._peers: dict[bytes, _Peer] = {}  # that joined; the service's thread alone changes it
        self.queue: _Queue = queue.SimpleQueue() if beside is None else beside.queue
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
            frames = self.receive_frames(deadline - time.monotonic())
            if frames is None:
                return None
            try:
                return decode([frame.buffer for frame in frames], self._limits)
            except MessageError as error:
                self.dropped[error.reason] += 1

    def receive_frames(self, timeout_s: float) -> Sequence[zmq.Frame] | None:
        """The frames of the next message, unread, or None when the time is over."""
        self._service.check()
        try:
            item = self.queue.get_nowait() if timeout_s <= 0 else self.queue.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if item is None:
            self._service.check()
            return None  # one that was opened beside this one was closed
        receiver, peer, frames = item
        receiver.took(peer)
        return frames

    def took(self, peer: bytes) -> None:
        """A message of this peer left the queue."""
        self._taken.append(peer)
        self._service.wake()

    @property
    def senders(self) -> int:
        """How many are joined, or have messages here; whoever is gone is forgotten within a minute or two."""
        return len(self._peers)

    def close(self) -> None:
        self._service.close()

    # ------------------------------------------------------------------ in the service's thread

    def welcome(self, peer: bytes, hello: dict[str, Any]) -> dict[str, Any]:
        # A peer that joins again has its messages before this HELLO here, or has lost them.
        senders = hello.get("senders")
        many = min(senders, self._most_senders) if type(senders) is int and senders >= 1 else 1
        known = self._peers.setdefault(peer, _Peer(0))
        known.allowed, known.gone = self._capacity * many, False
        return {"capacity": known.allowed, "under_way": known.under_way, "limits": asdict(self._limits)}

    def joined(self, peer: bytes) -> None:
        pass

    def arrived(self, peer: bytes, command: bytes, frames: Sequence[zmq.Frame]) -> None:
        known = self._peers.get(peer)
        if command not in (handshake.DATA, handshake.BUNDLE):
            self.dropped["garbled"] += 1
        elif known is None:
            self.dropped["not joined"] += 1
        else:
            messages = [frames] if command == handshake.DATA else _unbundle(frames, self.dropped)
            for message in messages:
                self._take_in(peer, known, message)

    def _take_in(self, peer: bytes, known: _Peer, frames: Sequence[zmq.Frame]) -> None:
        if known.under_way >= known.allowed:
            self.dropped["over capacity"] += 1
            return
        known.under_way += 1
        self.queue.put((self, peer, frames))

    def left(self, peer: bytes) -> None:
        known = self._peers.get(peer)
        if known is not None:
            known.gone = True
            self._forget_if_done(peer, known)

    def woken(self) -> None:
        counts: Counter[bytes] = Counter()
        while self._taken:
            counts[self._taken.popleft()] += 1
        for peer, count in counts.items():
            known = self._peers[peer]  # who has messages here is not forgotten
            known.under_way -= count
            # In vain if the sender was killed; the service finds that out, and tells by `left`.
            self._service.send(peer, [handshake.TAKEN, handshake.pack({"count": count})])
            self._forget_if_done(peer, known)

    def _forget_if_done(self, peer: bytes, known: _Peer) -> None:
        if known.gone and not known.under_way:
            del self._peers[peer]

    def ended(self) -> None:
        self.queue.put(None)


def _unbundle(frames: Sequence[zmq.Frame], dropped: Counter[str]) -> list[Sequence[zmq.Frame]]:
    """The messages of a bundle; none, and counted, if it lies about its frames."""
    try:
        counts = msgpack.unpackb(frames[0].buffer if frames else b"", ext_hook=no_extensions)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        counts = None
    whole = isinstance(counts, list) and all(type(count) is int and count >= 1 for count in counts)
    if not whole or sum(counts) != len(frames) - 1:
        dropped["garbled"] += 1
        return []
    messages, at = [], 1
    for count in counts:
        messages.append(frames[at : at + count])
        at += count
    return messages


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
        senders: int = 1,
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._wanted = capacity * senders
        self._under_way = 0  # sent and not known to be taken
        # What comes back is small, whatever the other end is.
        self._link = Link(
            address,
            keys,
            role=handshake.GATHER,
            name=name,
            extra=lambda: {"senders": senders},
            max_frame_bytes=1 << 20,
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
        with self._link.lock:
            if not self._free(timeout_s):
                return False
            self._link.send([handshake.DATA, *frames])
            self._under_way += 1
            return True

    def free(self, timeout_s: float) -> int:
        """How many messages may be sent now; waits until it is one at least, or the time is over."""
        with self._link.lock:
            return self._free(timeout_s)

    def send_bundle(self, messages: Sequence[Sequence[zmq.Frame]]) -> None:
        """Pass on messages of others, no more than `free` said, frame by frame as they came."""
        counts: bytes = msgpack.packb([len(frames) for frames in messages])
        with self._link.lock:
            self._link.check()
            self._link.send([handshake.BUNDLE, counts, *(frame for frames in messages for frame in frames)])
            self._under_way += len(messages)

    def _free(self, timeout_s: float) -> int:
        deadline = time.monotonic() + timeout_s
        self._link.check()
        self._catch_up()
        while not self._link.joined or self._under_way >= self._capacity:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return 0
            self._link.wait(remaining_s)
            self._catch_up()
        return self._capacity - self._under_way

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
