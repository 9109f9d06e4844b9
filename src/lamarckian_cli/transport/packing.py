"""Records as messages and back; what does not fit the seat's spec is refused."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from lamarckian_cli.records import DiscreteHead, MatchResult, Pairings, SeatSpec, Unrolls, Weights
from lamarckian_cli.transport.codec import Message, MessageError

UNROLLS, RESULTS, WEIGHTS, PAIRINGS = "unrolls", "results", "weights", "pairings"
_HALF_MAX = float(np.finfo(np.float16).max)
_RESULT = tuple(field.name for field in fields(MatchResult))
_PLAIN = ("log_prob", "reward", "terminated", "truncated", "decided", "version", "final_index")


def pack_unrolls(unrolls: Unrolls, results: list[MatchResult]) -> Message:
    """One message with unrolls, and the matches that ended since the last one."""
    masks = [mask for mask in unrolls.masks if mask is not None]
    plain = [getattr(unrolls, name) for name in _PLAIN]
    return Message(
        UNROLLS,
        {"policy": unrolls.policy, "results": [_as_dict(r) for r in results]},
        (*unrolls.inputs, *masks, *unrolls.actions, *unrolls.final_inputs, *plain),
    )


def _as_dict(result: MatchResult) -> dict[str, Any]:
    # dataclasses.asdict would copy what is only read here
    return {name: getattr(result, name) for name in _RESULT}


def unpack_unrolls(message: Message, seats: dict[str, SeatSpec], length: int) -> Unrolls:
    """The unrolls of a message, each array checked against the seat's spec.

    Args:
        seats: policy name -> what its seat looks like.
        length: T, steps of an unroll.

    Raises:
        MessageError: an unknown policy, or arrays of another number, shape or dtype.
    """
    policy = message.header.get("policy")
    seat = seats.get(policy) if isinstance(policy, str) else None
    if seat is None or not isinstance(policy, str):
        raise MessageError("unfitting", f"unrolls of an unknown policy {policy!r}")
    masked = [isinstance(head, DiscreteHead) and head.masked for head in seat.heads]
    n, m, h = len(seat.inputs), sum(masked), len(seat.heads)
    arrays = message.arrays
    if len(arrays) != 2 * n + m + h + len(_PLAIN):
        raise MessageError("unfitting", f"{len(arrays)} arrays in unrolls of policy {policy!r}")
    inputs, rest = arrays[:n], arrays[n:]
    masks, rest = rest[:m], rest[m:]
    actions, rest = rest[:h], rest[h:]
    finals, plain = rest[:n], rest[n:]
    given = iter(masks)
    unrolls = Unrolls(
        policy=policy,
        inputs=inputs,
        masks=tuple(next(given) if has else None for has in masked),
        actions=actions,
        final_inputs=finals,
        **dict(zip(_PLAIN, plain, strict=True)),
    )
    _check(unrolls, seat, length)
    return unrolls


def unpack_results(message: Message) -> list[MatchResult]:
    """The finished matches that a message reports; MessageError if they are none."""
    try:
        results = [MatchResult(**result) for result in message.header.get("results", ())]
    except TypeError as error:
        raise MessageError("unfitting", f"match results that are none: {error}") from None
    for result in results:
        counts = (result.seat, result.version, result.first_version, result.env_steps, result.frames)
        numbers = result.result
        if (
            not isinstance(result.policy, str)
            or not isinstance(result.opponent, str)
            or any(type(count) is not int for count in counts)
            or not isinstance(numbers, dict)
            or "return" not in numbers
            or any(type(value) not in (int, float, bool) for value in numbers.values())
        ):
            raise MessageError("unfitting", f"a match result of the wrong kind: {result!r:.200}")
    return results


def pack_weights(weights: Weights, *, half_from: int | None = None) -> Message:
    """One policy's weights; from `half_from` on as float16, if the numbers fit into it.

    What stands before are observation statistics, whose range is the game's, so they stay float32.
    """
    header = {"policy": weights.policy, "version": weights.version}
    if half_from is not None and np.abs(weights.vector[half_from:]).max(initial=0.0) < _HALF_MAX:
        return Message(
            WEIGHTS, header, (weights.vector[:half_from], weights.vector[half_from:].astype(np.float16))
        )
    return Message(WEIGHTS, header, (weights.vector,))


def unpack_weights(message: Message) -> Weights:
    """Raises MessageError if the message is not one flat float32 vector, its end maybe as float16."""
    dtypes = [array.dtype.name for array in message.arrays]
    if dtypes not in (["float32"], ["float32", "float16"]) or any(a.ndim != 1 for a in message.arrays):
        raise MessageError("unfitting", "weights that are not one float32 vector")
    vector = message.arrays[0] if len(dtypes) == 1 else np.concatenate(message.arrays, dtype=np.float32)
    return Weights(
        policy=str(message.header["policy"]), version=int(message.header["version"]), vector=vector
    )


def pack_pairings(pairings: Pairings) -> Message:
    """On a weights channel, where the newest counts, as a policy of the name `pairings`."""
    header = {
        "policy": PAIRINGS,
        "version": pairings.version,
        "opponents": list(pairings.opponents),
        "numbers": list(pairings.numbers),
        "learners": list(pairings.learners),
    }
    return Message(PAIRINGS, header, (pairings.chances,))


def unpack_pairings(message: Message) -> Pairings:
    """Raises MessageError if these are no pairings."""
    header = message.header
    try:
        pairings = Pairings(
            version=int(header["version"]),
            opponents=tuple(map(str, header["opponents"])),
            numbers=tuple(map(int, header["numbers"])),
            learners=tuple(map(str, header["learners"])),
            chances=message.arrays[0],
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise MessageError("unfitting", f"pairings that are none: {error!r}") from None
    places = len(pairings.opponents)
    shape = (len(pairings.learners), places)
    if (
        pairings.chances.shape != shape
        or pairings.chances.dtype != np.float64
        or len(header["numbers"]) != places
    ):
        raise MessageError("unfitting", "pairings whose parts do not fit together")
    return pairings


def _check(unrolls: Unrolls, seat: SeatSpec, length: int) -> None:
    count = len(unrolls.log_prob) if unrolls.log_prob.ndim else 0
    finals = len(unrolls.final_index) if unrolls.final_index.ndim else 0
    expected: list[tuple[np.ndarray, tuple[int, ...], Any]] = [
        (unrolls.log_prob, (count, length), np.float32),
        (unrolls.reward, (count, length, len(seat.rewards)), np.float32),
        (unrolls.version, (count, length), np.int64),
        (unrolls.final_index, (finals, 2), np.int64),
    ]
    expected += [
        (a, (count, length), np.bool_) for a in (unrolls.terminated, unrolls.truncated, unrolls.decided)
    ]
    for spec, array, final in zip(seat.inputs, unrolls.inputs, unrolls.final_inputs, strict=True):
        expected.append((array, (count, length + 1, *spec.shape), spec.dtype))
        expected.append((final, (finals, *spec.shape), spec.dtype))
    for head, mask, action in zip(seat.heads, unrolls.masks, unrolls.actions, strict=True):
        if isinstance(head, DiscreteHead):
            expected.append((action, (count, length), np.int64))
            if mask is not None:
                expected.append((mask, (count, length, head.n), np.bool_))
        else:
            expected.append((action, (count, length, head.size), np.float32))
    for array, shape, dtype in expected:
        if array.shape != shape or array.dtype != dtype:
            raise MessageError(
                "unfitting",
                f"an array {list(array.shape)} of {array.dtype} in unrolls where {list(shape)} of "
                f"{np.dtype(dtype)} belongs",
            )
    for head, action in zip(seat.heads, unrolls.actions, strict=True):
        if isinstance(head, DiscreteHead) and action.size and (action.min() < 0 or action.max() >= head.n):
            raise MessageError("unfitting", f"an action of head {head.name!r} outside 0..{head.n - 1}")
    if finals:
        unroll, step = unrolls.final_index[:, 0], unrolls.final_index[:, 1]
        if min(unroll.min(), step.min()) < 0 or unroll.max() >= count or step.max() >= length:
            raise MessageError("unfitting", "a final observation of a step that is not there")
