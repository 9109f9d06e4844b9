"""Work to many workers and results back, over ZeroMQ: each message goes to one worker by its name.

    DATA, header, array, ...      bound end -> worker: work; worker -> bound end: a result

Workers only connect, so one address is all that a job opens, however many there are. A
worker answers each message with one: what it sends beyond that is dropped and counted. So
queues are bounded by what the bound end hands out.

A connection that is lost takes what was under way on it. The bound end is told (`rejoined`)
when a worker says HELLO again, and decides what to hand out anew.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

import zmq

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport import handshake
from lamarckian_cli.transport.address import parse
from lamarckian_cli.transport.codec import LIMITS, Buffer, Limits, Message, MessageError, decode, encode
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.link import Link
from lamarckian_cli.transport.service import Service, Unwelcome

LINGER_S = 1.0
"""How long a worker's last result may take to leave when it closes."""


class Exchange:
    """The bound end: `send` to a worker that has joined, `receive` from any."""

    def __init__(self, uri: str, *, keys: JobKeys | None = None, limits: Limits = LIMITS) -> None:
        """Listen at an ipc:// or tcp:// address. TransportError where that is not possible or safe."""
        address = parse(uri)
        if not (address.scheme == "tcp" or uri.startswith("ipc:")):
            raise TransportError(f"{uri} cannot be an exchange; use ipc:// or tcp://")
        self._limits = limits
        self._peers: dict[str, bytes] = {}  # name -> peer; the service's thread writes
        self._names: dict[bytes, str] = {}
        self._owed: Counter[bytes] = Counter()  # messages that a peer may still send
        self._lock = threading.Lock()  # over the three above
        self._outbox: deque[tuple[bytes, list[Buffer]]] = deque()
        self._inbox: queue.SimpleQueue[tuple[str, Sequence[zmq.Frame]] | None] = queue.SimpleQueue()
        self._rejoined: deque[str] = deque()
        self._service = Service(
            address, keys, handshake.EXCHANGE, max_frame_bytes=limits.frame_bytes, handler=self
        )
        self.uri = self._service.uri
        self.dropped = self._service.dropped
        self._service.start()

    def send(self, name: str, message: Message) -> bool:
        """Hand a message to a worker; never waits. False, and nothing sent, where it has not joined."""
        self._service.check()
        with self._lock:
            peer = self._peers.get(name)
            if peer is None:
                return False
            self._owed[peer] += 1
        self._outbox.append((peer, encode(message)))
        self._service.wake()
        return True

    def receive(self, timeout_s: float) -> tuple[str, Message] | None:
        """Worker and message that arrived first, or None when the time is over (0: only look)."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._service.check()
            left_s = deadline - time.monotonic()
            try:
                item = self._inbox.get_nowait() if left_s <= 0 else self._inbox.get(timeout=left_s)
            except queue.Empty:
                return None
            if item is None:
                self._service.check()
                return None
            try:
                return item[0], decode([frame.buffer for frame in item[1]], self._limits)
            except MessageError as error:
                self.dropped[error.reason] += 1

    def present(self) -> set[str]:
        """Names of the workers that have joined and not left."""
        with self._lock:
            return set(self._peers)

    def rejoined(self) -> list[str]:
        """Workers whose connection was lost and made again since the last call."""
        names = []
        while self._rejoined:
            names.append(self._rejoined.popleft())
        return names

    def close(self) -> None:
        """Free everything. Twice is fine."""
        self._service.close()

    # ------------------------------------------------------------------ in the service's thread

    def welcome(self, peer: bytes, hello: dict[str, Any]) -> dict[str, Any]:
        name = str(hello.get("name"))
        with self._lock:
            if self._peers.get(name, peer) != peer:
                raise Unwelcome(f"another worker has joined as {name!r}; give each a name of its own")
            if peer in self._names:
                self._rejoined.append(name)
            self._peers[name], self._names[peer] = peer, name
            self._owed[peer] = 0
        return {}

    def joined(self, peer: bytes) -> None:
        pass

    def arrived(self, peer: bytes, command: bytes, frames: Sequence[zmq.Frame]) -> None:
        with self._lock:
            name = self._names.get(peer)
            if name is None or command != handshake.DATA:
                self.dropped["not joined" if name is None else "garbled"] += 1
                return
            if self._owed[peer] <= 0:
                self.dropped["over capacity"] += 1
                return
            self._owed[peer] -= 1
        self._inbox.put((name, frames))

    def left(self, peer: bytes) -> None:
        with self._lock:
            name = self._names.pop(peer, None)
            self._owed.pop(peer, None)
            if name is not None and self._peers.get(name) == peer:
                del self._peers[name]

    def woken(self) -> None:
        while self._outbox:
            peer, frames = self._outbox.popleft()
            # In vain if the worker is gone: whoever started it finds out, and hands the work out anew.
            self._service.send(peer, [handshake.DATA, *frames])

    def ended(self) -> None:
        self._inbox.put(None)


class ExchangeWorker:
    """A worker's end: `receive` work, `send` its result. Used by one thread, closed by any."""

    def __init__(
        self,
        uri: str,
        *,
        name: str,
        keys: JobKeys | None = None,
        timeout_s: float = 30.0,
        limits: Limits = LIMITS,
    ) -> None:
        """Join under a name of its own; TransportError if nobody answers in time, or refuses."""
        self._limits = limits
        self._link = Link(
            parse(uri),
            keys,
            role=handshake.EXCHANGE,
            name=name,
            extra=dict,
            max_frame_bytes=limits.frame_bytes,
        )
        self.dropped: Counter[str] = Counter()
        self._link.join(timeout_s)

    def receive(self, timeout_s: float) -> Message | None:
        """Next message, or None when the time is over."""
        deadline = time.monotonic() + timeout_s
        with self._link.lock:
            self._link.check()
            while True:
                frames = self._link.receive()
                if frames is None:
                    remaining_s = deadline - time.monotonic()
                    if remaining_s <= 0:
                        return None
                    self._link.wait(remaining_s)
                elif frames[0].bytes == handshake.DATA:
                    try:
                        return decode([frame.buffer for frame in frames[1:]], self._limits)
                    except MessageError as error:
                        self.dropped[error.reason] += 1

    def send(self, message: Message) -> None:
        """Send a result. While the connection is being made again, what is sent is lost: see `rejoined`."""
        frames = encode(message)
        with self._link.lock:
            self._link.check()
            if self._link.joined:
                self._link.send([handshake.DATA, *frames])
            else:
                self.dropped["lost"] += 1

    def close(self) -> None:
        """Say good-bye; what was sent has a second to leave. Twice is fine."""
        self._link.close(LINGER_S)
