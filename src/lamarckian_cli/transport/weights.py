"""Weights from one publisher to many subscribers, over ZeroMQ; only the newest version matters.

Plain PUB/SUB fills the queue of a slow subscriber and then drops the new versions: the
wrong ones. Here one version per policy is under way to a subscriber; when that was taken, the
newest one follows, and what came between was never sent. So a slow subscriber costs no
bandwidth, and a late one gets the newest weights with its WELCOME. Versions travel in pieces (see
`stream`), and a version may be offered before all of its pieces are there.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgpack
import numpy as np
import zmq

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport import handshake
from lamarckian_cli.transport.address import Address
from lamarckian_cli.transport.codec import Buffer, Layout, Limits, Message, MessageError
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.link import Link
from lamarckian_cli.transport.service import Service, Unwelcome
from lamarckian_cli.transport.stream import Assembly, Stream

_CONTROL_BYTES = 1 << 20
"""Largest frame that subscribers send: a HELLO with the versions they have."""

_HELLOS = 8
"""How often a subscriber may join while weights were on their way to it that it never took."""

NOTHING = -1  # older than every version


@dataclass(slots=True)
class _Slot:
    """One policy as one subscriber has it."""

    version: int = NOTHING  # sent last, to the end
    stream: Stream | None = None  # under way, or not known to be taken
    sent: int = 0  # pieces of it


@dataclass(slots=True)
class _Peer:
    """One subscriber."""

    slots: dict[str, _Slot]
    hellos: int = 0  # that cut short what was on its way, since it took a version; at _HELLOS it gets nothing


class ZmqPublisher:
    """The learner's end, and the end of a relay that others hang under."""

    def __init__(self, address: Address, keys: JobKeys | None, *, limits: Limits) -> None:
        self.sent_bytes = 0  # header and arrays, over all subscribers
        self._limits = limits
        self._lock = threading.Lock()  # over the newest streams
        self._newest: dict[str, Stream] = {}
        self._peers: dict[bytes, _Peer] = {}  # the service's thread only
        self._service = Service(
            address, keys, handshake.WEIGHTS, max_frame_bytes=_CONTROL_BYTES, handler=self
        )
        self.uri = self._service.uri
        self.dropped = self._service.dropped
        self._service.start()

    def publish(self, message: Message) -> None:
        """Make this the newest message of its policy; returns at once."""
        stream = Stream.of(message, self._limits)
        self._service.check()
        with self._lock:
            known = self._newest.get(stream.policy)
            if known is not None and stream.version == known.version:
                self.dropped["replayed"] += 1
                return
            check_grows(stream.policy, stream.version, NOTHING if known is None else known.version)
        self.offer(stream)

    def offer(self, stream: Stream) -> None:
        """Make a stream the newest of its policy, whatever is there of it; tell with `grown` of more."""
        with self._lock:
            before = self._newest.get(stream.policy)
            if before is not None and not before.complete:
                before.abandoned = True
            self._newest[stream.policy] = stream
        self._service.wake()

    def grown(self) -> None:
        """Pieces were added to a stream that was offered."""
        self._service.wake()

    @property
    def subscribers(self) -> int:
        return len(self._peers)

    def close(self) -> None:
        self._service.close()

    # ------------------------------------------------------------------ in the service's thread

    def welcome(self, peer: bytes, hello: dict[str, Any]) -> dict[str, Any]:
        # What was under way to it went with its last connection, and begins anew. Where there was no other
        # connection, the socket still holds all of it: that must not go on for ever.
        known = self._peers.setdefault(peer, _Peer({}))
        known.hellos += any(slot.stream is not None for slot in known.slots.values())
        known.slots = {}
        if known.hellos >= _HELLOS:
            raise Unwelcome(
                f"it joined {known.hellos} times without taking the weights that were on their way to it; "
                "let it join as a new one"
            )
        known.slots |= {policy: _Slot(version) for policy, version in seen_by(hello).items()}
        return {}

    def joined(self, peer: bytes) -> None:
        for policy in self._policies():
            self._send(peer, policy)

    def arrived(self, peer: bytes, command: bytes, frames: Sequence[zmq.Frame]) -> None:
        policy, version = taken(command, frames)
        known = self._peers.get(peer)
        slot = None if known is None else known.slots.get(policy)
        if known is None or slot is None or version is None:
            self.dropped["garbled"] += 1
            return
        if slot.stream is not None and slot.stream.version == version:
            slot.version, slot.stream = version, None
            known.hellos = 0
        self._send(peer, policy)

    def left(self, peer: bytes) -> None:
        self._peers.pop(peer, None)

    def woken(self) -> None:
        policies = self._policies()
        for peer in list(self._peers):
            for policy in policies:
                self._send(peer, policy)

    def ended(self) -> None:
        self._peers.clear()

    def _policies(self) -> list[str]:
        with self._lock:
            return list(self._newest)

    def _send(self, peer: bytes, policy: str) -> None:
        """Send a peer what is there of the version under way to it, or begin with the newest."""
        known = self._peers.get(peer)
        if known is None or known.hellos >= _HELLOS:
            return  # it left a moment ago, or is not welcome any more
        slot = known.slots.setdefault(policy, _Slot())
        name = policy.encode()
        if slot.stream is None or slot.stream.abandoned:
            with self._lock:
                newest = self._newest.get(policy)
            if newest is None or newest.version <= slot.version:
                return
            slot.stream, slot.sent = newest, 0
            if not self._send_counted(peer, [handshake.BEGIN, name, newest.announcement()], len(newest.head)):
                return
        pieces = slot.stream.pieces
        for piece in pieces[slot.sent : len(pieces)]:
            if not self._send_counted(peer, [handshake.PIECE, name, piece], len(piece)):
                return
            slot.sent += 1

    def _send_counted(self, peer: bytes, frames: Sequence[Buffer | zmq.Frame], size: int) -> bool:
        """Whether it was sent. It counts from before on: whoever has it already may look at the count."""
        self.sent_bytes += size
        if self._service.send(peer, frames):
            return True
        self.sent_bytes -= size
        self.left(peer)
        return False


