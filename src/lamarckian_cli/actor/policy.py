"""A policy as an actor holds it: newest weights, and one forward pass for all who wait."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from lamarckian_cli.actor.buffers import UnrollBuffer
from lamarckian_cli.errors import MDPError
from lamarckian_cli.model.architecture import Architecture
from lamarckian_cli.model.inference import make_inference
from lamarckian_cli.model.sampling import ActionSampler
from lamarckian_cli.records import DiscreteHead, InputSpec, SeatSpec, Unrolls, Weights

if TYPE_CHECKING:
    from lamarckian_cli.actor.players import Player

Legal = tuple[np.ndarray | None, ...] | None  # State.masks
_dtype_of = attrgetter("dtype")


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
        self.players: list[Player] = []  # all who ask it, in the order of their slots
        self.waiting: list[Player] = []
        self._make_inference(architecture, normalizes, bf16)
        self.sampler = ActionSampler(seat.heads)
        self._dtypes = [{np.dtype(spec.dtype)} for spec in seat.inputs]
        self._masked = any(isinstance(head, DiscreteHead) and head.masked for head in seat.heads)
        self._unmasked = (None,) * len(seat.heads)
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Start the stream of random actions anew."""
        self._rng = np.random.Generator(np.random.PCG64(seed))

    def _make_inference(self, architecture: Architecture, normalizes: bool, bf16: bool) -> None:
        self.inference = make_inference(self.seat, architecture, normalizes=normalizes, bf16=bf16)

    # -------------------------------------------------------------- whose weights; a group has several

    def load(self, weights: Weights) -> None:
        """Take over published weights."""
        self.inference.load(weights.vector)
        self.version = weights.version

    @property
    def names(self) -> tuple[str, ...]:
        """What weights for it go by."""
        return (self.name,)

    def identity(self, player: Player) -> tuple[str, int]:
        """The name and the version of the weights that `player` plays with."""
        return self.name, self.version

    def take(self, minimum: int) -> list[Unrolls]:
        """The complete unrolls, where there are at least `minimum`."""
        buffer = self.buffer
        if buffer is None or buffer.complete < minimum:
            return []
        return [buffer.take(buffer.complete)]

    def _logits(
        self, players: list[Player], inputs: tuple[np.ndarray, ...]
    ) -> tuple[np.ndarray, int | np.ndarray]:
        """Logits [n, L] and the version of each, or of all."""
        return self.inference(inputs), self.version

    # -------------------------------------------------------------- answering

    def answer(self) -> None:
        """One batched forward pass for everyone in `waiting`; each is woken with its action."""
        players, self.waiting = self.waiting, []
        everyone = len(players) == len(self.players)
        if everyone:
            players = self.players
        seen, legal, scripts, _ = zip(*[player.state for player in players], strict=True)
        inputs = self._stack(players, seen)
        masks = self._masks(players, legal) if self._masked else self._unmasked
        buffer = self.buffer
        if buffer is not None:
            slots = None if everyone and len(players) == buffer.slots else _slots_of(players)
            places = buffer.observe(slots, inputs, self._rewards_of(players))
        logits, version = self._logits(players, inputs)
        if self.greedy:
            chosen = self.sampler.greedy(logits, masks)
        else:
            chosen, log_prob = self.sampler.sample(logits, masks, self._rng)
        actions = list(zip(*[a.tolist() if a.ndim == 1 else a for a in chosen], strict=True))
        scripted = []
        if scripts.count(None) != len(scripts):
            scripted = [i for i, script in enumerate(scripts) if script is not None]
            for i in scripted:
                actions[i] = scripts[i]
                for array, part in zip(chosen, actions[i], strict=True):
                    array[i] = part
        if buffer is not None:
            buffer.record(slots, places, chosen, log_prob, version)
            if self._masked:
                buffer.record_masks(places, masks)
            if scripted:
                buffer.record_scripted(places, scripted)
        players[0].task.scheduler.wake_all([player.task for player in players], actions)

    def _rewards_of(self, players: list[Player]) -> np.ndarray:
        """[n, K] float32."""
        if len(self.seat.rewards) == 1:
            return np.array([player.last[0] for player in players], np.float32)[:, None]
        for player in players:
            if len(player.last) != len(self.seat.rewards):
                raise wrong_reward(player, player.last)
        return np.array([player.last for player in players], np.float32)

    def _stack(
        self, players: list[Player], seen: tuple[tuple[np.ndarray, ...], ...]
    ) -> tuple[np.ndarray, ...]:
        """What each player sees, as one array [n, *shape] an input."""
        stacked = []
        for spec, dtype, rows in zip(self.seat.inputs, self._dtypes, zip(*seen, strict=True), strict=True):
            try:
                if set(map(_dtype_of, rows)) == dtype:
                    # for many small arrays several times faster than what NumPy offers
                    flat = np.frombuffer(bytearray().join(rows), spec.dtype)
                else:
                    flat = np.array(rows, spec.dtype)
                stacked.append(flat.reshape(len(rows), *spec.shape))
            except (ValueError, TypeError, AttributeError):
                stacked.append(self._stack_slowly(players, spec, rows))
        return tuple(stacked)

    def _stack_slowly(
        self, players: list[Player], spec: InputSpec, rows: tuple[np.ndarray, ...]
    ) -> np.ndarray:
        """Rows that are not contiguous; MDPError names the player whose row has another shape."""
        for player, row in zip(players, rows, strict=True):
            if np.shape(row) != spec.shape:
                raise MDPError(
                    f"seat {player.seat} gave input {spec.name!r} of shape {list(np.shape(row))}; "
                    f"describe() says {list(spec.shape)}"
                )
        return np.array(rows, spec.dtype)

    def _masks(self, players: list[Player], legal: tuple[Legal, ...]) -> tuple[np.ndarray | None, ...]:
        """What each player may do, bool [n, choices] a masked head; MDPError where that is nothing."""
        masks: list[np.ndarray | None] = []
        for i, head in enumerate(self.seat.heads):
            if not isinstance(head, DiscreteHead) or not head.masked:
                masks.append(None)
                continue
            mask = np.ones((len(legal), head.n), bool)
            for row, given in enumerate(legal):
                allowed = None if given is None else given[i]
                if allowed is None:
                    continue
                if np.shape(allowed) != (head.n,):
                    raise MDPError(
                        f"seat {players[row].seat} gave head {head.name!r} a mask of shape "
                        f"{list(np.shape(allowed))}; it has {head.n} choices, so [{head.n}] is expected"
                    )
                mask[row] = allowed
            nothing = ~mask.any(axis=1)
            if nothing.any():
                raise MDPError(
                    f"seat {players[int(nothing.argmax())].seat} has no legal choice for head {head.name!r}; "
                    "allow at least one, or give a State with decision=False"
                )
            masks.append(mask)
        return tuple(masks)


def wrong_reward(player: Player, gained: Any) -> MDPError:
    """What to say of a reward() that is not one number a reward head."""
    heads = len(player.policy.seat.rewards)
    return MDPError(
        f"seat {player.seat}: reward() returned {gained!r}; it must return {heads} number"
        f"{'s' if heads > 1 else ''}, one a reward head, as in {(1.0,) * heads}"
    )


def _slots_of(players: list[Player]) -> np.ndarray:
    return np.array([player.slot for player in players])
