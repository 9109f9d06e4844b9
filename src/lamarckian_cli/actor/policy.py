"""A policy as an actor holds it: newest weights, and one forward pass for all who wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lamarckian_cli.actor.buffers import UnrollBuffer
from lamarckian_cli.errors import MDPError
from lamarckian_cli.model.architecture import Architecture
from lamarckian_cli.model.inference import make_inference
from lamarckian_cli.model.sampling import ActionSampler
from lamarckian_cli.records import DiscreteHead, SeatSpec, State, Weights

if TYPE_CHECKING:
    from lamarckian_cli.actor.players import Player


class Policy:
    """Answers every player that waits for it at once.

    A policy with a `buffer` trains: what its players see, do and gain is recorded.
    """

    def __init__(
        self,
        name: str,
        seat: SeatSpec,
        architecture: Architecture,
        *,
        seed: int,
        bf16: bool = False,
        normalizes: bool = False,
        greedy: bool = False,
        buffer: UnrollBuffer | None = None,
    ) -> None:
        self.name = name
        self.seat = seat
        self.version = 0
        self.greedy = greedy
        self.buffer = buffer
        self.waiting: list[Player] = []
        self.inference = make_inference(seat, architecture, normalizes=normalizes, bf16=bf16)
        self.sampler = ActionSampler(seat.heads)
        self._masked = any(isinstance(head, DiscreteHead) and head.masked for head in seat.heads)
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Start the stream of random actions anew."""
        self._rng = np.random.Generator(np.random.PCG64(seed))

    def load(self, weights: Weights) -> None:
        """Take over published weights."""
        self.inference.load(weights.vector)
        self.version = weights.version

    def answer(self) -> None:
        """One batched forward pass for everyone in `waiting`; each is woken with its action."""
        players, self.waiting = self.waiting, []
        states = [player.state for player in players]
        inputs = self._stack(players, states)
        masks = self._masks(states)
        place = None
        if self.buffer is not None:
            slots = np.array([player.slot for player in players])
            rewards = np.array([player.last for player in players], np.float32)
            place = self.buffer.observe(slots, inputs, rewards)
            self._record_masks(place, masks)
        logits = self.inference(inputs)
        if self.greedy:
            arrays, log_prob = self.sampler.greedy(logits, masks), None
        else:
            arrays, log_prob = self.sampler.sample(logits, masks, self._rng)
        columns = [a.tolist() if a.ndim == 1 else list(a) for a in arrays]
        actions = list(zip(*columns, strict=True))
        scripts = [state.script for state in states]
        scripted = [i for i, script in enumerate(scripts) if script is not None] if any(scripts) else []
        for i in scripted:
            actions[i] = scripts[i] or ()
            for array, part in zip(arrays, actions[i], strict=True):
                array[i] = part
        if self.buffer is not None and place is not None and log_prob is not None:
            if scripted:
                self.buffer.decided[place[0][scripted], place[1][scripted]] = False
            self.buffer.record(slots, place, arrays, log_prob, self.version)
        players[0].task.scheduler.wake_all([player.task for player in players], actions)

    def _stack(self, players: list[Player], states: list[State]) -> tuple[np.ndarray, ...]:
        stacked = []
        for k, spec in enumerate(self.seat.inputs):
            rows = [state.inputs[k] for state in states]
            try:
                # concatenate is several times faster than stack on many small arrays
                flat = np.concatenate(rows) if spec.shape else np.array(rows)
                stacked.append(flat.reshape(len(rows), *spec.shape).astype(spec.dtype, copy=False))
            except ValueError:
                for player, row in zip(players, rows, strict=True):
                    if np.shape(row) != spec.shape:
                        raise MDPError(
                            f"seat {player.seat} gave input {spec.name!r} of shape {list(np.shape(row))}; "
                            f"describe() says {list(spec.shape)}"
                        ) from None
                raise
        return tuple(stacked)

    def _masks(self, states: list[State]) -> tuple[np.ndarray | None, ...]:
        if not self._masked:
            return (None,) * len(self.seat.heads)
        masks: list[np.ndarray | None] = []
        for i, head in enumerate(self.seat.heads):
            if not isinstance(head, DiscreteHead) or not head.masked:
                masks.append(None)
                continue
            mask = np.ones((len(states), head.n), bool)
            for row, state in enumerate(states):
                if state.masks is not None and state.masks[i] is not None:
                    mask[row] = state.masks[i]
            masks.append(mask)
        return tuple(masks)

    def _record_masks(
        self, place: tuple[np.ndarray, np.ndarray], masks: tuple[np.ndarray | None, ...]
    ) -> None:
        if self._masked and self.buffer is not None:
            for array, mask in zip(self.buffer.masks, masks, strict=True):
                if array is not None and mask is not None:
                    array[place] = mask
