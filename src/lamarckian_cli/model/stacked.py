"""Forward passes of several networks of one shape as one: each layer a batched product.

A population's members play a few matches each. Called one after the other, their networks cost
several times what one network with all the rows does; stacked, each layer is one call (measured
on one core, layers of 256 and 128, 64 rows: one network 140 µs, 8 members of 8 rows each 180,
called in turn 1,000).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from lamarckian_cli.model.architecture import Architecture
from lamarckian_cli.model.inference import NumpyLayers, make_inference
from lamarckian_cli.records import SeatSpec

PADDED = 2  # times as many rows as there are, at most, are computed to have all members in one call


class StackedInference(Protocol):
    members: int

    def load(self, member: int, vector: np.ndarray) -> None:
        """Take over the flat vector [P] float32 of one member; ValueError for one of another network."""

    def __call__(self, inputs: tuple[np.ndarray, ...], member: np.ndarray | None) -> np.ndarray:
        """Logits [N, L] float32 of one array [N, *shape] an input; row i is answered by `member[i]`.

        `member` [N] int64 is in ascending order; None: all members have equally many rows, in order.
        The result is valid until the next call.
        """


def make_stacked(
    seat: SeatSpec,
    architecture: Architecture,
    members: int,
    *,
    normalizes: bool = False,
    bf16: bool = False,
) -> StackedInference:
    """The faster one for this seat; `bf16` concerns images alone."""
    if any(spec.is_image for spec in seat.inputs):
        return InTurn(seat, architecture, members, normalizes=normalizes, bf16=bf16)
    return Stacked(seat, architecture, members, normalizes=normalizes)


class InTurn:
    """One network after the other: of images, a single network's rows keep the processor busy."""

    def __init__(
        self, seat: SeatSpec, architecture: Architecture, members: int, *, normalizes: bool, bf16: bool
    ) -> None:
        self.members = members
        self._networks = [
            make_inference(seat, architecture, normalizes=normalizes, bf16=bf16) for _ in range(members)
        ]

    def load(self, member: int, vector: np.ndarray) -> None:
        self._networks[member].load(vector)

    def __call__(self, inputs: tuple[np.ndarray, ...], member: np.ndarray | None) -> np.ndarray:
        logits = [
            self._networks[m](tuple(x[rows] for x in inputs)).copy()
            for m, rows in _parts(len(inputs[0]), member, self.members)
        ]
        return np.concatenate(logits)


class Stacked(NumpyLayers):
    """Layers on numbers, of all members at once; all logits are 0 before the first `load`."""

    def __init__(
        self, seat: SeatSpec, architecture: Architecture, members: int, *, normalizes: bool = False
    ) -> None:
        super().__init__(seat, architecture, normalizes=normalizes)
        self.members = members
        self._vectors = np.zeros((members, self._size), np.float32)
        self._all = self._layers(self._vectors)
        self._each = [self._all.of(m) for m in range(members)]

    def load(self, member: int, vector: np.ndarray) -> None:
        self._check(vector)
        self._vectors[member] = vector

    def __call__(self, inputs: tuple[np.ndarray, ...], member: np.ndarray | None) -> np.ndarray:
        x = self._numbers(inputs)
        parts = _parts(len(x), member, self.members)
        rows = max(part.stop - part.start for _, part in parts)
        if rows * self.members == len(x):
            return self._forward(x.reshape(self.members, rows, -1), self._all).reshape(len(x), -1)
        if rows * self.members > PADDED * len(x):
            return np.concatenate([self._forward(x[part], self._each[m]).copy() for m, part in parts])
        padded = np.zeros((self.members, rows, x.shape[1]), np.float32)
        for m, part in parts:
            padded[m, : part.stop - part.start] = x[part]
        logits = self._forward(padded, self._all)
        return np.concatenate([logits[m, : part.stop - part.start] for m, part in parts])


def _parts(rows: int, member: np.ndarray | None, members: int) -> list[tuple[int, slice]]:
    """The members that have rows, and which ones."""
    if member is None:
        each = rows // members
        return [(m, slice(m * each, (m + 1) * each)) for m in range(members)]
    ends = np.searchsorted(member, np.arange(members), side="right").tolist()
    starts = [0, *ends[:-1]]
    return [(m, slice(a, b)) for m, (a, b) in enumerate(zip(starts, ends, strict=True)) if b > a]
