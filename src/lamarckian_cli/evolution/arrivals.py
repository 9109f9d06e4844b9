"""Who was asked for and who was told of, as counts: the generation, and how many may be out.

A generation is complete once its number of results has arrived, whoever's they are. So
nothing ever waits for one that is slow, unless it must: under a limit of staleness k, a
candidate asked in generation b has to arrive in generation b + k at the latest, and no more
are asked for than can arrive before it until then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

UNLIMITED = 2**62


class Arrivals:
    """`first` results complete generation 0, `each` every later one; `limit` is of staleness."""

    def __init__(self, *, first: int, each: int, limit: int | None) -> None:
        self.generation = 0
        self._each, self._limit = each, limit
        self._next_id = 0
        self._asked = 0
        self._told = 0
        self._due = first  # results at which the present generation is complete
        self._out: dict[int, int] = {}  # generation of asking -> how many of it are out

    @property
    def started(self) -> int:
        """How many were asked for in the whole run: the next id."""
        return self._next_id

    def missing(self) -> int:
        """Candidates that the present generation still lacks, those who are out not counted; 0 or more."""
        return max(0, self._due - self._asked)

    def expected(self) -> int:
        """Results that complete the present generation; at least 1."""
        return self._due - self._told

    def allowed(self) -> int:
        """How many may be asked for now without risk to the limit; UNLIMITED without one."""
        if self._limit is None:
            return UNLIMITED
        oldest = min(self._out) if self._out else self.generation
        # At worst the oldest arrives last: all others that were asked for have been told by then.
        ahead = oldest + self._limit - self.generation
        return max(0, self._due + ahead * self._each - self._asked)

    def ask(self, n: int) -> np.ndarray:
        """Ids [n] of n candidates, who are out from now on."""
        ids = np.arange(self._next_id, self._next_id + n)
        self._next_id += n
        self._asked += n
        self._out[self.generation] = self._out.get(self.generation, 0) + n
        return ids

    def tell(self, born: np.ndarray) -> bool:
        """Results arrived, at most `expected()`, of candidates asked in generations `born` [N].

        Returns whether they complete the generation, which then is the next one.
        """
        first = int(born[0])
        if (born == first).all():
            self._back(first, len(born))
        else:
            for generation, n in zip(*np.unique(born, return_counts=True), strict=True):
                self._back(int(generation), int(n))
        self._told += len(born)
        if self._told < self._due:
            return False
        self.generation += 1
        self._due += self._each
        return True

    def begin_anew(self, each: int) -> None:
        """Count from nothing, with another size: who is out is not waited for, and must not be told of."""
        self._each = each
        self._asked = self._told = 0
        self._due = each
        self._out.clear()

    def state(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "each": self._each,
            "next_id": self._next_id,
            "asked": self._asked,
            "told": self._told,
            "due": self._due,
            "out": [[generation, n] for generation, n in self._out.items()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.generation = int(state["generation"])
        self._each = int(state["each"])
        self._next_id = int(state["next_id"])
        self._asked, self._told, self._due = int(state["asked"]), int(state["told"]), int(state["due"])
        self._out = {int(generation): int(n) for generation, n in state["out"]}

    def _back(self, generation: int, n: int) -> None:
        left = self._out.get(generation, 0) - n
        if left < 0:
            raise ValueError(f"{n} results of generation {generation} arrived, and {left + n} are out")
        if left:
            self._out[generation] = left
        else:
            del self._out[generation]
