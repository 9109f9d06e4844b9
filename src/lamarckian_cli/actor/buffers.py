"""Unrolls under construction: preallocated arrays, written a whole batch of steps at a time.

Every recording player owns a slot; a slot fills one row of T steps, hands it in when the
observation after its last step is known, and goes on in a fresh row.
"""

from __future__ import annotations

import numpy as np

from lamarckian_cli.records import DiscreteHead, SeatSpec, Unrolls


class UnrollBuffer:
    """Rows of T steps for `slots` players of one policy."""

    def __init__(self, policy: str, seat: SeatSpec, slots: int, length: int) -> None:
        rows = 3 * slots  # one being filled a slot, and room for those that wait to be taken
        self.policy = policy
        self.length = length
        self.inputs = tuple(np.zeros((rows, length + 1, *i.shape), i.dtype) for i in seat.inputs)
        self.masks = tuple(
            np.ones((rows, length, head.n), bool) if isinstance(head, DiscreteHead) and head.masked else None
            for head in seat.heads
        )
        self.actions = tuple(
            np.zeros((rows, length), np.int64)
            if isinstance(head, DiscreteHead)
            else np.zeros((rows, length, head.size), np.float32)
            for head in seat.heads
        )
        self.log_prob = np.zeros((rows, length), np.float32)
        self.reward = np.zeros((rows, length, len(seat.rewards)), np.float32)
        self.terminated = np.zeros((rows, length), bool)
        self.truncated = np.zeros((rows, length), bool)
        self.decided = np.ones((rows, length), bool)
        self.version = np.zeros((rows, length), np.int64)
        self._finals: list[list[tuple[int, tuple[np.ndarray, ...]]]] = [[] for _ in range(rows)]
        self._row = np.arange(slots)
        self._at = np.zeros(slots, np.int64)  # steps acted in the slot's row
        self._free = list(range(rows - 1, slots - 1, -1))
        self._complete: list[int] = []
        # The same arrays with rows and steps as one axis: one index array is half as dear as two.
        self._flat_inputs = tuple(_flat(array) for array in self.inputs)
        self._flat_masks = tuple(None if array is None else _flat(array) for array in self.masks)
        self._flat_actions = tuple(_flat(array) for array in self.actions)
        self._flat_reward, self._flat_log_prob = _flat(self.reward), _flat(self.log_prob)
        self._flat_decided, self._flat_version = _flat(self.decided), _flat(self.version)

    @property
    def complete(self) -> int:
        """Unrolls that can be taken."""
        return len(self._complete)

    def observe(self, slots: np.ndarray, inputs: tuple[np.ndarray, ...], rewards: np.ndarray) -> np.ndarray:
        """Take in what `slots` see now, [n, *shape], and what their last action brought, [n, K].

        Returns the places [n] at which `record` stores the answer.
        """
        at, rows = self._at[slots], self._row[slots]
        places = rows * self.length + at
        seen = places + rows  # rows of inputs are one step longer
        for array, value in zip(self._flat_inputs, inputs, strict=True):
            array[seen] = value
        if at.all():
            self._flat_reward[places - 1] = rewards
        else:
            began = at > 0
            self._flat_reward[places[began] - 1] = rewards[began]
        full = at == self.length
        if full.any():
            for slot in slots[full].tolist():
                self._turn_over(slot)
            places = self._row[slots] * self.length + self._at[slots]
            for first, value in zip(self.inputs, inputs, strict=True):
                first[self._row[slots[full]], 0] = value[full]
        return places

    def record(
        self,
        slots: np.ndarray,
        places: np.ndarray,
        actions: tuple[np.ndarray, ...],
        log_prob: np.ndarray,
        version: int,
    ) -> None:
        """Store the actions [n] or [n, D] a head that were chosen at `places`, and step on."""
        for array, action in zip(self._flat_actions, actions, strict=True):
            array[places] = action
        self._flat_log_prob[places] = log_prob
        self._flat_version[places] = version
        self._at[slots] += 1

    def record_masks(self, places: np.ndarray, masks: tuple[np.ndarray | None, ...]) -> None:
        """Store what was legal at `places`, bool [n, choices] a masked head."""
        for array, mask in zip(self._flat_masks, masks, strict=True):
            if array is not None and mask is not None:
                array[places] = mask

    def record_scripted(self, places: np.ndarray) -> None:
        """At `places` a script chose, not the policy."""
        self._flat_decided[places] = False

    def end(self, slot: int, *, terminated: bool, final: tuple[np.ndarray, ...]) -> None:
        """The slot's last recorded step ended its match; `final` is what it saw after."""
        row, step = int(self._row[slot]), int(self._at[slot]) - 1
        if step < 0:
            return  # the match ended before this player took a decision in this row
        if terminated:
            self.terminated[row, step] = True
        else:
            self.truncated[row, step] = True
            self._finals[row].append((step, tuple(np.array(x) for x in final)))

    def abandon(self, slots: list[int]) -> None:
        """Forget the unfinished rows of `slots`: their match came to nothing."""
        for slot in slots:
            self._clear(int(self._row[slot]))
            self._at[slot] = 0

    def take(self, count: int) -> Unrolls:
        """The `count` unrolls that were complete first, as arrays of their own."""
        rows = np.array(self._complete[:count])
        del self._complete[:count]
        finals = [
            (i, step, inputs) for i, row in enumerate(rows.tolist()) for step, inputs in self._finals[row]
        ]
        unrolls = Unrolls(
            policy=self.policy,
            inputs=tuple(array[rows] for array in self.inputs),
            masks=tuple(None if mask is None else mask[rows] for mask in self.masks),
            actions=tuple(array[rows] for array in self.actions),
            log_prob=self.log_prob[rows],
            reward=self.reward[rows],
            terminated=self.terminated[rows],
            truncated=self.truncated[rows],
            decided=self.decided[rows],
            version=self.version[rows],
            final_inputs=tuple(
                np.array([inputs[k] for _, _, inputs in finals], array.dtype).reshape(-1, *array.shape[2:])
                for k, array in enumerate(self.inputs)
            ),
            final_index=np.array([(i, step) for i, step, _ in finals], np.int64).reshape(-1, 2),
        )
        for row in rows.tolist():
            self._clear(row)
        self._free.extend(rows.tolist())
        return unrolls

    def _turn_over(self, slot: int) -> None:
        if not self._free:
            raise RuntimeError("unrolls are complete but nobody took them")
        self._complete.append(int(self._row[slot]))
        self._row[slot] = self._free.pop()
        self._at[slot] = 0

    def _clear(self, row: int) -> None:
        self.terminated[row] = False
        self.truncated[row] = False
        self.decided[row] = True
        self._finals[row] = []


def _flat(array: np.ndarray) -> np.ndarray:
    """A view [rows * steps, ...] of [rows, steps, ...]."""
    return array.reshape(-1, *array.shape[2:])
