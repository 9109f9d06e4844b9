"""One version of one policy's weights, cut into pieces, so that a relay passes on what it has so far.

    BEGIN, policy, announcement      publisher -> subscriber
    PIECE, policy, bytes             as often as the announcement says
    TAKEN, policy, version           subscriber -> publisher: done with it, send me the next one

The announcement holds the version, the message's own header frame and the size of every
array; it is checked before anything is reserved. Pieces come in order, and none spans two arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgpack
import zmq

from lamarckian_cli.transport.codec import (
    Buffer,
    Layout,
    Limits,
    Message,
    MessageError,
    check_limits,
    encode,
    no_extensions,
    read_head,
)
from lamarckian_cli.transport.tree import CHUNK_BYTES

_SMALLEST_PIECE = 1 << 10


class Stream:
    """Pieces of one version, as far as they are here. One thread adds, others may read `pieces`."""

    def __init__(
        self, policy: str, version: int, head: bytes, sizes: Sequence[int], piece_bytes: int
    ) -> None:
        self.policy, self.version, self.head = policy, version, head
        self.sizes, self.piece_bytes = tuple(sizes), piece_bytes
        self.pieces: list[zmq.Frame] = []
        self.count = sum(-(-size // piece_bytes) for size in self.sizes)
        self.abandoned = False  # the rest will not come: begin with another one

    @classmethod
    def of(cls, message: Message, limits: Limits, piece_bytes: int = CHUNK_BYTES) -> Stream:
        """A whole message; its arrays are not copied. Raises MessageError."""
        policy, version = label(message.header)
        frames = encode(message)
        check_limits(frames, limits)
        views = [memoryview(frame) for frame in frames[1:]]
        stream = cls(policy, version, bytes(frames[0]), [view.nbytes for view in views], piece_bytes)
        for number, start, size in stream.cuts():
            stream.pieces.append(zmq.Frame(views[number][start : start + size], copy=False))
        return stream

    @classmethod
    def announced(cls, policy: str, announcement: Buffer, limits: Limits) -> tuple[Stream, Layout]:
        """A stream of which nothing is here yet, and what its message will be; MessageError if it lies."""
        version, head, sizes, piece_bytes = _unpack(announcement)
        layout = read_head(head, sizes, limits)
        if label(layout.header) != (policy, version):
            raise MessageError("header", "weights that are announced as others")
        if not _SMALLEST_PIECE <= piece_bytes <= limits.frame_bytes:
            raise MessageError("header", f"weights in pieces of {piece_bytes} bytes")
        return cls(policy, version, head, sizes, piece_bytes), layout

    def announcement(self) -> bytes:
        packed: bytes = msgpack.packb([self.version, self.head, self.sizes, self.piece_bytes])
        return packed

    @property
    def complete(self) -> bool:
        return len(self.pieces) == self.count

    @property
    def size_bytes(self) -> int:
        """Of header and arrays."""
        return len(self.head) + sum(self.sizes)

    def cuts(self) -> Iterator[tuple[int, int, int]]:
        """Array, first byte and size of every piece, in order."""
        for number, size in enumerate(self.sizes):
            for start in range(0, size, self.piece_bytes):
                yield number, start, min(self.piece_bytes, size - start)


class Assembly:
    """Puts the pieces of a stream where they belong."""

    def __init__(self, stream: Stream, targets: Sequence[memoryview]) -> None:
        self.stream = stream
        self._targets = targets  # of bytes, one an array
        self._cuts = stream.cuts()

    def add(self, piece: zmq.Frame) -> None:
        """Take in the next piece; MessageError if it has another size than announced."""
        number, start, size = next(self._cuts, (0, 0, -1))
        data = piece.buffer
        if data.nbytes != size:
            raise MessageError("truncated", f"a piece of {data.nbytes} bytes where {size} were announced")
        self._targets[number][start : start + size] = data
        self.stream.pieces.append(piece)


def label(header: dict[str, Any]) -> tuple[str, int]:
    """Policy name and version of a message of weights; MessageError if its header lacks them."""
    policy, version = header.get("policy"), header.get("version")
    if not isinstance(policy, str) or type(version) is not int or version < 0:
        raise MessageError(
            "header",
            f"weights with policy = {policy!r:.40} and version = {version!r:.40} in their header; "
            "the policy's name and a version of 0 or more are needed",
        )
    return policy, version


def _unpack(announcement: Buffer) -> tuple[int, bytes, list[int], int]:
    try:
        values = msgpack.unpackb(announcement, ext_hook=no_extensions)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise MessageError("garbled", f"an announcement that is not msgpack: {error}") from error
    if not isinstance(values, list) or len(values) != 4:
        raise MessageError("header", "an announcement that is not a list of 4")
    version, head, sizes, piece_bytes = values
    plain = type(version) is int and type(piece_bytes) is int and isinstance(head, bytes)
    if not plain or not isinstance(sizes, list) or not all(type(s) is int and s >= 0 for s in sizes):
        raise MessageError("header", "an announcement whose values have the wrong type")
    return version, head, sizes, piece_bytes
