"""The competitive swarm optimizer (Cheng & Jin 2015): where two meet, the loser learns from the winner.

Only losers move and are evaluated; nobody remembers a best place. A generation is one
competition of everybody, so half of the population in results. While some are out, those who
are back compete among themselves, and nobody waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamarckian_cli.ec.coding import Genomes
from lamarckian_cli.errors import require
from lamarckian_cli.evolution.arrivals import Arrivals
from lamarckian_cli.evolution.asking import Asking, check_population, check_staleness, one_objective
from lamarckian_cli.evolution.individuals import as_state, better, from_state, living, put, unknown
from lamarckian_cli.evolution.members import Members
from lamarckian_cli.evolution.strategy import FirstGenomes, Individuals, Settings, Task
from lamarckian_cli.evolution.vectors import Vectors


@dataclass(frozen=True, kw_only=True)
class CSOSettings(Settings):
    """Keys of `conf/evo/cso.yaml`."""

    population: int = 100  # particles
    max_staleness: int | None = None  # generations that a loser may be out; None: any
    phi: float = 0.0  # pull of the mean place; the authors: 0 up to 100 particles, 0.1 to 0.3 for hundreds

    def __post_init__(self) -> None:
        check_population(self.population, 4)
        check_staleness(self.max_staleness)
        require(self.phi >= 0, "evo.phi", self.phi, "it must be at least 0")

    def make(self, task: Task, first: FirstGenomes, rng: np.random.Generator) -> CSO:
        one_objective(task, "cso")
        return CSO(self, task, first, rng)


class CSO(Asking):
    """`variation` moves the losers of a competition."""

    def __init__(
        self, settings: CSOSettings, task: Task, first: FirstGenomes, rng: np.random.Generator
    ) -> None:
        n = settings.population
        super().__init__(task, first, rng, Arrivals(first=n, each=n // 2, limit=settings.max_staleness))
        self._phi = settings.phi
        self._vectors = Vectors(task.coding, "cso")
        self._members = Members(n)
        self._current = unknown(task, n)
        nowhere = np.empty((0, self._vectors.size))  # until first genomes are drawn
        self._x = self._v = nowhere  # [N, D]
        self._pool = np.empty(0, np.int64)  # who has yet to compete in this round, in a random order

    def tell(self, evaluated: Individuals) -> None:
        self._count(evaluated)
        particles = self._members.back(evaluated.ids)
        self._x[particles] = self._vectors.of(evaluated.genomes)
        put(self._current, particles, evaluated)

    def population(self) -> Individuals:
        return living(self._current.take(self._current.ids >= 0))

    def variation(self, losers: np.ndarray, winners: np.ndarray) -> None:
        """Move losers [K] toward winners [K] (the paper's equations 6 and 7)."""
        x = self._x[losers]
        r1, r2, r3 = self._rng.random((3, *x.shape))
        v = r1 * self._v[losers] + r2 * (self._x[winners] - x)
        if self._phi:
            v += self._phi * r3 * (self._x.mean(axis=0) - x)
        self._v[losers] = v
        self._x[losers] = np.clip(x + v, self._vectors.low, self._vectors.high)

    def _ready(self) -> int:
        asked = self._members.asked
        if not asked.all():
            return int((asked == 0).sum())
        return len(self._pool) // 2 or len(self._members.free()) // 2

    def _make(self, ids: np.ndarray) -> tuple[Genomes, np.ndarray]:
        n = len(ids)
        if not len(self._x):
            self._x = self._vectors.of(self._draw_first(len(self._members)))
            self._v = np.zeros_like(self._x)
        if not self._members.asked.all():
            fresh = self._members.free()[:n]
            self._members.send(fresh, ids)
            return self._vectors.genomes(self._x[fresh]), np.full((n, 2), -1)
        if len(self._pool) < 2:
            self._pool = self._rng.permutation(self._members.free())
        one, other = self._pool[: 2 * n].reshape(n, 2).T
        self._pool = self._pool[2 * n :]
        wins = better(self._current.take(one), self._current.take(other))
        winners, losers = np.where(wins, one, other), np.where(wins, other, one)
        parents = np.stack((self._current.ids[losers], self._current.ids[winners]), axis=1)
        self.variation(losers, winners)
        self._members.send(losers, ids)
        return self._vectors.genomes(self._x[losers]), parents

    def _own_state(self) -> dict[str, Any]:
        return {
            "members": self._members.state(),
            "current": as_state(self._current),
            "x": self._x.copy(),
            "v": self._v.copy(),
            "pool": self._pool.copy(),
        }

    def _adopt_state(self, state: Mapping[str, Any]) -> None:
        self._members.restore(state["members"])
        self._current = from_state(state["current"])
        self._x, self._v, self._pool = (np.array(state[name]) for name in ("x", "v", "pool"))
