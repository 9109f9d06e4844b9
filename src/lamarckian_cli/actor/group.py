"""Several policies of one shape as an actor holds them: a population's members, answered as one.

The group's players are its members' in their order, equally many each: of 8 slots and two
members, slots 0 to 3 are the first one's. To the rollout a group is a policy like any other; the
forward pass is stacked, and each member's unrolls, results and weights go by its own name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lamarckian_cli.actor.buffers import UnrollBuffer
from lamarckian_cli.actor.stack import Stack
from lamarckian_cli.model.architecture import Architecture
from lamarckian_cli.records import SeatSpec, Unrolls, Weights

if TYPE_CHECKING:
    from lamarckian_cli.actor.players import Player


class PolicyGroup(Stack):
    """The members `names`, with a stream of random actions for all of them."""

    def __init__(
        self,
        names: Sequence[str],
        seat: SeatSpec,
        architecture: Architecture,
        *,
        slots: int,
        seed: int,
        bf16: bool = False,
        normalizes: bool = False,
        buffer: UnrollBuffer | None = None,
    ) -> None:
        """`slots` players in all, a multiple of the number of names."""
        if slots % len(names):
            raise ValueError(f"{slots} players cannot be shared out evenly among {len(names)} members")
        self._names = tuple(names)
        self._each = slots // len(names)
        self._slots = [range(at, at + self._each) for at in range(0, slots, self._each)]
        super().__init__(
            "+".join(names),
            len(names),
            seat,
            architecture,
            member=np.repeat(np.arange(len(names)), self._each),
            seed=seed,
            bf16=bf16,
            normalizes=normalizes,
            buffer=buffer,
        )

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    def load(self, weights: Weights) -> None:
        """Take over the published weights of the member that they are of."""
        member = self._names.index(weights.policy)
        self._stacked.load(member, weights.vector)
        self._versions[member] = weights.version

    def identity(self, player: Player) -> tuple[str, int]:
        member = player.slot // self._each
        return self._names[member], int(self._versions[member])

    def take(self, minimum: int) -> list[Unrolls]:
        """The complete unrolls of each member that has at least `minimum`."""
        buffer = self.buffer
        if buffer is None or buffer.complete < minimum:
            return []
        return [
            buffer.take_of(slots, name)
            for name, slots in zip(self._names, self._slots, strict=True)
            if buffer.complete_of(slots) >= minimum
        ]

    def _logits(
        self, players: list[Player], inputs: tuple[np.ndarray, ...]
    ) -> tuple[np.ndarray, int | np.ndarray]:
        if len(players) == len(self._member):
            return self._stacked(inputs, None), self._versions[self._member]
        return super()._logits(players, inputs)
