"""The connecting end of a ZeroMQ channel: one DEALER socket that joins by a handshake.

It has no thread of its own. ZeroMQ reconnects by itself, and its event socket tells when it
did: the link then says HELLO again, and what was under way is settled by the new WELCOME.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport import handshake
from lamarckian_cli.transport.address import Address, check_connect
from lamarckian_cli.transport.codec import Buffer, MessageError
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.options import tune

_EVENTS = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_DISCONNECTED
)
_RECONNECT_MS, _RECONNECT_MAX_MS = 50, 1_000
_ARRIVED = int(zmq.POLLIN)


class Link:
    """A socket that is joined to a bound end. Hold `lock` around every call but `close`."""

    def __init__(
        self,
        address: Address,
        keys: JobKeys | None,
        *,
        role: str,
        name: str,
        extra: Callable[[], Mapping[str, Any]],  # more values for a HELLO, asked for at each of them
        max_frame_bytes: int,
    ) -> None:
        check_connect(address, keys)
        self.uri = address.uri
        self.lock = threading.Lock()
        self.joined = False  # the present connection was welcomed
        self.round_trip_s = 0.0  # from the latest HELLO to its WELCOME
        self._said_hello = 0.0
        self._keys, self._role, self._name, self._extra = keys, role, name, extra
        self._turn = 0
        self._hint = ""
        self._closing = False
        self._close_lock = threading.Lock()
        self._context = zmq.Context(io_threads=1)
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        try:
            self._events = self._socket.get_monitor_socket(_EVENTS)
            self._connect(address, max_frame_bytes)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poller = zmq.Poller()
        for source in (self._socket, self._events, self._wake_read):
            self._poller.register(source, zmq.POLLIN)

    def join(self, timeout_s: float) -> dict[str, Any]:
        """The WELCOME of the first handshake; TransportError, with the link closed, if it does not come."""
        try:
            deadline = time.monotonic() + timeout_s
            while True:
                with self.lock:
                    frames = self.receive()
                    if frames is not None and self.joined:
                        return self.welcome(frames) or {}
                    remaining_s = deadline - time.monotonic()
                    if remaining_s <= 0:
                        raise TransportError(self._no_answer(timeout_s))
                    self.wait(remaining_s)
        except BaseException:
            self.close()
            raise

    def receive(self) -> list[zmq.Frame] | None:
        """Next frames from the bound end, command first, or None if there are none now."""
        self._look_at_events()
        while int(self._socket.getsockopt(zmq.EVENTS)) & _ARRIVED:
            frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            command = frames[0].bytes if len(frames[0]) < 16 else b""
            if command == handshake.REFUSED and len(frames) == 2:
                reason = str(handshake.unpack(frames[1].buffer).get("reason", "no reason given"))
                raise TransportError(f"{self.uri} refused us: {reason}")
            if command == handshake.WELCOME:
                if self.welcome(frames) is None:
                    continue  # of a connection that is gone already
                self.joined = True
                self.round_trip_s = time.monotonic() - self._said_hello
            return frames
        return None

    def welcome(self, frames: Sequence[zmq.Frame]) -> dict[str, Any] | None:
        """The values of a WELCOME, or None if it does not answer our latest HELLO."""
        try:
            values = handshake.unpack(frames[1].buffer if len(frames) == 2 else b"")
        except MessageError:
            return None
        return values if values.get("turn") == self._turn else None

    def send(self, frames: Sequence[Buffer | zmq.Frame]) -> None:
        """Queue frames for the bound end; large ones are not copied."""
        self._socket.send_multipart(frames, zmq.NOBLOCK, copy=False)

    def wait(self, timeout_s: float) -> bool:
        """True as soon as `receive` may have news, False when the time is over."""
        ready = self._poller.poll(max(0, int(timeout_s * 1000 + 0.999)))
        self.check()
        return bool(ready)

    def check(self) -> None:
        """Raise TransportError if the link is closed, or another thread is about to close it."""
        if self._closing:
            raise TransportError(f"the {self._role} channel to {self.uri} is closed")

    def close(self, linger_s: float = 0.0) -> None:
        """Say good-bye and close, from any thread; what is queued has `linger_s` to leave. Twice is fine."""
        with self._close_lock:
            if self._closing:
                return
            self._closing = True
            os.write(self._wake_write, b"\0")  # the owner may be waiting, with the lock in its hands
        with self.lock:
            while (event := self._next_event()) is not None:
                self.joined = self.joined and event != zmq.EVENT_DISCONNECTED
            if self.joined:
                self.send([handshake.BYE])
            self._socket.disable_monitor()
            self._events.close(linger=0)
            self._socket.close(linger=int(linger_s * 1000) if self.joined else 0)
            self._context.term()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _connect(self, address: Address, max_frame_bytes: int) -> None:
        tune(self._socket, address, max_frame_bytes)
        self._socket.setsockopt(zmq.ROUTING_ID, secrets.token_hex(8).encode())
        self._socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
        if self._keys is not None:
            self._socket.setsockopt(zmq.CURVE_SERVERKEY, self._keys.server_public.encode())
            self._socket.setsockopt(zmq.CURVE_PUBLICKEY, self._keys.client_public.encode())
            self._socket.setsockopt(zmq.CURVE_SECRETKEY, self._keys.client_secret.encode())
        try:
            self._socket.connect(address.endpoint)
        except zmq.ZMQError as error:
            raise TransportError(
                f"cannot connect to {address.uri}: {error.strerror}; check the address"
            ) from error

    def _look_at_events(self) -> None:
        while (event := self._next_event()) is not None:
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._turn += 1
                self.joined = False
                self._said_hello = time.monotonic()
                values = handshake.hello(self._role, self._keys, self._name, self._turn, self._extra())
                self.send([handshake.HELLO, values])
            elif event == zmq.EVENT_DISCONNECTED:
                self.joined = False
            elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                raise TransportError(
                    f"{self.uri} refused our keys; pass the keys of the job that listens there"
                )
            else:
                self._hint = "; something listens there, but not with the keys of this job"

    def _next_event(self) -> int | None:
        if not int(self._events.getsockopt(zmq.EVENTS)) & _ARRIVED:
            return None
        return recv_monitor_message(self._events)["event"]

    def _no_answer(self, timeout_s: float) -> str:
        return (
            f"{self.uri} did not answer within {timeout_s:g} s{self._hint}; "
            "check that the learner runs and the address is right, or allow more time"
        )
