"""Weights from one learner to many subscribers, over ZeroMQ; only the newest version matters.

    DATA, policy, header, array, ...   publisher -> subscriber
    TAKEN, policy                      subscriber -> publisher: send me the next one

Plain PUB/SUB fills the queue of a slow subscriber and then drops the new versions: the
wrong ones. Here one message per policy is under way to a subscriber; when that was taken, the newest
one follows, and what came between was never sent. So a slow subscriber costs no
bandwidth, and a late one gets the newest weights with its WELCOME.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import zmq

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport import handshake
from lamarckian_cli.transport.address import Address
from lamarckian_cli.transport.codec import (
    Buffer,
    Limits,
    Message,
    MessageError,
    check_limits,
    decode,
    encode,
)
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.link import Link
from lamarckian_cli.transport.service import Service

_CONTROL_BYTES = 1 << 20
"""Largest frame that subscribers send: a HELLO with the versions they have."""

_NOTHING = -1  # older than every version


@dataclass(slots=True)
class _Newest:
    version: int
    frames: Sequence[Buffer | zmq.Frame]
    size_bytes: int


@dataclass(slots=True)
class _Slot:
    """One policy as one subscriber has it."""

    version: int = _NOTHING  # sent last
    under_way: bool = False


class ZmqPublisher:
    """The learner's end."""

    def __init__(self, address: Address, keys: JobKeys | None, *, limits: Limits) -> None:
        self.sent_bytes = 0  # header and arrays, over all subscribers
        self._limits = limits
        self._lock = threading.Lock()  # over the newest messages
        self._newest: dict[str, _Newest] = {}
        self._peers: dict[bytes, dict[str, _Slot]] = {}  # the service's thread only
        self._service = Service(
            address, keys, handshake.WEIGHTS, max_frame_bytes=_CONTROL_BYTES, handler=self
        )
        self.uri = self._service.uri
        self.dropped = self._service.dropped
        self._service.start()

    def publish(self, message: Message) -> None:
        """Make this the newest message of its policy; returns at once."""
        policy, version = label(message)
        frames = encode(message)
        check_limits(frames, self._limits)
        self._service.check()
        size = sum(memoryview(frame).nbytes for frame in frames)
        with self._lock:
            known = self._newest.get(policy)
            if known is not None and version == known.version:
                self.dropped["replayed"] += 1
                return
            check_grows(policy, version, _NOTHING if known is None else known.version)
            self._newest[policy] = _Newest(version, frames, size)
        self._service.wake()

    def close(self) -> None:
        self._service.close()

    # ------------------------------------------------------------------ in the service's thread

    def welcome(self, peer: bytes, hello: dict[str, Any]) -> dict[str, Any]:
        seen = hello.get("seen")
        has = seen.items() if isinstance(seen, dict) else ()
        self._peers[peer] = {policy: _Slot(version) for policy, version in has if type(version) is int}
        return {}

    def joined(self, peer: bytes) -> None:
        for policy in self._policies():
            self._offer(peer, policy)

    def arrived(self, peer: bytes, command: bytes, frames: Sequence[zmq.Frame]) -> None:
        policy = frames[0].bytes.decode(errors="replace") if frames else ""
        slot = self._peers.get(peer, {}).get(policy)
        if command != handshake.TAKEN or slot is None:
            self.dropped["garbled"] += 1
            return
        slot.under_way = False
        self._offer(peer, policy)

    def left(self, peer: bytes) -> None:
        self._peers.pop(peer, None)

    def woken(self) -> None:
        policies = self._policies()
        for peer in list(self._peers):
            for policy in policies:
                self._offer(peer, policy)

    def ended(self) -> None:
        self._peers.clear()

    def _policies(self) -> list[str]:
        with self._lock:
            return list(self._newest)

    def _offer(self, peer: bytes, policy: str) -> None:
        """Send the newest message to a peer that is free to take it and does not have it."""
        slots = self._peers.get(peer)
        if slots is None:
            return  # it left a moment ago
        slot = slots.setdefault(policy, _Slot())
        with self._lock:
            newest = self._newest.get(policy)
        if newest is None or slot.under_way or newest.version <= slot.version:
            return
        if not isinstance(newest.frames[0], zmq.Frame):  # wrapped once, then shared by all subscribers
            newest.frames = [zmq.Frame(frame, copy=False) for frame in newest.frames]
        if not self._service.send(peer, [handshake.DATA, policy.encode(), *newest.frames]):
            self.left(peer)
            return
        slot.version, slot.under_way = newest.version, True
        self.sent_bytes += newest.size_bytes


class ZmqSubscriber:
    """An actor's end."""

    def __init__(
        self, address: Address, keys: JobKeys | None, *, name: str, timeout_s: float, limits: Limits
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._limits = limits
        self._seen: dict[str, int] = {}  # policy -> newest version
        self._link = Link(
            address,
            keys,
            role=handshake.WEIGHTS,
            name=name,
            extra=self._hello,
            max_frame_bytes=limits.frame_bytes,
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

    def _hello(self) -> Mapping[str, Any]:
        return {"seen": self._seen}

    def _collect(self) -> list[Message]:
        news: dict[str, Message] = {}
        while (frames := self._link.receive()) is not None:
            if frames[0].bytes != handshake.DATA or len(frames) < 3:
                continue
            self._link.send([handshake.TAKEN, frames[1].bytes])
            try:
                message = decode([frame.buffer for frame in frames[2:]], self._limits)
                policy, version = label(message)
            except MessageError as error:
                self.dropped[error.reason] += 1
                continue
            if version <= self._seen.get(policy, _NOTHING):
                self.dropped["replayed"] += 1
                continue
            self._seen[policy] = version
            news[policy] = message
        return list(news.values())


def label(message: Message) -> tuple[str, int]:
    """Policy name and version of a message of weights; MessageError if its header lacks them."""
    policy, version = message.header.get("policy"), message.header.get("version")
    if not isinstance(policy, str) or type(version) is not int or version < 0:
        raise MessageError(
            "header",
            f"weights with policy = {policy!r:.40} and version = {version!r:.40} in their header; "
            "the policy's name and a version of 0 or more are needed",
        )
    return policy, version


def check_grows(policy: str, version: int, newest: int) -> None:
    """Publishing backwards would leave every actor with the wrong weights, so it is an error."""
    if version < newest:
        raise TransportError(
            f"version {version} of policy {policy!r} is older than version {newest}, already published; "
            "versions of a policy only grow: use another policy name for other weights"
        )
