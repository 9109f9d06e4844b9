"""Bytes that are ours come back as they were; bytes that are not never do harm."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as nps
import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamarckian_cli.errors import TransportError
from lamarckian_cli.transport import PROTOCOL, Limits, Message, MessageError, decode, encode

_DTYPES = ["?", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"]

_plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_arrays = nps.arrays(
    st.sampled_from(_DTYPES).map(np.dtype), nps.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
)
_messages = st.builds(
    Message,
    st.text(max_size=8),
    st.dictionaries(st.text(max_size=8), _plain, max_size=4),
    st.lists(_arrays, max_size=4).map(tuple),
)


@given(_messages)
def test_round_trip(message: Message) -> None:
    back = decode([bytes(frame) for frame in encode(message)])
    assert (back.kind, back.header) == (message.kind, message.header)
    assert len(back.arrays) == len(message.arrays)
    for got, sent in zip(back.arrays, message.arrays, strict=True):
        np.testing.assert_array_equal(got, sent, strict=True)
        assert not got.flags.writeable
        assert got.flags.aligned


def test_large_arrays_are_copied_nowhere() -> None:
    array = np.arange(1000, dtype=np.float32).reshape(10, 100)
    frames = encode(Message("unroll", {}, (array,)))
    assert np.shares_memory(np.frombuffer(frames[1], np.float32), array)
    assert np.shares_memory(decode(frames).arrays[0], array)


def test_other_layouts_are_copied_into_order() -> None:
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    for view in (array.T, array[:, ::2], np.asfortranarray(array)):
        np.testing.assert_array_equal(decode(encode(Message("unroll", {}, (view,)))).arrays[0], view)


def test_frames_that_start_anywhere_come_out_aligned() -> None:
    frames = encode(Message("unroll", {}, (np.arange(5, dtype=np.float64),)))
    for offset in range(8):
        room = bytearray(offset) + bytearray(frames[1])
        (array,) = decode([frames[0], memoryview(room)[offset:]]).arrays
        assert array.flags.aligned
        assert not array.flags.writeable
        np.testing.assert_array_equal(array, np.arange(5))


def test_scalars_of_numpy_are_welcome_in_headers() -> None:
    header = decode(encode(Message("unroll", {"a": np.float32(0.5), "b": np.int64(3)}))).header
    assert header == {"a": 0.5, "b": 3}


@pytest.mark.parametrize("value", [object(), 2**70, {1, 2}, np.zeros(3)])
def test_other_values_are_not(value: Any) -> None:
    with pytest.raises(MessageError, match="'unroll' message cannot be packed") as caught:
        encode(Message("unroll", {"value": value}))
    assert caught.value.reason == "header"


def _frames(*layout: Any, protocol: Any = PROTOCOL, frames: tuple[bytes, ...] = (b"\0" * 8,)) -> list[bytes]:
    return [msgpack.packb([protocol, "unroll", {}, list(layout)]), *frames]


@pytest.mark.parametrize(
    ("reason", "frames"),
    [
        ("frames", []),
        ("garbled", [b""]),
        ("garbled", [b"\xc1"]),
        ("garbled", [encode(Message("unroll", {"a": 1}))[0][:-1]]),
        ("garbled", [encode(Message("unroll"))[0] + b"\0"]),
        ("garbled", [b"\x91" * 5000]),
        ("garbled", [msgpack.packb([PROTOCOL, "k", {"a": msgpack.ExtType(5, b"x")}, []])]),
        ("garbled", [msgpack.packb([PROTOCOL, "k", {1: 2}, []])]),
        ("garbled", [msgpack.packb([PROTOCOL, b"\xff\xfe", {}, []]).replace(b"\xc4", b"\xd9")]),
        ("header", [msgpack.packb(5)]),
        ("header", [msgpack.packb([])]),
        ("header", [msgpack.packb([PROTOCOL, "k", {}])]),
        ("header", [msgpack.packb([PROTOCOL, "k", [], []])]),
        ("header", [msgpack.packb([PROTOCOL, 3, {}, []])]),
        ("header", [msgpack.packb([PROTOCOL, "k", {b"a": 1}, []])]),
        ("protocol", _frames(["<f4", [2]], protocol=PROTOCOL + 1)),
        ("protocol", _frames(["<f4", [2]], protocol=True)),
        ("protocol", _frames(["<f4", [2]], protocol="1")),
        ("frames", _frames()),
        ("frames", _frames(["<f4", [2]], ["<f4", [2]])),
        ("header", _frames("<f4")),
        ("header", _frames(["<f4"])),
        ("dtype", _frames(["O", [1]])),
        ("dtype", _frames(["<c8", [1]])),
        ("dtype", _frames([">f4", [2]])),
        ("dtype", _frames(["V8", [1]])),
        ("dtype", _frames([["<f4"], [2]])),
        ("shape", _frames(["<f4", "2"])),
        ("shape", _frames(["<f4", [-2]])),
        ("shape", _frames(["<f4", [-1, -2]])),
        ("shape", _frames(["<f4", [2.0]])),
        ("shape", _frames(["|b1", [True, 8]])),
        ("shape", _frames(["<f4", [1] * 40])),
        ("shape", _frames(["<f4", [0, 2**63]], frames=(b"",))),
        ("shape", _frames(["<f4", [0, 2**62, 2**62]], frames=(b"",))),
        ("shape", _frames(["<f4", [1]])),
        ("truncated", _frames(["<f4", [3]])),
        ("truncated", _frames(["<f4", [2**62, 4]])),
        ("truncated", _frames(["<f4", [2**63, 2]], frames=(b"",))),
        ("truncated", _frames(["|u1", [8]], frames=(b"\0" * 7,))),
    ],
)
def test_lies_are_found_out(reason: str, frames: list[bytes]) -> None:
    with pytest.raises(MessageError) as caught:
        decode(frames)
    assert caught.value.reason == reason, caught.value


@pytest.mark.parametrize(
    "limits", [Limits(header_bytes=10), Limits(frame_bytes=39), Limits(message_bytes=90), Limits(arrays=1)]
)
def test_oversized_is_refused(limits: Limits) -> None:
    array = np.zeros(10, np.float32)
    frames = encode(Message("unroll", {}, (array, array)))
    with pytest.raises(MessageError, match="limit") as caught:
        decode(frames, limits)
    assert caught.value.reason == "oversized"


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_any_bytes_are_a_message_or_an_error(frames: list[bytes]) -> None:
    _decode_or_refuse(frames)


@given(_messages, st.data())
def test_any_damage_is_a_message_or_an_error(message: Message, data: st.DataObject) -> None:
    frames = [bytearray(frame) for frame in encode(message)]
    for _ in range(data.draw(st.integers(1, 3))):
        frame = data.draw(st.sampled_from(frames))
        place = data.draw(st.integers(0, max(0, len(frame) - 1)))
        frame[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    if data.draw(st.booleans()):
        del frames[data.draw(st.integers(0, len(frames) - 1))]
    _decode_or_refuse([bytes(frame) for frame in frames])


_odd = st.none() | st.integers() | st.text(max_size=4) | st.sampled_from(_DTYPES) | st.floats()


@given(
    st.lists(_odd | st.lists(_odd | st.lists(_odd, max_size=4), max_size=3), max_size=3),
    st.lists(st.sampled_from([b"", b"\0" * 4, b"\0" * 8]), max_size=3),
)
def test_any_layout_is_a_message_or_an_error(layout: list[Any], frames: list[bytes]) -> None:
    try:
        head = msgpack.packb([PROTOCOL, "unroll", {}, layout])
    except OverflowError:
        return
    _decode_or_refuse([head, *frames])


def _decode_or_refuse(frames: list[bytes]) -> None:
    try:
        message = decode(frames)
    except TransportError:
        return
    sizes = [len(frame) for frame in frames[1:]]
    assert [array.nbytes for array in message.arrays] == sizes
