"""Socket options that both ends of a ZeroMQ channel share."""

from __future__ import annotations

import zmq

from lamarckian_cli.transport.address import Address

_HEARTBEAT_MS, _HEARTBEAT_TIMEOUT_MS = 10_000, 60_000
_UNANSWERED_MS = 10_000


def tune(socket: zmq.Socket[bytes], address: Address, max_frame_bytes: int) -> None:
    """Common settings, before the socket binds or connects."""
    socket.linger = 0
    # The channels' own protocols bound what is under way, peer by peer; ZeroMQ's count would interfere.
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    # ZeroMQ hangs up on a larger frame before it reserves memory for it.
    socket.setsockopt(zmq.MAXMSGSIZE, max_frame_bytes)
    if address.scheme == "tcp":
        socket.setsockopt(zmq.IPV6, int(":" in address.host))
        # A machine that vanishes closes no connection. What was sent must be acknowledged soon; where
        # nothing was, a minute without a heartbeat ends it, which allows for the largest frame.
        socket.setsockopt(zmq.TCP_MAXRT, _UNANSWERED_MS)
        socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_TIMEOUT_MS)
