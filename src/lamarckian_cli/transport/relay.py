"""Weights through one machine: in from its parent in the tree, on to its children and its actors.

A piece that arrives goes into shared memory and, as it came, to the children (cut-through).
A parent can be changed at any time: the new one is told what is here, and sends the newest.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport import handshake
from lamarckian_cli.transport.address import parse
from lamarckian_cli.transport.codec import LIMITS, Layout, Limits
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.link import Link
from lamarckian_cli.transport.shared import NO_ROOM, Draft, SharedPublisher
from lamarckian_cli.transport.stream import Stream
from lamarckian_cli.transport.weights import Intake, ZmqPublisher

_RETRY_S = 1.0  # between two tries to join a parent that refuses
_WAIT_S = 60.0  # a wait ends at once where something is to be done
_JOIN_TIMEOUT_S = 5.0


class WeightsRelay:
    """Follows one parent at a time, in a thread of its own."""

    def __init__(
        self,
        uri: str,
        shared_uri: str,
        *,
        keys: JobKeys,
        name: str = "",
        join_timeout_s: float = _JOIN_TIMEOUT_S,
        limits: Limits = LIMITS,
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self.received_bytes = 0
        self._keys, self._name, self._limits = keys, name, limits
        self._join_timeout_s = join_timeout_s
        self._children = ZmqPublisher(parse(uri), keys, limits=limits)
        try:
            self._actors = SharedPublisher(parse(shared_uri), None, limits=limits)
        except BaseException:
            self._children.close()
            raise
        self.uri, self.shared_uri = self._children.uri, self._actors.uri
        self._intake = Intake(self, limits, self.dropped)
        self._drafts: dict[str, Draft] = {}
        self._began: dict[str, float] = {}  # policy -> when its stream began
        self._bytes_per_s = 0.0  # of the last version, as it arrived
        self._changed = threading.Condition()  # over the next three
        self._wanted = ""
        self._link: Link | None = None
        self._closing = False
        self._error = ""
        self._thread = threading.Thread(target=self._run, name=f"relay {self.uri}", daemon=True)
        self._thread.start()

    def hang(self, parent: str) -> None:
        """Follow another parent from now on; what it does not have, nobody here gets."""
        with self._changed:
            if parent == self._wanted:
                return
            self._wanted = parent
            self._error = ""
            link = self._link
            self._changed.notify_all()
        if link is not None:
            link.close()

    def status(self) -> dict[str, Any]:
        """How it stands, as plain values."""
        with self._changed:
            link = self._link
            return {
                "parent": self._wanted,
                "joined": link is not None and link.joined,
                "error": self._error,
                "versions": dict(self._intake.seen),
                "children": self._children.subscribers,
                "sent_bytes": self._children.sent_bytes,
                "received_bytes": self.received_bytes,
                "bytes_per_s": self._bytes_per_s,
                "round_trip_s": 0.0 if link is None else link.round_trip_s,
                "dropped": dict(self.dropped + self._children.dropped + self._actors.dropped),
            }

    def close(self) -> None:
        with self._changed:
            self._closing = True
            link = self._link
            self._changed.notify_all()
        if link is not None:
            link.close()
        self._thread.join(_JOIN_TIMEOUT_S)
        self._children.close()
        self._actors.close()

    # ------------------------------------------------------------------ in the relay's thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._wanted)
                if self._closing:
                    return
                parent = self._wanted
            try:
                self._follow(parent)
            except TransportError as error:
                self._pause(parent, str(error))

    def _pause(self, parent: str, error: str) -> None:
        """Before a parent is tried again, unless another one is wanted by now."""
        with self._changed:
            if self._wanted == parent and not self._closing:
                self._error = error
                self._changed.wait_for(lambda: self._closing or self._wanted != parent, _RETRY_S)

    def _follow(self, parent: str) -> None:
        link = Link(
            parse(parent),
            self._keys,
            role=handshake.WEIGHTS,
            name=self._name,
            extra=self._hello,
            max_frame_bytes=self._limits.frame_bytes,
        )
        with self._changed:
            self._link = link
            wanted = self._wanted == parent and not self._closing
        try:
            if wanted:
                link.join(self._join_timeout_s)
                if NO_ROOM not in self._error:  # which only a version that is complete disproves
                    self._error = ""
            while wanted:
                with link.lock:
                    link.check()
                    while (frames := link.receive()) is not None:
                        self.received_bytes += sum(len(frame) for frame in frames[2:])
                        self._intake.take(link, frames)
                    link.wait(_WAIT_S)
        finally:
            with self._changed:
                self._link = None
            link.close()

    def _hello(self) -> Mapping[str, Any]:
        self._intake.restart()
        return {"seen": self._intake.seen}

    # ------------------------------------------------------------------ where weights are put together

    def begin(self, stream: Stream, layout: Layout) -> Sequence[memoryview]:
        self._began[stream.policy] = time.monotonic()
        draft = self._actors.draft(stream.policy, stream.head, stream.sizes)
        self._drafts[stream.policy] = draft
        self._children.offer(stream)
        return draft.targets

    def grown(self, stream: Stream) -> None:
        self._children.grown()

    def complete(self, stream: Stream) -> None:
        seconds = time.monotonic() - self._began[stream.policy]
        self._bytes_per_s = stream.size_bytes / max(seconds, 1e-6)
        self._actors.commit(self._drafts.pop(stream.policy), stream.policy, stream.version)
        self._error = ""
