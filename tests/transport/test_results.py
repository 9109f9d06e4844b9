"""Match results that come with unrolls: what is none is refused, whoever sent it."""

from __future__ import annotations

from typing import Any

import pytest

from lamarckian_cli.transport import Message, MessageError
from lamarckian_cli.transport.packing import unpack_results

GOOD = {
    "policy": "main",
    "seat": 0,
    "version": 1,
    "first_version": 0,
    "env_steps": 5,
    "frames": 20,
    "result": {"return": 1.0},
}


def unpacked(**changes: Any) -> Any:
    return unpack_results(Message("unrolls", {"results": [GOOD | changes]}))


def test_a_result_as_actors_send_it() -> None:
    (result,) = unpacked()
    assert (result.policy, result.result, result.opponent) == ("main", {"return": 1.0}, "")
    (result,) = unpacked(opponent="main#3")
    assert result.opponent == "main#3"


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": ["x"]},
        {"result": 7},
        {"result": {}},
        {"result": {"return": "x"}},
        {"env_steps": 1.5},
        {"version": None},
        {"first_version": None},
        {"opponent": 3},
        {"opponent": None},
        {"unknown": 1},
    ],
)
def test_what_is_no_result_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(MessageError, match="match result"):
        unpacked(**changes)