class Sink(Protocol):
    """Where arriving weights are put together."""

    def begin(self, stream: Stream, layout: Layout) -> Sequence[memoryview]:
        """A place for every array, as bytes."""

    def grown(self, stream: Stream) -> None:
        """One more piece is there."""

    def complete(self, stream: Stream) -> None:
        """All of it is there."""


class Intake:
    """The subscribing side of the protocol, whoever sends and wherever it goes."""

    def __init__(self, sink: Sink, limits: Limits, dropped: Counter[str]) -> None:
        self.seen: dict[str, int] = {}  # policy -> newest version that is complete
        self._sink, self._limits, self._dropped = sink, limits, dropped
        self._open: dict[str, Assembly] = {}

    def take(self, link: Link, frames: Sequence[zmq.Frame]) -> None:
        """One message of the publisher; answers it over `link`."""
        command = frames[0].bytes
        if command not in (handshake.BEGIN, handshake.PIECE) or len(frames) != 3:
            return
        policy = frames[1].bytes.decode(errors="replace")
        try:
            if command == handshake.BEGIN:
                self._begin(link, policy, frames[2])
            elif policy in self._open:
                self._open[policy].add(frames[2])
                self._sink.grown(self._open[policy].stream)
            self._finish(link, policy)
        except MessageError as error:
            self._dropped[error.reason] += 1
            self._give_up(policy, link)

    def restart(self) -> None:
        """Another connection: what was under way on the last one will not come."""
        for policy in list(self._open):
            self._give_up(policy)

    def _begin(self, link: Link, policy: str, announcement: zmq.Frame) -> None:
        self._give_up(policy)
        stream, layout = Stream.announced(policy, announcement.buffer, self._limits)
        if stream.version <= self.seen.get(policy, NOTHING):
            self._dropped["replayed"] += 1
            confirm(link, policy, stream.version)
            return
        self._open[policy] = Assembly(stream, self._sink.begin(stream, layout))

    def _finish(self, link: Link, policy: str) -> None:
        assembly = self._open.get(policy)
        if assembly is None or not assembly.stream.complete:
            return
        del self._open[policy]
        self.seen[policy] = assembly.stream.version
        confirm(link, policy, assembly.stream.version)
        self._sink.complete(assembly.stream)

    def _give_up(self, policy: str, link: Link | None = None) -> None:
        """Forget what is under way; the publisher, told over `link`, goes on with the next version."""
        assembly = self._open.pop(policy, None)
        if assembly is None:
            return
        assembly.stream.abandoned = True
        if link is not None:
            confirm(link, policy, assembly.stream.version)


