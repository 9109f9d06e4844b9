"""The opponents of self-play as an actor holds them: snapshots of the pool, one for each match.

To the rollout they are one policy that does not learn. When a match begins, `meet` draws who it is
against, by the pairings that the learner's process worked out; that snapshot plays every seat of
the pool until the match's end. An opponent never changes under a match: a new snapshot takes the
memory of one that has left the pool and is in no match any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lamarckian_cli.actor.stack import Stack
from lamarckian_cli.model.architecture import Architecture
from lamarckian_cli.records import Pairings, SeatSpec, Weights, place_name
from lamarckian_cli.selfplay.choice import choose

if TYPE_CHECKING:
    from lamarckian_cli.actor.players import Player

EMPTY = -1  # number of the snapshot where there is none
SPARE = 1  # with it there is always one that no new match is played against, and so comes free


class Opponents(Stack):
    """The snapshots of a pool with `places` places."""

    def __init__(
        self,
        places: int,
        seat: SeatSpec,
        architecture: Architecture,
        *,
        slots: int,
        seed: int,
        bf16: bool = False,
        normalizes: bool = False,
    ) -> None:
        """`slots` players in all."""
        self._places = tuple(place_name(place) for place in range(places))
        self._waiting_weights: dict[str, Weights] = {}  # by the name of their place in the pool
        self._pairings: Pairings | None = None
        self._names_of: dict[int, str] = {}  # snapshots that were in the pool, by their number
        self._matches = np.zeros(places + SPARE, np.int64)  # under way against each
        super().__init__(
            "pool",
            places + SPARE,
            seat,
            architecture,
            member=np.zeros(slots, np.int64),
            seed=seed,
            bf16=bf16,
            normalizes=normalizes,
        )
        self._versions[:] = EMPTY  # a snapshot's version is its number

    @property
    def names(self) -> tuple[str, ...]:
        return self._places

    @property
    def ready(self) -> bool:
        """Whether somebody can be met."""
        return bool(self._known().any())

    def load(self, weights: Weights) -> None:
        """Take over a snapshot as soon as there is room for it."""
        self._waiting_weights[weights.policy] = weights
        self._make_room()

    def pair(self, pairings: Pairings) -> None:
        """Draw opponents by these from now on."""
        if len(pairings.opponents) != len(self._places):
            raise ValueError(f"pairings of {len(pairings.opponents)} places; there are {len(self._places)}")
        self._pairings = pairings
        here = set(self._versions.tolist())
        names = dict(zip(pairings.numbers, pairings.opponents, strict=True))
        self._names_of = {n: name for n, name in self._names_of.items() if n in here} | names
        self._names_of.pop(EMPTY, None)
        self._make_room()

    def meet(self, players: Sequence[Player], learner: str, rng: np.random.Generator) -> str:
        """Draw whom `learner` meets in a match that begins, whose pool seats are `players`; its name."""
        member = self._drawn(learner, rng)
        self._matches[member] += 1
        for player in players:
            self._member[player.slot] = member
        return self._names_of[int(self._versions[member])]

    def part(self, players: Sequence[Player]) -> None:
        """That match is over, or given up."""
        self._matches[self._member[players[0].slot]] -= 1
        if self._waiting_weights:
            self._make_room()

    def identity(self, player: Player) -> tuple[str, int]:
        number = int(self._versions[self._member[player.slot]])
        return self._names_of.get(number, self.name), number

    # -------------------------------------------------------------- parts

    def _make_room(self) -> None:
        """Put snapshots that wait where nobody is, or somebody who has left the pool and plays no more."""
        for place, weights in list(self._waiting_weights.items()):
            free = np.flatnonzero((self._matches == 0) & self._gone())
            if not len(free):
                return
            self._stacked.load(int(free[0]), weights.vector)
            self._versions[free[0]] = weights.version
            del self._waiting_weights[place]

    def _gone(self) -> np.ndarray:
        """bool [members]: empty, or not in the pool any more; who is newer than the pairings is to come."""
        numbers = () if self._pairings is None else self._pairings.numbers
        old = self._versions <= max(numbers, default=EMPTY)
        gone: np.ndarray = old & ((self._versions == EMPTY) | ~np.isin(self._versions, numbers))
        return gone

    def _known(self) -> np.ndarray:
        """bool [members]: those whose name the pairings have told."""
        return np.isin(self._versions, list(self._names_of))

    def _drawn(self, learner: str, rng: np.random.Generator) -> int:
        """By the pairings, among those who are here: weights and pairings come each by themselves.

        The order is that of the pool's places, so that a resumed run draws as it would have.
        """
        assert self._pairings is not None
        numbers = np.array(self._pairings.numbers)
        chances = self._pairings.chances[self._pairings.learners.index(learner)]
        chances = np.where((numbers != EMPTY) & np.isin(numbers, self._versions), chances, 0.0)
        if chances.any():
            number = numbers[choose(chances / chances.sum(), rng)]
        else:  # the newest whose name is known: were others met too, none of them would ever come free
            number = self._versions[self._known()].max()
        return int(np.flatnonzero(self._versions == number)[0])
