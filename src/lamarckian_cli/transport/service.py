"""The bound end of a ZeroMQ channel: one ROUTER socket and the one thread that owns it.

Joining must work while the learner is busy, so a thread answers handshakes and not the
learner's own calls. It sleeps in poll() and touches no array: frames pass by reference.
Each service has a ZeroMQ context of its own, so that its allow list (ZAP, RFC 27) lies in
the same thread, and closing it ends everything it started.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import zmq

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport import handshake
from lamarckian_cli.transport.address import Address, check_bind, remove_file
from lamarckian_cli.transport.codec import Buffer, MessageError
from lamarckian_cli.transport.door import Door
from lamarckian_cli.transport.keys import JobKeys, z85_bytes
from lamarckian_cli.transport.options import tune

_BATCH = 64
"""Messages taken from the socket before other duties get their turn."""

_JOIN_TIMEOUT_S = 5.0

_LOOK_EVERY_S = 30.0
"""How often it is looked which peers are gone without a good-bye."""


class Unwelcome(Exception):
    """A peer is not let in; the text says why, and is told to it."""


class Handler(Protocol):
    """What a channel does with its peers. Every method runs in the service's thread."""

    def welcome(self, peer: bytes, hello: dict[str, Any]) -> dict[str, Any]:
        """Take in a peer that joins (again); the answer goes into its WELCOME. May raise Unwelcome."""

    def joined(self, peer: bytes) -> None:
        """The WELCOME is on its way: anything sent to the peer from here on arrives after it."""

    def arrived(self, peer: bytes, command: bytes, frames: Sequence[zmq.Frame]) -> None:
        """Something from a peer, joined or not."""

    def left(self, peer: bytes) -> None:
        """The peer said good-bye, or cannot be reached any more."""

    def woken(self) -> None:
        """`Service.wake` was called at least once since the last time."""

    def ended(self) -> None:
        """The service is closed or failed; nothing comes any more."""


