"""Unrolls through one machine: in from its actors, on to the learner in large messages."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport.address import parse
from lamarckian_cli.transport.codec import LIMITS, Limits
from lamarckian_cli.transport.gather import ZmqReceiver, ZmqSender
from lamarckian_cli.transport.keys import JobKeys

_WAIT_S = 0.2  # how long a wait lasts before it is looked whether to stop
_BUNDLE_BYTES = 1 << 24  # beyond it a bundle is closed; what waits goes into the next


class UnrollForwarder:
    """Takes from `uri` (ipc), gives to the learner's gather channel; what is not taken there waits here.

    An actor has `capacity` messages here, and as many for each of `actors` may wait at the learner.
    """

    def __init__(self, uri: str, *, capacity: int = 1, limits: Limits = LIMITS) -> None:
        self.messages = 0
        self.bundles = 0
        self.sent_bytes = 0
        self._receiver = ZmqReceiver(parse(uri), None, capacity=capacity, limits=limits)
        self._capacity = capacity
        self.uri = self._receiver.uri
        self.dropped = self._receiver.dropped
        self._sender: ZmqSender | None = None
        self._stop = threading.Event()
        self._error: Exception | None = None  # what ended the thread
        self._thread = threading.Thread(target=self._run, name=f"forward {self.uri}", daemon=True)

    def start(self, learner: str, *, keys: JobKeys, actors: int, name: str, timeout_s: float) -> None:
        """Join the learner and begin; TransportError if it does not answer in time."""
        self._sender = ZmqSender(
            parse(learner), keys, capacity=self._capacity, name=name, timeout_s=timeout_s, senders=actors
        )
        self._thread.start()

    def status(self) -> dict[str, Any]:
        """How it stands, as plain values; TransportError if it passes nothing on any more."""
        if self._error is not None:
            raise TransportError(
                f"unrolls are not passed on any more: {self._error or type(self._error).__name__}"
            ) from self._error
        dropped = Counter(self.dropped)
        if self._sender is not None:
            dropped.update(self._sender.dropped)
        return {
            "messages": self.messages,
            "bundles": self.bundles,
            "sent_bytes": self.sent_bytes,
            "dropped": dict(dropped),
        }

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5.0)
        if self._sender is not None:
            self._sender.close()
        self._receiver.close()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._pass_on()
        except Exception as error:  # whatever it is, whoever asks how it stands must hear of it
            if not self._stop.is_set():
                self._error = error

    def _pass_on(self) -> None:
        """One bundle of what is here, as soon as there is something and the learner has room."""
        sender = self._sender
        assert sender is not None
        first = self._receiver.receive_frames(_WAIT_S)
        if first is None:
            return
        room = 0
        while not room:
            if self._stop.is_set():
                return
            room = sender.free(_WAIT_S)
        bundle, size = [first], _size(first)
        while len(bundle) < room and size < _BUNDLE_BYTES:
            more = self._receiver.receive_frames(0.0)
            if more is None:
                break
            bundle.append(more)
            size += _size(more)
        self.messages += len(bundle)  # before it is on its way, so that the receiver's count is no larger
        self.bundles += 1
        self.sent_bytes += size
        sender.send_bundle(bundle)


def _size(frames: Any) -> int:
    return sum(len(frame) for frame in frames)
