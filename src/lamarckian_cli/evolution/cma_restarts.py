"""When a descent of CMA-ES has stopped: whether there is another, and how large."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Of the next descent."""

    population: int | None  # None: as `cma` has it
    sigma_factor: float = 1.0
    iterations: float | None = None  # at most; None: as `cma` has it


class Restarts:
    """`kind` none, ipop (Auger & Hansen 2005) or bipop (Hansen 2009); `most` doublings of the population.

    BIPOP has two budgets: whichever regime has used fewer evaluations is next, the large with
    doubled population, the small with a random population between the first and the last large
    one and a small sigma. The first descent counts as small.
    """

    def __init__(self, kind: str, most: int, population: int | None) -> None:
        self._kind, self._most = kind, most
        self._population = population  # of the first descent; known after it
        self._iterations: float | None = None
        self._doublings = 0
        self._small = self._large = 0  # evaluations
        self._is_large = False  # the present descent

    def first(self) -> Plan:
        return Plan(population=self._population)

    def after(
        self, *, population: int, evaluations: int, iterations: float, rng: np.random.Generator
    ) -> Plan | None:
        """What follows a descent that took so many evaluations, allowed `iterations`; None: nothing."""
        if self._iterations is None:
            self._population, self._iterations = population, iterations
        if self._is_large:
            self._large += evaluations
        else:
            self._small += evaluations
        if self._kind == "none" or self._doublings >= self._most:
            return None
        if self._kind == "bipop" and self._small < self._large:
            return self._small_plan(rng)
        self._doublings += 1
        self._is_large = True
        return Plan(population=self._base * 2**self._doublings, iterations=self._iterations)

    @property
    def _base(self) -> int:
        assert self._population is not None
        return self._population

    def _small_plan(self, rng: np.random.Generator) -> Plan:
        self._is_large = False
        factor, size = rng.random(2)
        population = int(self._base * (0.5 * 2**self._doublings) ** (size**2))
        return Plan(
            population=population,
            sigma_factor=0.01**factor,
            iterations=min(self._iterations or np.inf, 0.5 * self._large / population),
        )

    def state(self) -> dict[str, Any]:
        return {
            "population": self._population,
            "iterations": self._iterations,
            "doublings": self._doublings,
            "small": self._small,
            "large": self._large,
            "is_large": self._is_large,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._population, self._iterations = state["population"], state["iterations"]
        self._doublings = int(state["doublings"])
        self._small, self._large = int(state["small"]), int(state["large"])
        self._is_large = bool(state["is_large"])
