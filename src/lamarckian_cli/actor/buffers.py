"""Unrolls under construction: preallocated arrays, written a whole batch of steps at a time.

Every recording player owns a slot; a slot fills one row of T steps, hands it in when the
observation after its last step is known, and goes on in a fresh row.

In most games all players act in every round. Their slots then stand side by side: at the same
step, in neighbouring rows. Arrays are laid out step by step, so that such a round is one copy
into one place; players who act each in their own time are found row by row.
"""

from __future__ import annotations

import numpy as np

from lamarckian_cli.records import DiscreteHead, SeatSpec, Unrolls

Places = slice | np.ndarray  # of a round, in arrays of [steps * rows, ...]


class UnrollBuffer:
    """Rows of T steps for `slots` players of one policy."""

    def __init__(self, policy: str, seat: SeatSpec, slots: int, length: int) -> None:
        self.policy = policy
        self.slots = slots
        self.length = length
        rows = self._rows = 3 * slots  # one being filled a slot, and room for those that wait to be taken
        self.inputs = tuple(np.zeros((length + 1, rows, *i.shape), i.dtype) for i in seat.inputs)
        self.masks = tuple(
            np.ones((length, rows, head.n), bool) if isinstance(head, DiscreteHead) and head.masked else None
            for head in seat.heads
        )
        self.actions = tuple(
            np.zeros((length, rows), np.int64)
            if isinstance(head, DiscreteHead)
            else np.zeros((length, rows, head.size), np.float32)
            for head in seat.heads
        )
        self.log_prob = np.zeros((length, rows), np.float32)
        self.reward = np.zeros((length, rows, len(seat.rewards)), np.float32)
        self.terminated = np.zeros((length, rows), bool)
        self.truncated = np.zeros((length, rows), bool)
        self.decided = np.ones((length, rows), bool)
        self.version = np.zeros((length, rows), np.int64)
        # The same arrays with steps and rows as one axis: one index is half as dear as two.
        self._flat_inputs = tuple(_flat(array) for array in self.inputs)
        self._flat_masks = tuple(None if array is None else _flat(array) for array in self.masks)
        self._flat_actions = tuple(_flat(array) for array in self.actions)
        self._flat_reward, self._flat_log_prob = _flat(self.reward), _flat(self.log_prob)
        self._flat_decided, self._flat_version = _flat(self.decided), _flat(self.version)
        self._finals: list[list[tuple[int, tuple[np.ndarray, ...]]]] = [[] for _ in range(rows)]
        self._free = list(range(rows - 1, slots - 1, -1))
        self._complete: list[int] = []
        self._owner = np.zeros(rows, np.int64)  # the slot that filled each complete row
        # Where the slots stand. Side by side: slot s at step `_step` of row `_first + s`.
        self._side_by_side = True
        self._first = self._step = 0
        # Otherwise: slot s at step `_at[s]` of row `_row[s]`.
        self._row = np.arange(slots)
        self._at = np.zeros(slots, np.int64)

    @property
    def complete(self) -> int:
        """Unrolls that can be taken."""
        return len(self._complete)

    def complete_of(self, slots: range) -> int:
        """Unrolls of these slots that can be taken."""
        return sum(int(self._owner[row]) in slots for row in self._complete)

    def observe(
        self, slots: np.ndarray | None, inputs: tuple[np.ndarray, ...], rewards: np.ndarray
    ) -> Places:
        """Take in what `slots` see now, [n, *shape], and what their last action brought, [n, K].

        None stands for all slots in their order. Returns the places at which `record` stores the answer.
        """
        if slots is None and (self._side_by_side or self._align()):
            return self._observe_all(inputs, rewards)
        if self._side_by_side:
            self._part()
        return self._observe_some(np.arange(self.slots) if slots is None else slots, inputs, rewards)

    def record(
        self,
        slots: np.ndarray | None,
        places: Places,
        actions: tuple[np.ndarray, ...],
        log_prob: np.ndarray,
        version: int | np.ndarray,
    ) -> None:
        """Store the actions [n] or [n, D] a head that were chosen at `places`, and step on.

        `version` is that of the weights that chose them: one for all, or [n].
        """
        for array, action in zip(self._flat_actions, actions, strict=True):
            array[places] = action
        self._flat_log_prob[places] = log_prob
        self._flat_version[places] = version
        if self._side_by_side:
            self._step += 1
        else:
            self._at[slice(None) if slots is None else slots] += 1

    def record_masks(self, places: Places, masks: tuple[np.ndarray | None, ...]) -> None:
        """Store what was legal at `places`, bool [n, choices] a masked head."""
        for array, mask in zip(self._flat_masks, masks, strict=True):
            if array is not None and mask is not None:
                array[places] = mask

    def record_scripted(self, places: Places, scripted: list[int]) -> None:
        """A script chose, not the policy, at those of `places` that `scripted` counts off."""
        decided = self._flat_decided[places]
        decided[scripted] = False
        self._flat_decided[places] = decided

    def end(self, slot: int, *, terminated: bool, final: tuple[np.ndarray, ...]) -> None:
        """The slot's last recorded step ended its match; `final` is what it saw after."""
        if self._side_by_side:
            row, step = self._first + slot, self._step - 1
        else:
            row, step = int(self._row[slot]), int(self._at[slot]) - 1
        if step < 0:
            return  # the match ended before this player took a decision in this row
        if terminated:
            self.terminated[step, row] = True
        else:
            self.truncated[step, row] = True
            self._finals[row].append((step, tuple(np.array(x) for x in final)))

    def abandon(self, slots: list[int]) -> None:
        """Forget the unfinished rows of `slots`: their match came to nothing."""
        if self._side_by_side:
            self._part()
        for slot in slots:
            self._clear(int(self._row[slot]))
            self._at[slot] = 0

    def take(self, count: int) -> Unrolls:
        """The `count` unrolls that were complete first, as arrays of their own."""
        rows = self._complete[:count]
        del self._complete[:count]
        return self._take(rows, self.policy)

    def take_of(self, slots: range, policy: str) -> Unrolls:
        """All complete unrolls of these slots, at least one, as those of `policy`."""
        rows = [row for row in self._complete if int(self._owner[row]) in slots]
        taken = set(rows)
        self._complete = [row for row in self._complete if row not in taken]
        return self._take(rows, policy)

    def _take(self, rows: list[int], policy: str) -> Unrolls:
        finals = [(i, step, inputs) for i, row in enumerate(rows) for step, inputs in self._finals[row]]
        neighbours = rows == list(range(rows[0], rows[0] + len(rows)))
        index = slice(rows[0], rows[0] + len(rows)) if neighbours else np.array(rows)

        def part(array: np.ndarray) -> np.ndarray:
            """[B, steps, ...] of [steps, rows, ...]."""
            return array[:, index].swapaxes(0, 1).copy()

        unrolls = Unrolls(
            policy=policy,
            inputs=tuple(map(part, self.inputs)),
            masks=tuple(None if mask is None else part(mask) for mask in self.masks),
            actions=tuple(map(part, self.actions)),
            log_prob=part(self.log_prob),
            reward=part(self.reward),
            terminated=part(self.terminated),
            truncated=part(self.truncated),
            decided=part(self.decided),
            version=part(self.version),
            final_inputs=tuple(
                np.array([inputs[k] for _, _, inputs in finals], array.dtype).reshape(-1, *array.shape[2:])
                for k, array in enumerate(self.inputs)
            ),
            final_index=np.array([(i, step) for i, step, _ in finals], np.int64).reshape(-1, 2),
        )
        for row in rows:
            self._clear(row)
        self._free.extend(rows)
        return unrolls

    # -------------------------------------------------------------- side by side

    def _observe_all(self, inputs: tuple[np.ndarray, ...], rewards: np.ndarray) -> slice:
        places = self._block()
        for array, value in zip(self._flat_inputs, inputs, strict=True):
            array[places] = value
        if self._step:
            before = slice(places.start - self._rows, places.stop - self._rows)
            self._flat_reward[before] = rewards
        if self._step == self.length:
            self._complete.extend(range(self._first, self._first + self.slots))
            self._owner[self._first : self._first + self.slots] = np.arange(self.slots)
            self._first, self._step = self._free_block(), 0
            places = self._block()
            for array, value in zip(self._flat_inputs, inputs, strict=True):
                array[places] = value
        return places

    def _block(self) -> slice:
        start = self._step * self._rows + self._first
        return slice(start, start + self.slots)

    def _free_block(self) -> int:
        """The first of as many neighbouring free rows as there are slots; they are free no more."""
        free = set(self._free)
        for first in range(0, self._rows, self.slots):
            block = range(first, first + self.slots)
            if free.issuperset(block):
                self._free = [row for row in self._free if row not in block]
                return first
        raise RuntimeError("unrolls are complete but nobody took them")

    def _part(self) -> None:
        """From side by side to each in its own time."""
        self._side_by_side = False
        self._row[:] = np.arange(self._first, self._first + self.slots)
        self._at[:] = self._step

    def _align(self) -> bool:
        """The other way round, if the slots happen to stand so."""
        first, step = int(self._row[0]), int(self._at[0])
        together = (self._at == step).all() and (self._row == np.arange(first, first + self.slots)).all()
        if together and first % self.slots == 0:
            self._side_by_side, self._first, self._step = True, first, step
        return self._side_by_side

    # -------------------------------------------------------------- each in its own time

    def _observe_some(
        self, slots: np.ndarray, inputs: tuple[np.ndarray, ...], rewards: np.ndarray
    ) -> np.ndarray:
        at = self._at[slots]
        places = at * self._rows + self._row[slots]
        for array, value in zip(self._flat_inputs, inputs, strict=True):
            array[places] = value
        began = at > 0
        self._flat_reward[places[began] - self._rows] = rewards[began]
        full = at == self.length
        if full.any():
            for slot in slots[full].tolist():
                self._turn_over(slot)
            places = self._at[slots] * self._rows + self._row[slots]
            for array, value in zip(self._flat_inputs, inputs, strict=True):
                array[places[full]] = value[full]
        return places

    def _turn_over(self, slot: int) -> None:
        if not self._free:
            raise RuntimeError("unrolls are complete but nobody took them")
        self._complete.append(int(self._row[slot]))
        self._owner[self._row[slot]] = slot
        self._row[slot] = self._free.pop()
        self._at[slot] = 0

    def _clear(self, row: int) -> None:
        self.terminated[:, row] = False
        self.truncated[:, row] = False
        self.decided[:, row] = True
        self._finals[row] = []


def _flat(array: np.ndarray) -> np.ndarray:
    """A view [steps * rows, ...] of [steps, rows, ...]."""
    return array.reshape(-1, *array.shape[2:])
