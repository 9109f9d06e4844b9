"""Several networks of one shape that an actor answers with as one policy: one stacked forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lamarckian_cli.actor.buffers import UnrollBuffer
from lamarckian_cli.actor.policy import Policy
from lamarckian_cli.model.architecture import Architecture
from lamarckian_cli.model.stacked import make_stacked
from lamarckian_cli.records import SeatSpec

if TYPE_CHECKING:
    from lamarckian_cli.actor.players import Player


class Stack(Policy):
    """`members` networks; each player is answered by the one that its slot has in `member`."""

    def __init__(
        self,
        name: str,
        members: int,
        seat: SeatSpec,
        architecture: Architecture,
        *,
        member: np.ndarray,
        seed: int,
        bf16: bool = False,
        normalizes: bool = False,
        buffer: UnrollBuffer | None = None,
    ) -> None:
        """`member` [slots] int64: who answers the player of each slot."""
        self._member = member
        self._versions = np.zeros(members, np.int64)
        super().__init__(name, seat, architecture, seed=seed, bf16=bf16, normalizes=normalizes, buffer=buffer)

    def _make_inference(self, architecture: Architecture, normalizes: bool, bf16: bool) -> None:
        members = len(self._versions)
        self._stacked = make_stacked(self.seat, architecture, members, normalizes=normalizes, bf16=bf16)

    def _logits(
        self, players: list[Player], inputs: tuple[np.ndarray, ...]
    ) -> tuple[np.ndarray, int | np.ndarray]:
        member = self._member[[player.slot for player in players]]
        versions = self._versions[member]
        if np.all(member[1:] >= member[:-1]):
            return self._stacked(inputs, member), versions
        order = np.argsort(member, kind="stable")
        sorted_logits = self._stacked(tuple(x[order] for x in inputs), member[order])
        logits = np.empty_like(sorted_logits)
        logits[order] = sorted_logits
        return logits, versions
