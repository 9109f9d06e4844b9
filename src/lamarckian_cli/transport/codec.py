"""Messages and their bytes: one small msgpack header frame, then the raw buffer of every array.

    frame 0   msgpack [PROTOCOL, kind, header, [[dtype, shape], ...]]
    frame 1.. the bytes of one array each, in C order, little endian

Nothing here knows about sockets, and nothing is ever unpickled. Whatever bytes come in,
`decode` either gives a message or raises `MessageError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import msgpack
import numpy as np

from lamarckian_cli.errors import TransportError

PROTOCOL = 2
"""Version of the bytes on the wire, handshake included; both ends must speak the same one."""

Buffer: TypeAlias = bytes | bytearray | memoryview

_DTYPES: dict[str, np.dtype[Any]] = {
    dtype.str: dtype
    for dtype in map(
        np.dtype, ("?", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8")
    )
}


@dataclass(frozen=True, slots=True)
class Message:
    """What travels on a channel. Who sends a message gives its arrays away and writes to them no more."""

    kind: str
    header: dict[str, Any] = field(
        default_factory=dict
    )  # plain values: str, int, float, bool, None, list, dict
    arrays: tuple[np.ndarray, ...] = ()  # received arrays are read-only


@dataclass(frozen=True, slots=True)
class Layout:
    """A message without its data: dtype and shape of every array."""

    kind: str
    header: dict[str, Any]
    arrays: tuple[tuple[np.dtype[Any], tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a receiving end is willing to take in; anything larger is dropped and counted."""

    header_bytes: int = 1 << 20
    frame_bytes: int = 1 << 30
    message_bytes: int = 1 << 31
    arrays: int = 1024
    dims: int = 16


LIMITS = Limits()


