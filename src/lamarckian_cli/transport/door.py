"""Counts connections that never get in: no greeting of ZeroMQ's, no CURVE, or not the keys of this job.

What such a stranger sends, ZeroMQ throws away before any of ours sees it. Its monitor tells of
connections that were accepted, of handshakes that succeeded, and of connections that ended, but not
which handshake was whose. So strangers are those accepted for whom no handshake succeeded, less the
connections that may still be at it.
"""

from __future__ import annotations

import contextlib
import struct
import time

import zmq

HANDSHAKE_S = 30.0  # ZeroMQ's own limit for one
_EVENTS = zmq.Event.ACCEPTED | zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED


class Door:
    """Watches a socket that is about to be bound; used by the thread that owns it alone."""

    def __init__(self, watched: zmq.Socket[bytes]) -> None:
        self.strangers = 0  # so far; never less than before
        self._watched = watched
        self.monitor: zmq.Socket[bytes] = watched.get_monitor_socket(_EVENTS)
        self._accepted = self._succeeded = 0
        self._open: dict[int, float] = {}  # descriptor -> since when

    def look(self) -> None:
        """Take in what the monitor tells."""
        with contextlib.suppress(zmq.Again):
            while True:
                self._take_in(*struct.unpack("=Hi", self.monitor.recv_multipart(zmq.NOBLOCK)[0]))
        since = time.monotonic() - HANDSHAKE_S
        at_it = sum(began > since for began in self._open.values())
        self.strangers = max(self.strangers, self._accepted - self._succeeded - at_it)

    def close(self) -> None:
        """Before the watched socket is closed; the context ends only without open sockets."""
        self._watched.disable_monitor()
        self.monitor.close(linger=0)

    def _take_in(self, event: int, value: int) -> None:
        if event == zmq.Event.ACCEPTED:
            self._accepted += 1
            self._open[value] = time.monotonic()
        elif event == zmq.Event.HANDSHAKE_SUCCEEDED:
            self._succeeded += 1
        else:
            self._open.pop(value, None)
