"""What the MDP interface demands of each thing a game hands out, one function a thing.

Each raises MDPError with the fault, the expected and the actual; `where` begins the
message and says which match, seat and step it was. `check.py` applies them to a running game.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from lamarckian_cli.errors import MDPError
from lamarckian_cli.records import ContinuousHead, DiscreteHead, InputSpec, MDPSpec, SeatSpec, State


class Fault(MDPError):
    """A promise broken, in contrast to what a game raises by itself."""


def fault(where: str, what: str) -> NoReturn:
    raise Fault(f"{where}: {what}")


def check_spec(spec: Any) -> None:
    """What `describe()` returned."""
    if not isinstance(spec, MDPSpec):
        fault("describe()", f"it returned {type(spec).__name__}, expected an MDPSpec")
    where = f"{spec.name}, describe()"
    if not spec.seats:
        fault(where, "it names no seats, expected at least one")
    if spec.frames_per_step < 1:
        fault(where, f"frames_per_step is {spec.frames_per_step}, expected at least 1")
    strange = [seat for seat in spec.builtin_seats if not 0 <= seat < len(spec.seats)]
    if strange:
        fault(where, f"builtin_seats names {strange}, but the seats are 0 to {len(spec.seats) - 1}")
    if "return" in spec.results:
        fault(where, "results names 'return', which is the sum of rewards and not the game's to report")
    for index, seat in enumerate(spec.seats):
        _check_seat(seat, f"{where}, seat {index}")


def check_state(state: Any, seat: SeatSpec, where: str) -> None:
    """What `state()` returned while the match runs."""
    check_inputs(state, seat, where)
    if not isinstance(state.decision, bool):
        fault(where, f"State.decision is {state.decision!r}, expected True or False")
    if state.decision:
        _check_masks(state.masks, seat, where)
    if state.script is not None:
        _check_script(state.script, state.masks, seat, where)


def check_inputs(state: Any, seat: SeatSpec, where: str) -> None:
    """The observation alone, which is there after the end as well."""
    if not isinstance(state, State):
        fault(where, f"state() returned {type(state).__name__}, expected a State")
    if not isinstance(state.inputs, tuple) or len(state.inputs) != len(seat.inputs):
        actual = len(state.inputs) if isinstance(state.inputs, tuple) else type(state.inputs).__name__
        fault(where, f"State.inputs is {actual}, expected a tuple of {len(seat.inputs)} arrays")
    for spec, array in zip(seat.inputs, state.inputs, strict=True):
        _check_input(spec, array, where)


def check_outcome(outcome: Any, where: str) -> None:
    """What awaiting `act()` gave."""
    for name in ("terminated", "truncated"):
        value = getattr(outcome, name, None)
        if not isinstance(value, bool):
            fault(where, f"act() led to {outcome!r}, whose {name} is {value!r}; expected an Outcome of bools")


def check_reward(reward: Any, seat: SeatSpec, where: str) -> None:
    """What `reward()` returned."""
    count = len(reward) if isinstance(reward, Sequence | np.ndarray) else None
    if count != len(seat.rewards):
        actual = reward if count is None else f"{count} numbers"
        heads = ", ".join(head.name for head in seat.rewards)
        fault(where, f"reward() returned {actual}, expected {len(seat.rewards)} ({heads})")
    for head, value in zip(seat.rewards, reward, strict=True):
        if not isinstance(value, numbers.Real) or not np.isfinite(float(value)):
            fault(where, f"reward {head.name} is {value!r}, expected a finite number")


def check_result(result: Any, spec: MDPSpec, where: str) -> None:
    """What `result()` returned after the end."""
    if not isinstance(result, dict):
        fault(where, f"result() returned {type(result).__name__}, expected a dict of numbers by name")
    for name, value in result.items():
        if not isinstance(name, str) or not isinstance(value, numbers.Real):
            fault(where, f"result() has {name!r}: {value!r}, expected a name and a number")
    missing = [name for name in spec.results if name not in result]
    if missing:
        fault(where, f"result() lacks {missing}, which MDPSpec.results promises; it has {sorted(result)}")
    if "return" in result:
        fault(where, "result() has 'return', which is the sum of rewards and not the game's to report")


def check_picture(picture: Any, text: Any, where: str) -> None:
    """What `frame()` and `text()` of a match that can be looked at returned."""
    shape, dtype = np.shape(picture), getattr(picture, "dtype", type(picture).__name__)
    if len(shape) != 3 or shape[2] != 3 or dtype != np.uint8:
        fault(where, f"frame() has shape {shape} and dtype {dtype}, expected (H, W, 3) and uint8")
    if not isinstance(text, str):
        fault(where, f"text() returned {type(text).__name__}, expected str")


# ------------------------------------------------------------------ parts


def _check_seat(seat: SeatSpec, where: str) -> None:
    for kind, parts in (("input", seat.inputs), ("head", seat.heads), ("reward", seat.rewards)):
        names = [part.name for part in parts]  # type: ignore[attr-defined]
        if not names:
            fault(where, f"it has no {kind}, expected at least one")
        if len(set(names)) < len(names):
            fault(where, f"{kind} names {names} are not all different")
    for spec in seat.inputs:
        try:
            known = np.dtype(spec.dtype).name == spec.dtype
        except TypeError:
            known = False
        if not known:
            fault(
                where, f"input {spec.name} has dtype {spec.dtype!r}, expected a NumPy name such as 'float32'"
            )
        if any(size < 1 for size in spec.shape):
            fault(where, f"input {spec.name} has shape {spec.shape}, expected sizes of at least 1")
    for head in seat.heads:
        if isinstance(head, DiscreteHead):
            if head.n < 1 or (head.names and len(head.names) != head.n):
                fault(
                    where,
                    f"head {head.name} has n={head.n} and names={head.names}, expected n >= 1 names or none",
                )
        else:
            _check_bounds(head, where)


def _check_bounds(head: ContinuousHead, where: str) -> None:
    low, high = np.asarray(head.low, float), np.asarray(head.high, float)
    if low.shape != high.shape or low.size < 1 or not np.isfinite([low, high]).all() or (low >= high).any():
        fault(
            where,
            f"head {head.name} has low={head.low} and high={head.high}; "
            "expected as many finite numbers in both, low below high",
        )


def _check_input(spec: InputSpec, array: Any, where: str) -> None:
    if not isinstance(array, np.ndarray):
        fault(where, f"input {spec.name} is {type(array).__name__}, expected an array of {spec.dtype}")
    if array.shape != spec.shape:
        fault(where, f"input {spec.name} has shape {array.shape}, expected {spec.shape}")
    if array.dtype.name != spec.dtype:
        fault(where, f"input {spec.name} has dtype {array.dtype}, expected {spec.dtype}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        fault(where, f"input {spec.name} has {array[at]} at {at}, expected finite numbers")


def _check_masks(masks: Any, seat: SeatSpec, where: str) -> None:
    if masks is None:
        masks = (None,) * len(seat.heads)
    if not isinstance(masks, tuple) or len(masks) != len(seat.heads):
        actual = len(masks) if isinstance(masks, tuple) else type(masks).__name__
        fault(
            where,
            f"State.masks is {actual}, expected None or a tuple of {len(seat.heads)}, one for each head",
        )
    for head, mask in zip(seat.heads, masks, strict=True):
        masked = isinstance(head, DiscreteHead) and head.masked
        if mask is None:
            if masked:
                fault(where, f"head {head.name} is described as masked, but State.masks has None for it")
            continue
        if not masked:
            fault(where, f"head {head.name} has a mask, but is not described as masked")
        assert isinstance(head, DiscreteHead)
        shape, dtype = np.shape(mask), getattr(mask, "dtype", type(mask).__name__)
        if not isinstance(mask, np.ndarray) or dtype != np.bool_ or shape != (head.n,):
            fault(
                where,
                f"the mask of head {head.name} has shape {shape} and dtype {dtype}, "
                f"expected ({head.n},) and bool",
            )
        if not mask.any():
            fault(where, f"the mask of head {head.name} leaves no legal action, expected at least one True")


def _check_script(script: Any, masks: Any, seat: SeatSpec, where: str) -> None:
    if not isinstance(script, tuple) or len(script) != len(seat.heads):
        fault(where, f"State.script is {script!r}, expected a tuple of {len(seat.heads)}, one for each head")
    for index, (head, entry) in enumerate(zip(seat.heads, script, strict=True)):
        if isinstance(head, ContinuousHead):
            _check_script_numbers(head, entry, where)
            continue
        if not isinstance(entry, int | np.integer) or not 0 <= entry < head.n:
            fault(where, f"the script plays {entry!r} in head {head.name}, expected one of 0 to {head.n - 1}")
        mask = masks[index] if masks is not None else None
        if mask is not None and not mask[entry]:
            fault(where, f"the script plays {entry} in head {head.name}, which the mask says is illegal")


def _check_script_numbers(head: ContinuousHead, entry: Any, where: str) -> None:
    numbers_ok = isinstance(entry, np.ndarray) and entry.dtype == np.float32 and entry.shape == (head.size,)
    if not numbers_ok:
        fault(
            where, f"the script plays {entry!r} in head {head.name}, expected float32 of shape ({head.size},)"
        )
    low, high = np.asarray(head.low, np.float32), np.asarray(head.high, np.float32)
    if not ((entry >= low) & (entry <= high)).all():
        fault(where, f"the script plays {entry} in head {head.name}, expected {head.low} to {head.high}")