class MessageError(TransportError):
    """A message that cannot be sent, or bytes that are not a message.

    `reason` is one word for the counters: oversized, garbled, protocol, header, frames,
    dtype, shape or truncated.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def encode(message: Message) -> list[Buffer]:
    """Frames of a message: `[header, array, array, ...]`.

    C-contiguous arrays are not copied: their frames are views on the arrays' own memory.
    Raises MessageError for a dtype that is not carried or a header that is not plain.
    """
    check_dtypes(message)
    layout: list[tuple[str, tuple[int, ...]]] = []
    buffers: list[Buffer] = []
    for array in message.arrays:
        # Not ascontiguousarray: that would turn a scalar into a vector.
        whole = array if array.flags.c_contiguous else array.copy(order="C")
        layout.append((array.dtype.str, array.shape))
        buffers.append(whole.reshape(-1).view(np.uint8).data if whole.size else b"")
    try:
        head = msgpack.packb([PROTOCOL, message.kind, message.header, layout], default=_plain)
    except (TypeError, ValueError, OverflowError) as error:
        raise MessageError(
            "header",
            f"the header of a {message.kind!r} message cannot be packed: {error}; "
            "use str, int, float, bool, None, bytes, lists and dicts of these",
        ) from error
    return [head, *buffers]


def decode(frames: Sequence[Buffer], limits: Limits = LIMITS) -> Message:
    """The message in these frames; its arrays are read-only views on the frames, not copies.

    Raises MessageError, and nothing else, whatever the frames hold. An array whose frame
    does not start at a multiple of its item size is copied: libraries below want it aligned.
    """
    if not frames:
        raise MessageError("frames", "a message without frames")
    sizes = [memoryview(frame).nbytes for frame in frames]
    layout = read_head(frames[0], sizes[1:], limits)
    arrays = tuple(map(_array, layout.arrays, frames[1:]))
    return Message(layout.kind, layout.header, arrays)


def read_head(head: Buffer, sizes: Sequence[int], limits: Limits = LIMITS) -> Layout:
    """What the first frame of a message announces, checked against the sizes of its further frames.

    Raises MessageError, and nothing else. Nothing has been reserved for the arrays by then.
    """
    _check_sizes([memoryview(head).nbytes, *sizes], limits)
    kind, header, entries = _unpack_head(head)
    if len(entries) != len(sizes):
        raise MessageError(
            "frames", f"the header announces {len(entries)} arrays; the message has {len(sizes)}"
        )
    arrays = [
        _entry(n, entry, size, limits) for n, (entry, size) in enumerate(zip(entries, sizes, strict=True))
    ]
    return Layout(kind, header, tuple(arrays))


def check_dtypes(message: Message) -> None:
    """Raise MessageError unless channels carry the dtypes of all its arrays."""
    for number, array in enumerate(message.arrays):
        if array.dtype.str not in _DTYPES:
            raise MessageError(
                "dtype",
                f"array {number} of a {message.kind!r} message has dtype {array.dtype}; "
                "channels carry bool, integers and floats of 16, 32 and 64 bits in little endian",
            )


def check_limits(frames: Sequence[Buffer], limits: Limits) -> None:
    """Raise MessageError if a peer with these limits would drop the frames: the sender should know."""
    _check_sizes([memoryview(frame).nbytes for frame in frames], limits)


def _check_sizes(sizes: Sequence[int], limits: Limits) -> None:
    if len(sizes) - 1 > limits.arrays:
        raise MessageError("oversized", f"{len(sizes) - 1} arrays in a message; the limit is {limits.arrays}")
    if sizes[0] > limits.header_bytes:
        raise MessageError("oversized", f"a header of {sizes[0]} bytes; the limit is {limits.header_bytes}")
    if max(sizes) > limits.frame_bytes:
        raise MessageError("oversized", f"an array of {max(sizes)} bytes; the limit is {limits.frame_bytes}")
    if sum(sizes) > limits.message_bytes:
        raise MessageError(
            "oversized", f"a message of {sum(sizes)} bytes; the limit is {limits.message_bytes}"
        )


def _unpack_head(frame: Buffer) -> tuple[str, dict[str, Any], list[Any]]:
    try:
        head = msgpack.unpackb(frame, strict_map_key=True, ext_hook=no_extensions)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise MessageError("garbled", f"a header that is not msgpack: {error}") from error
    if not isinstance(head, list) or not head:
        raise MessageError("header", "a header that is not a list")
    if head[0] != PROTOCOL or type(head[0]) is not int:
        raise MessageError("protocol", f"a message of protocol {head[0]!r:.40}; this side speaks {PROTOCOL}")
    if len(head) != 4:
        raise MessageError("header", f"a header of {len(head)} fields; protocol {PROTOCOL} has 4")
    _, kind, header, layout = head
    if not isinstance(kind, str) or not isinstance(header, dict) or not isinstance(layout, list):
        raise MessageError("header", "a header whose kind, values or layout have the wrong type")
    if not all(isinstance(key, str) for key in header):
        raise MessageError("header", "a header with a key that is not text")
    return kind, header, layout


def _entry(number: int, entry: Any, actual: int, limits: Limits) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Dtype and shape of one array, if it is a plain one that fills `actual` bytes."""
    if not isinstance(entry, list) or len(entry) != 2:
        raise MessageError("header", f"the layout of array {number} is not a dtype and a shape")
    name, shape = entry
    dtype = _DTYPES.get(name) if isinstance(name, str) else None
    if dtype is None:
        raise MessageError("dtype", f"array {number} has dtype {name!r:.40}, which channels do not carry")
    # `type is int` because True is an int as well.
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise MessageError("shape", f"array {number} has the shape {shape!r:.80}")
    if len(shape) > limits.dims:
        raise MessageError("shape", f"array {number} has {len(shape)} dimensions; the limit is {limits.dims}")
    # Python's integers do not overflow, so a product beyond 64 bits is simply too many bytes.
    expected = prod(shape) * dtype.itemsize
    if expected != actual:
        raise MessageError(
            "truncated" if expected > actual else "shape",
            f"array {number} is announced as {dtype}{shape!r:.80}, {expected} bytes; its frame has {actual}",
        )
    if not actual:
        try:
            np.empty(shape, dtype)
        except (ValueError, OverflowError) as error:  # an empty one may announce a dimension over 63 bits
            raise MessageError("shape", f"array {number} has the shape {shape!r:.80}: {error}") from error
    return dtype, tuple(shape)


def _array(entry: tuple[np.dtype[Any], tuple[int, ...]], frame: Buffer) -> np.ndarray:
    """One array as a read-only view on its frame."""
    dtype, shape = entry
    array = np.frombuffer(frame, dtype).reshape(shape) if prod(shape) else np.empty(shape, dtype)
    if not array.flags.aligned:
        array = array.copy()
    array.flags.writeable = False
    return array


def _plain(value: object) -> object:
    """NumPy's scalars are the one kind of value that slips into headers."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not a plain value")


def no_extensions(code: int, data: bytes) -> object:
    """msgpack's hook for types that no peer of ours sends."""
    raise ValueError(f"extension type {code} is not allowed")