class Subscribing(ABC):
    """What every end has in common that hears of weights over a link."""

    def __init__(
        self, address: Address, keys: JobKeys | None, *, name: str, timeout_s: float, max_frame_bytes: int
    ) -> None:
        self._link = Link(
            address,
            keys,
            role=handshake.WEIGHTS,
            name=name,
            extra=self._hello,
            max_frame_bytes=max_frame_bytes,
        )
        self._link.join(timeout_s)

    def latest(self) -> list[Message]:
        """The newest message of every policy that has news since the last call; does not wait."""
        with self._link.lock:
            self._link.check()
            return self._collect()

    def wait(self, timeout_s: float) -> list[Message]:
        """Like `latest`, but waits for news; empty when the time is over."""
        deadline = time.monotonic() + timeout_s
        with self._link.lock:
            self._link.check()
            while not (messages := self._collect()):
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0:
                    break
                self._link.wait(remaining_s)
            return messages

    def close(self) -> None:
        self._link.close()

    @abstractmethod
    def _hello(self) -> Mapping[str, Any]:
        """What a HELLO says of the versions that are here."""

    @abstractmethod
    def _collect(self) -> list[Message]:
        """Take in what has come, with the link's lock in hand; the news."""


class ZmqSubscriber(Subscribing):
    """An end that keeps what arrives in memory of its own."""

    def __init__(
        self, address: Address, keys: JobKeys | None, *, name: str, timeout_s: float, limits: Limits
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._intake = Intake(self, limits, self.dropped)
        self._arrays: dict[str, tuple[Layout, tuple[np.ndarray, ...]]] = {}
        self._news: dict[str, Message] = {}
        super().__init__(address, keys, name=name, timeout_s=timeout_s, max_frame_bytes=limits.frame_bytes)

    def begin(self, stream: Stream, layout: Layout) -> Sequence[memoryview]:
        arrays = tuple(np.empty(shape, dtype) for dtype, shape in layout.arrays)
        self._arrays[stream.policy] = layout, arrays
        return [array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"") for array in arrays]

    def grown(self, stream: Stream) -> None:
        pass

    def complete(self, stream: Stream) -> None:
        layout, arrays = self._arrays.pop(stream.policy)
        for array in arrays:
            array.flags.writeable = False
        self._news[stream.policy] = Message(layout.kind, layout.header, arrays)

    def _hello(self) -> Mapping[str, Any]:
        self._intake.restart()
        return {"seen": self._intake.seen}

    def _collect(self) -> list[Message]:
        while (frames := self._link.receive()) is not None:
            self._intake.take(self._link, frames)
        news, self._news = list(self._news.values()), {}
        return news


def confirm(link: Link, policy: str, version: int) -> None:
    link.send([handshake.TAKEN, policy.encode(), msgpack.packb(version)])


def taken(command: bytes, frames: Sequence[zmq.Frame]) -> tuple[str, int | None]:
    """Policy and version that a subscriber confirms; version None if it does nothing of the kind."""
    if command != handshake.TAKEN or len(frames) != 2 or len(frames[1]) > 16:
        return "", None
    try:
        version = msgpack.unpackb(frames[1].buffer)
    except (ValueError, msgpack.UnpackException):
        return "", None
    return frames[0].bytes.decode(errors="replace"), version if type(version) is int else None


def seen_by(hello: Mapping[str, Any]) -> dict[str, int]:
    """The versions that a subscriber says it has."""
    seen = hello.get("seen")
    has = seen.items() if isinstance(seen, dict) else ()
    return {policy: version for policy, version in has if type(version) is int}


def check_grows(policy: str, version: int, newest: int) -> None:
    """Publishing backwards would leave every actor with the wrong weights, so it is an error."""
    if version < newest:
        raise TransportError(
            f"version {version} of policy {policy!r} is older than version {newest}, already published; "
            "versions of a policy only grow: use another policy name for other weights"
        )