class Service:
    """Owns the sockets of a bound end. Only `wake`, `check` and `close` may be called by other threads."""

    def __init__(
        self, address: Address, keys: JobKeys | None, role: str, *, max_frame_bytes: int, handler: Handler
    ) -> None:
        check_bind(address, keys)
        self.dropped: Counter[str] = Counter()
        self._address, self._keys, self._role, self._handler = address, keys, role, handler
        self._failure: BaseException | None = None
        self._closing = False
        self._woken = False
        self._joined: set[bytes] = set()  # peers that are welcome; the thread's own, like the next three
        self._doubtful: set[bytes] = set()  # those of them that could not be reached at the last look
        self._parted: set[bytes] = set()  # those that said good-bye, as long as their connection is there
        self._look_at = time.monotonic() + _LOOK_EVERY_S
        self._wake_lock = threading.Lock()  # keeps a wake from writing to a descriptor just closed
        self._context = zmq.Context(io_threads=1)
        self._zap: zmq.Socket[bytes] | None = None
        self._door: Door | None = None
        self._router: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        try:
            self._bind(max_frame_bytes)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        endpoint = self._router.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        self.uri = endpoint.rstrip(b"\0").decode() if address.scheme == "tcp" else address.uri
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name=f"{role} {self.uri}", daemon=True)

    def start(self) -> None:
        """Begin to answer. Apart from the constructor, so that the handler can be complete first."""
        self._thread.start()

    def wake(self) -> None:
        """Have the thread call `handler.woken` soon. Cheap, from any thread, never blocks."""
        if self._woken:
            return
        self._woken = True
        with self._wake_lock:
            if not self._closing:
                os.write(self._wake_write, b"\0")

    def check(self) -> None:
        """Raise TransportError if the channel is closed or its thread died."""
        if self._failure is not None:
            raise TransportError(f"the {self._role} channel {self.uri} failed: {self._failure!r}") from (
                self._failure
            )
        if self._closing:
            raise TransportError(f"the {self._role} channel {self.uri} is closed")

    def send(self, peer: bytes, frames: Sequence[Buffer | zmq.Frame]) -> bool:
        """Send to one peer, from the service's thread only; False if the peer is gone."""
        try:
            self._router.send_multipart([peer, *frames], zmq.NOBLOCK, copy=False)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True

    def close(self) -> None:
        """End the thread, close the sockets and remove the socket file. Twice is fine."""
        with self._wake_lock:
            if self._closing:
                return
            self._closing = True
            os.write(self._wake_write, b"\0")
        self._thread.join(_JOIN_TIMEOUT_S)
        if self._thread.is_alive():
            raise TransportError(f"the thread of {self.uri} did not end within {_JOIN_TIMEOUT_S:g} s")
        self._context.term()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _bind(self, max_frame_bytes: int) -> None:
        router, address = self._router, self._address
        tune(router, address, max_frame_bytes)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # a send to a peer that is gone says so
        router.setsockopt(zmq.ROUTER_HANDOVER, 1)  # a peer that reconnects is known again
        if self._keys is not None:
            # The allow list has to be there before the first stranger knocks.
            self._zap = self._context.socket(zmq.REP)
            self._zap.linger = 0
            self._zap.bind("inproc://zeromq.zap.01")
            router.setsockopt(zmq.ZAP_DOMAIN, b"lamarck")
            router.setsockopt(zmq.CURVE_SERVER, 1)
            router.setsockopt(zmq.CURVE_SECRETKEY, self._keys.server_secret.encode())
            self._door = Door(router)
        try:
            router.bind(address.endpoint)
        except zmq.ZMQError as error:
            raise TransportError(_why_not_bound(address, error)) from error

    def _run(self) -> None:
        try:
            self._serve()
        except BaseException as error:
            self._failure = error  # told to whoever uses the channel next
        finally:
            remove_file(self._address)  # while it is ours: a moment later another may have bound it
            if self._door is not None:
                self._door.close()
            self._router.close(linger=0)
            if self._zap is not None:
                self._zap.close(linger=0)
            self._handler.ended()

    def _serve(self) -> None:
        poller = zmq.Poller()
        watched = None if self._door is None else self._door.monitor
        for source in (self._wake_read, self._router, self._zap, watched):
            if source is not None:
                poller.register(source, zmq.POLLIN)
        while not self._closing:
            ready = dict(poller.poll(max(0, 1 + int(1000 * (self._look_at - time.monotonic())))))
            if self._wake_read in ready:
                os.read(self._wake_read, 4096)
                self._woken = False  # before looking: what comes after it wakes us again
                self._handler.woken()
            if self._zap in ready:
                self._admit()
            if self._router in ready:
                self._take_in()
            if watched in ready:
                self._count_strangers()
            if time.monotonic() >= self._look_at:
                self._look()
                self._count_strangers()

    def _take_in(self) -> None:
        for _ in range(_BATCH):
            try:
                frames = self._router.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            peer = frames[0].bytes
            command = frames[1].bytes if len(frames) > 1 and len(frames[1]) < 16 else b""
            if command == handshake.HELLO:
                self._answer(peer, frames[2:])
            elif command == handshake.BYE:
                self._parted.add(peer)
                self._forget(peer)
            elif command:
                self._handler.arrived(peer, command, frames[2:])
            else:
                self.dropped["garbled"] += 1

    def _answer(self, peer: bytes, frames: Sequence[zmq.Frame]) -> None:
        try:
            hello = handshake.unpack(frames[0].buffer if frames else b"")
        except MessageError as error:
            self.dropped[error.reason] += 1
            return
        try:
            reason = handshake.objection(hello, self._role, self._keys)
            if reason or peer in self._parted:
                raise Unwelcome(reason or "it said good-bye; let it join as a new one")
            answer = {**self._handler.welcome(peer, hello), "turn": hello.get("turn")}
        except Unwelcome as objection:
            self.dropped["refused"] += 1
            self.send(peer, [handshake.REFUSED, handshake.pack({"reason": str(objection)})])
            return
        self._joined.add(peer)
        self._doubtful.discard(peer)
        if self.send(peer, [handshake.WELCOME, handshake.pack(answer)]):
            self._handler.joined(peer)
        else:
            self._forget(peer)

    def _look(self) -> None:
        """Forget the peers that are gone without a good-bye: killed, switched off, out of reach.

        Twice, because what such a peer sent last may have waited in the socket at the first look.
        """
        lost = {peer for peer in self._joined if not self.send(peer, [handshake.ALIVE])}
        for peer in lost & self._doubtful:
            self._forget(peer)
        self._doubtful = lost & self._joined
        self._parted = {peer for peer in self._parted if self.send(peer, [handshake.ALIVE])}
        self._look_at = time.monotonic() + _LOOK_EVERY_S

    def _forget(self, peer: bytes) -> None:
        self._joined.discard(peer)
        self._handler.left(peer)

    def _count_strangers(self) -> None:
        if self._door is not None:
            self._door.look()
            if self._door.strangers:
                self.dropped["stranger"] = self._door.strangers

    def _admit(self) -> None:
        """Answer one request of ZeroMQ's authentication protocol: the job's client key, or nobody."""
        assert self._zap is not None
        assert self._keys is not None
        version, request, _domain, _address, _identity, mechanism, *credentials = self._zap.recv_multipart()
        known = mechanism == b"CURVE" and credentials == [z85_bytes(self._keys.client_public)]
        status = [b"200", b"OK"] if known else [b"400", b"not a key of this job"]
        self._zap.send_multipart([version, request, *status, b"", b""])


def _why_not_bound(address: Address, error: zmq.ZMQError) -> str:
    if error.errno == zmq.EADDRINUSE:
        return (
            f"port {address.port} of {address.uri} is in use; stop the program that listens there, "
            "or use port 0 to get a free one"
        )
    return f"cannot listen on {address.uri}: {error.strerror}; use an address of this machine and a free port"
