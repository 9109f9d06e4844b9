"""Particle swarm optimization (Kennedy & Eberhart 1995), each particle at its own pace.

A particle that has been evaluated may move on at once, toward the best places known by then:
nothing waits for a generation. Asked for all together it is the usual synchronous swarm.
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
from lamarckian_cli.evolution.individuals import (
    as_state,
    best_first,
    better,
    from_state,
    living,
    put,
    unknown,
)
from lamarckian_cli.evolution.members import Members
from lamarckian_cli.evolution.strategy import FirstGenomes, Individuals, Settings, Task
from lamarckian_cli.evolution.vectors import Vectors

REBOUND = -0.5  # of the velocity, where a particle meets a bound (Clerc's SPSO 2011)


@dataclass(frozen=True, kw_only=True)
class PSOSettings(Settings):
    """Keys of `conf/evo/pso.yaml`. The coefficients are those of Clerc & Kennedy (2002)."""

    population: int = 40  # particles
    max_staleness: int | None = None  # generations that a particle may be out; None: any
    inertia: float = 0.7298
    cognitive: float = 1.49618  # pull of the particle's own best place
    social: float = 1.49618  # pull of the best place that it is told of
    topology: str = "global"  # who tells it: global: everybody; ring: its neighbours
    neighbours: int = 1  # of each side, in a ring

    def __post_init__(self) -> None:
        check_population(self.population, 2)
        check_staleness(self.max_staleness)
        for name in ("inertia", "cognitive", "social"):
            value = getattr(self, name)
            require(value >= 0, f"evo.{name}", value, "it must be at least 0")
        require(self.topology in ("global", "ring"), "evo.topology", self.topology, "choose global or ring")
        require(
            1 <= self.neighbours <= self.population // 2,
            "evo.neighbours",
            self.neighbours,
            f"it must be 1 to half of evo.population ({self.population})",
        )

    def make(self, task: Task, first: FirstGenomes, rng: np.random.Generator) -> PSO:
        one_objective(task, "pso")
        return PSO(self, task, first, rng)


class PSO(Asking):
    """`variation` moves particles; a result becomes the best place of its particle where it is better."""

    def __init__(
        self, settings: PSOSettings, task: Task, first: FirstGenomes, rng: np.random.Generator
    ) -> None:
        n = settings.population
        super().__init__(task, first, rng, Arrivals(first=n, each=n, limit=settings.max_staleness))
        self._settings = settings
        self._vectors = Vectors(task.coding, "pso")
        self._members = Members(n)
        self._informants = _informants(settings)
        self._best = unknown(task, n)
        nowhere = np.empty((0, self._vectors.size))  # until first genomes are drawn
        self._x = self._v = self._best_x = nowhere  # [N, D]: where each is or was sent, velocity, best place

    def tell(self, evaluated: Individuals) -> None:
        self._count(evaluated)
        particles = self._members.back(evaluated.ids)
        self._x[particles] = self._vectors.of(evaluated.genomes)
        best = self._best.take(particles)
        improved = better(evaluated, best) | (best.ids < 0)
        put(self._best, particles[improved], evaluated.take(improved))
        self._best_x[particles[improved]] = self._x[particles[improved]]

    def population(self) -> Individuals:
        return living(self._best.take(self._best.ids >= 0))

    def variation(self, particles: np.ndarray) -> np.ndarray:
        """Move particles [K] that have been evaluated; returns whose best place each was told of [K]."""
        order = best_first(self._best)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        rank[self._best.ids < 0] = len(order)  # nobody knows them yet
        informants = self._informants[particles]
        guides = informants[np.arange(len(particles)), rank[informants].argmin(axis=1)]
        x, v = self._x[particles], self._v[particles]
        own, other = self._rng.random((2, *x.shape))
        v *= self._settings.inertia
        v += self._settings.cognitive * own * (self._best_x[particles] - x)
        v += self._settings.social * other * (self._best_x[guides] - x)
        x += v
        v[(x < self._vectors.low) | (x > self._vectors.high)] *= REBOUND
        self._x[particles] = np.clip(x, self._vectors.low, self._vectors.high)
        self._v[particles] = v
        return guides

    def _ready(self) -> int:
        return len(self._members.free())

    def _make(self, ids: np.ndarray) -> tuple[Genomes, np.ndarray]:
        if not len(self._x):
            self._x = self._vectors.of(self._draw_first(len(self._members)))
            self._v, self._best_x = np.zeros_like(self._x), self._x.copy()
        particles = self._members.free()[: len(ids)]
        moved = self._members.asked[particles] > 0
        parents = np.full((len(ids), 2), -1)
        if moved.any():
            guides = self.variation(particles[moved])
            parents[moved] = np.stack((self._best.ids[particles[moved]], self._best.ids[guides]), axis=1)
        self._members.send(particles, ids)
        return self._vectors.genomes(self._x[particles]), parents

    def _own_state(self) -> dict[str, Any]:
        return {
            "members": self._members.state(),
            "best": as_state(self._best),
            "x": self._x.copy(),
            "v": self._v.copy(),
            "best_x": self._best_x.copy(),
        }

    def _adopt_state(self, state: Mapping[str, Any]) -> None:
        self._members.restore(state["members"])
        self._best = from_state(state["best"])
        self._x, self._v, self._best_x = (np.array(state[name]) for name in ("x", "v", "best_x"))


def _informants(settings: PSOSettings) -> np.ndarray:
    """Who tells each particle: indices [N, K]."""
    n = settings.population
    if settings.topology == "global":
        return np.tile(np.arange(n), (n, 1))
    around = np.arange(-settings.neighbours, settings.neighbours + 1)
    return (np.arange(n)[:, None] + around) % n
