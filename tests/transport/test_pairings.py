"""Pairings of self-play on a weights channel: they arrive as they were, and what is none is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lamarckian_cli.records import Pairings
from lamarckian_cli.transport import Message, MessageError
from lamarckian_cli.transport.codec import decode, encode
from lamarckian_cli.transport.packing import PAIRINGS, pack_pairings, unpack_pairings

CHANCES = np.array([[0.25, 0.0, 0.75], [1.0, 0.0, 0.0]])
GOOD = {
    "policy": PAIRINGS,
    "version": 4,
    "opponents": ["main#0", "", "main#7"],
    "numbers": [0, -1, 7],
    "learners": ["member0", "member1"],
}


def test_pairings_arrive_as_they_were_sent() -> None:
    sent = Pairings(
        version=4,
        opponents=("main#0", "", "main#7"),
        numbers=(0, -1, 7),
        learners=("member0", "member1"),
        chances=CHANCES,
    )
    message = decode([bytes(frame) for frame in encode(pack_pairings(sent))])
    assert (message.kind, message.header["policy"], message.header["version"]) == (PAIRINGS, PAIRINGS, 4)
    got = unpack_pairings(message)
    for name in ("version", "opponents", "numbers", "learners"):
        assert getattr(got, name) == getattr(sent, name)
    assert got.chances.dtype == np.float64
    np.testing.assert_array_equal(got.chances, CHANCES)


@pytest.mark.parametrize("key", ["version", "opponents", "numbers", "learners"])
def test_pairings_that_lack_a_part_are_refused(key: str) -> None:
    header = {name: value for name, value in GOOD.items() if name != key}
    with pytest.raises(MessageError, match="pairings"):
        unpack_pairings(Message(PAIRINGS, header, (CHANCES,)))


@pytest.mark.parametrize(
    ("changes", "arrays"),
    [
        ({}, ()),
        ({}, (CHANCES.T,)),
        ({}, (CHANCES[0],)),
        ({}, (CHANCES.astype(np.float32),)),
        ({"opponents": ["main#0", "main#7"]}, (CHANCES,)),
        ({"numbers": [0, 7]}, (CHANCES,)),
        ({"numbers": [0, 7, 8, 9]}, (CHANCES,)),
        ({"learners": ["member0"]}, (CHANCES,)),
        ({"numbers": [0, "x", 7]}, (CHANCES,)),
        ({"numbers": None}, (CHANCES,)),
        ({"opponents": 3}, (CHANCES,)),
        ({"version": "new"}, (CHANCES,)),
    ],
)
def test_pairings_whose_parts_do_not_fit_are_refused(
    changes: dict[str, Any], arrays: tuple[np.ndarray, ...]
) -> None:
    with pytest.raises(MessageError, match="pairings"):
        unpack_pairings(Message(PAIRINGS, GOOD | changes, arrays))
