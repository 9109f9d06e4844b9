"""MAP-Elites (Mouret & Clune 2015): not one best, but the best of every kind of behaviour.

A result enters the archive as it arrives, and every candidate descends from elites drawn at
random from the archive as it is: nothing waits for a generation, which is a number of results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lamarckian_cli.ec.coding import Genomes
from lamarckian_cli.ec.variation import Variation
from lamarckian_cli.errors import ConfigError, require
from lamarckian_cli.evolution.archive import Archive
from lamarckian_cli.evolution.arrivals import Arrivals
from lamarckian_cli.evolution.asking import (
    Asking,
    FirstBorn,
    check_population,
    check_staleness,
    one_objective,
)
from lamarckian_cli.evolution.individuals import best_first
from lamarckian_cli.evolution.strategy import FirstGenomes, Individuals, Settings, Task

CELLS_MAX = 10_000_000


@dataclass(frozen=True, kw_only=True)
class MAPElitesSettings(Settings):
    """Keys of `conf/evo/map_elites.yaml`."""

    population: int = 100  # results of one generation; so many first genomes are drawn
    max_staleness: int | None = None  # generations that a candidate may be out; None: any
    cells: int | tuple[int, ...] = 50  # along each measure
    variation: Variation = field(default_factory=lambda: Variation(mutation="gaussian"))

    def __post_init__(self) -> None:
        check_population(self.population, 2)
        check_staleness(self.max_staleness)
        cells = (self.cells,) if isinstance(self.cells, int) else self.cells
        shown = self.cells if isinstance(self.cells, int) else list(self.cells)
        require(len(cells) > 0 and min(cells) >= 1, "evo.cells", shown, "it must be at least 1 (50)")

    def make(self, task: Task, first: FirstGenomes, rng: np.random.Generator) -> MAPElites:
        one_objective(task, "map_elites")
        return MAPElites(self, task, first, rng)

    def shape(self, task: Task) -> tuple[int, ...]:
        """Cells along each measure of the task, checked."""
        measures = len(task.measures)
        if not measures:
            raise ConfigError(
                "evo is map_elites, which needs measures of behaviour, and the problem has none; "
                "use problem=arm, an Evaluator with measures, or evo=ga"
            )
        cells = (self.cells,) * measures if isinstance(self.cells, int) else self.cells
        if len(cells) != measures:
            raise ConfigError(
                f"evo.cells is {list(cells)}; the problem has {measures} measures: give one number each"
            )
        total = int(np.prod(np.array(cells, np.float64)))
        require(
            total <= CELLS_MAX, "evo.cells", self.cells, f"{total} cells in all are more than {CELLS_MAX}"
        )
        return cells


class MAPElites(Asking):
    """`variation` makes children of elites."""

    def __init__(
        self, settings: MAPElitesSettings, task: Task, first: FirstGenomes, rng: np.random.Generator
    ) -> None:
        n = settings.population
        super().__init__(task, first, rng, Arrivals(first=n, each=n, limit=settings.max_staleness))
        self._variation = settings.variation
        self._variation.check(task.coding)
        self.archive = Archive(task, settings.shape(task))
        self._first_born = FirstBorn(n)

    def tell(self, evaluated: Individuals) -> None:
        self._count(evaluated)
        self.archive.add(evaluated)

    def population(self) -> Individuals:
        elites = self.archive.elites()
        return elites.take(best_first(elites))

    def numbers(self) -> dict[str, float]:
        """`coverage`: the share of cells that have an elite."""
        return {"coverage": self.archive.coverage}

    def variation(self, parents: Genomes) -> Genomes:
        """Children [2, N, D] of pairs of elites [2, N, D]."""
        return self._variation.vary(parents, self._task.coding, self._rng)

    def _ready(self) -> int:
        return max(1, self._arrivals.missing())

    def _make(self, ids: np.ndarray) -> tuple[Genomes, np.ndarray]:
        n, elites = len(ids), len(self.archive)
        if self._first_born.left or not elites:  # no elites: workers are free, and nobody is back
            return self._first_born.take(n, self._draw_first), np.full((n, 2), -1)
        pairs = self._rng.integers(elites, size=(2, (n + 1) // 2))
        children = self.variation(self.archive.genomes(pairs))
        flat = {name: values.reshape(-1, values.shape[-1])[:n] for name, values in children.items()}
        parents = self.archive.ids(pairs).T
        return flat, np.concatenate((parents, parents))[:n]

    def _own_state(self) -> dict[str, Any]:
        return {"archive": self.archive.state(), "first_born": self._first_born.state()}

    def _adopt_state(self, state: Mapping[str, Any]) -> None:
        self.archive.restore(state["archive"])
        self._first_born.restore(state["first_born"])
