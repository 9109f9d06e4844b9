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

    A policy with a `buffer` trains: what its players see, do and gain is recorded; it cannot be greedy.
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
        if greedy and buffer is not None:
            raise ValueError("a greedy policy has no log-probabilities to record")
        self.name = name
        self.seat = seat
        self.version = 0
        self.greedy = greedy
        self.buffer = buffer
        self.waiting: list[Player] = []
        self.inference = make_inference(seat, architecture, normalizes=normalizes, bf16=bf16)
        self.sampler = ActionSampler(seat.heads)
        self._masked = any(isinstance(head, DiscreteHead) and head.masked for head in seat.heads)
        self._unmasked = (None,) * len(seat.heads)
        self._numbers: list[int] = []  # slots of those who were answered last, ...
        self._slots = np.zeros(0, np.int64)  # ... and as an array
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
        masks = self._masks(states) if self._masked else self._unmasked
        buffer = self.buffer
        if buffer is not None:
            slots = self._slots_of(players)
            places = buffer.observe(slots, inputs, self._rewards_of(players))
        logits = self.inference(inputs)
        if self.greedy:
            chosen = self.sampler.greedy(logits, masks)
        else:
            chosen, log_prob = self.sampler.sample(logits, masks, self._rng)
        actions = list(zip(*[a.tolist() if a.ndim == 1 else a for a in chosen], strict=True))
        scripted = [i for i, state in enumerate(states) if state.script is not None]
        for i in scripted:
            actions[i] = states[i].script or ()
            for array, part in zip(chosen, actions[i], strict=True):
                array[i] = part
        if buffer is not None:
            buffer.record(slots, places, chosen, log_prob, self.version)
            if self._masked:
                buffer.record_masks(places, masks)
            if scripted:
                buffer.record_scripted(places[scripted])
        players[0].task.scheduler.wake_all([player.task for player in players], actions)

    def _slots_of(self, players: list[Player]) -> np.ndarray:
        """Their slots in the buffer; mostly they are the same players as the last time."""
        numbers = [player.slot for player in players]
        if numbers != self._numbers:
            self._numbers, self._slots = numbers, np.array(numbers)
        return self._slots

    def _rewards_of(self, players: list[Player]) -> np.ndarray:
        """[n, K] float32."""
        if len(self.seat.rewards) == 1:
            return np.array([player.last[0] for player in players], np.float32)[:, None]
        return np.array([player.last for player in players], np.float32)

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
