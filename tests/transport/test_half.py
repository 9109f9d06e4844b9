"""Weights on the wire at half precision: statistics stay exact, parameters keep float16's three digits."""

from __future__ import annotations

import numpy as np
import pytest

from lamarckian_cli.records import Weights
from lamarckian_cli.transport import Message, MessageError, decode, encode
from lamarckian_cli.transport.packing import pack_weights, unpack_weights


def sent(vector: np.ndarray, half_from: int | None) -> tuple[Message, Weights]:
    weights = Weights(policy="main", version=3, vector=vector.astype(np.float32))
    message = decode([bytes(frame) for frame in encode(pack_weights(weights, half_from=half_from))])
    return message, unpack_weights(message)


def test_parameters_are_halved_and_statistics_are_not() -> None:
    rng = np.random.default_rng(0)
    vector = np.concatenate([[1e30, 123456.789], rng.normal(0, 0.1, 1000)])
    message, got = sent(vector, 2)
    assert sum(array.nbytes for array in message.arrays) == 2 * 4 + 1000 * 2
    np.testing.assert_array_equal(got.vector[:2], vector[:2].astype(np.float32))
    np.testing.assert_allclose(got.vector[2:], vector[2:], rtol=2**-10, atol=2**-24)
    assert (got.policy, got.version, got.vector.dtype) == ("main", 3, np.float32)


@pytest.mark.parametrize("large", [7e4, -7e4, np.inf, np.nan])
def test_what_does_not_fit_travels_whole(large: float) -> None:
    vector = np.array([0.0, 1.0, large])
    message, got = sent(vector, 1)
    assert len(message.arrays) == 1
    np.testing.assert_array_equal(got.vector, vector.astype(np.float32))


def test_whole_unless_asked_for() -> None:
    message, got = sent(np.arange(5), None)
    assert [array.dtype for array in message.arrays] == [np.float32]
    np.testing.assert_array_equal(got.vector, np.arange(5))


@pytest.mark.parametrize("arrays", [(), (np.zeros(3, np.float16),), (np.zeros((2, 2), np.float32),)])
def test_other_arrays_are_no_weights(arrays: tuple[np.ndarray, ...]) -> None:
    with pytest.raises(MessageError, match="not one float32 vector"):
        unpack_weights(Message("weights", {"policy": "main", "version": 1}, arrays))
