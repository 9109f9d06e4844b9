"""A grid over behaviours that keeps the best individual of every cell.

Elites are numbered by their cells, in the order of the grid, and never by when they came: so
what is drawn from an archive does not depend on the order in which it was filled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lamarckian_cli.ec.coding import Genomes, take
from lamarckian_cli.evolution.individuals import (
    as_state,
    best_first,
    better,
    failed,
    from_state,
    put,
    unknown,
)
from lamarckian_cli.evolution.strategy import Individuals, Task


class Archive:
    """Elites lie in arrays that grow by doubling, as their cells are reached."""

    def __init__(self, task: Task, cells: tuple[int, ...]) -> None:
        """`cells` along each measure, of equal width over its range."""
        self._task = task
        self._shape = np.array(cells)
        self._low, high = np.array(task.measures, np.float64).T
        self._width = (high - self._low) / self._shape
        self._row = np.full(int(self._shape.prod()), -1)  # of each cell's elite; -1: empty
        self._cells = np.empty(0, np.int64)  # those that have an elite, in order
        self._elites = unknown(task, 16)  # with room for more

    def __len__(self) -> int:
        return len(self._cells)

    @property
    def coverage(self) -> float:
        """The share of cells that have an elite, in [0, 1]."""
        return len(self) / len(self._row)

    def elites(self) -> Individuals:
        """All of them, copied."""
        return self._elites.take(self._row[self._cells])

    def genomes(self, index: np.ndarray) -> Genomes:
        """Genomes [*, D] of elites number `index` [*]."""
        return take(self._elites.genomes, self._row[self._cells[index]])

    def ids(self, index: np.ndarray) -> np.ndarray:
        """Ids [*] of elites number `index` [*]."""
        return self._elites.ids[self._row[self._cells[index]]]

    def cells_of(self, measures: np.ndarray) -> np.ndarray:
        """Cell [N] of each of measures [N, B]; those out of range belong to the cells at the edge."""
        place = np.floor((measures - self._low) / self._width)
        place = np.clip(place, 0, self._shape - 1).astype(np.int64)
        return np.ravel_multi_index(tuple(place.T), tuple(self._shape.tolist()))

    def add(self, people: Individuals) -> None:
        """Take in whoever is better than the elite of its cell, or finds it empty; of equals the older stays.

        The result does not depend on the order or grouping in which individuals are added. Who
        failed, or has no measure, is left out.
        """
        people = people.take(~failed(people) & np.isfinite(people.measures).all(axis=1))
        if not len(people):
            return
        people = people.take(best_first(people))
        cells, best = np.unique(self.cells_of(people.measures), return_index=True)
        people = people.take(best)
        rows = self._row[cells]
        fresh = rows < 0
        there = self._elites.take(np.maximum(rows, 0))
        older = ~better(there, people) & (people.ids < there.ids)
        wins = better(people, there) | older
        challenge = wins & ~fresh
        put(self._elites, rows[challenge], people.take(challenge))
        self._append(cells[fresh], people.take(fresh))

    def _append(self, cells: np.ndarray, people: Individuals) -> None:
        needed = len(self) + len(people)
        while needed > len(self._elites):
            self._elites = Individuals.join([self._elites, unknown(self._task, len(self._elites))])
        rows = np.arange(len(self), needed)
        put(self._elites, rows, people)
        self._row[cells] = rows
        self._cells = np.sort(np.concatenate((self._cells, cells)))

    def state(self) -> dict[str, Any]:
        return {"elites": as_state(self.elites()), "cells": self._cells.copy()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._row[:] = -1
        self._cells = np.empty(0, np.int64)
        self._append(np.array(state["cells"]), from_state(state["elites"]))
