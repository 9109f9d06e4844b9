"""One descent of CMA-ES by the `cma` package, which can be rebuilt from what it was told.

An object of `cma` is a deep web that only pickle could write down. But all it does follows
from its random numbers and from the values it was told, so those are kept: 12 bytes a result,
for the present descent alone. Rebuilding repeats the arithmetic, without any evaluation, in
about a tenth of a millisecond a result.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from lamarckian_cli.errors import RunError


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a descent begins. `deviation` is in the coordinates' own units."""

    mean: np.ndarray  # [D]
    deviation: np.ndarray  # [D], above 0
    low: np.ndarray  # [D], infinite where there is no bound
    high: np.ndarray  # [D]
    population: int | None  # None: 4 + 3 ln D
    orthogonal: bool  # samples of a batch, as far as D of them can be
    iterations: float | None  # at most; None: as `cma` has it
    seed: int

    def state(self) -> dict[str, Any]:
        return {
            "mean": self.mean.copy(),
            "deviation": self.deviation.copy(),
            "population": self.population,
            "orthogonal": self.orthogonal,
            "iterations": self.iterations,
            "seed": self.seed,
        }


class Descent:
    """Draws points in batches and is told the values of some; a point is known by its place in drawing."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._cma = _strategy(start)
        self.population = int(self._cma.popsize)
        self._points: dict[int, np.ndarray] = {}  # place -> [D], of those who may still be told of
        self._drawn = 0  # batches
        self._told: list[np.ndarray] = []  # of each tell, places [K] int32
        self._values: list[np.ndarray] = []  # of each tell, [K] float64
        self._drawn_before: list[int] = []  # of each tell, batches drawn until then

    @property
    def evaluations(self) -> int:
        return int(self._cma.countevals)

    @property
    def iterations_max(self) -> float:
        return float(self._cma.opts["maxiter"])

    def draw(self) -> range:
        """Sample a batch from the distribution as it is: the places of its points."""
        first = self._drawn * self.population
        self._points.update(enumerate(self._cma.ask(), first))
        self._drawn += 1
        return range(first, first + self.population)

    def points(self, places: list[int]) -> np.ndarray:
        """[K, D]."""
        return np.array([self._points[place] for place in places])

    def forget(self, places: Iterable[int]) -> None:
        """These will not be told of."""
        for place in places:
            del self._points[place]

    def tell(self, places: np.ndarray, values: np.ndarray) -> None:
        """Finite values [K] of the points at places [K], K about the population."""
        if self._drawn_before and self._drawn_before[-1] == self._drawn:
            self.forget(self.draw())  # `cma` samples between any two updates
        self._drawn_before.append(self._drawn)
        self._told.append(places.astype(np.int32))
        self._values.append(values)
        points = [self._points.pop(place) for place in places.tolist()]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about points from before the last update, which are meant
            self._cma.tell(points, values.tolist())

    def stopped(self) -> str:
        """Which of its criteria `cma` stops by; empty while by none."""
        return ", ".join(self._cma.stop()) if self._drawn_before else ""

    def state(self) -> dict[str, Any]:
        return {
            "start": self._start.state(),
            "drawn": self._drawn,
            "drawn_before": np.array(self._drawn_before, np.int64),
            "sizes": np.array([len(places) for places in self._told], np.int64),
            "told": np.concatenate(self._told) if self._told else np.empty(0, np.int32),
            "values": np.concatenate(self._values) if self._values else np.empty(0),
            "waiting": np.array(sorted(self._points), np.int64),
            "mean": np.array(self._cma.mean),
        }

    @staticmethod
    def restored(state: Mapping[str, Any], low: np.ndarray, high: np.ndarray) -> Descent:
        """The descent of `state()`, bit for bit, on the kind of machine that made it. RunError elsewhere."""
        start = Start(
            mean=np.array(state["start"]["mean"]),
            deviation=np.array(state["start"]["deviation"]),
            low=low,
            high=high,
            population=state["start"]["population"],
            orthogonal=bool(state["start"]["orthogonal"]),
            iterations=state["start"]["iterations"],
            seed=int(state["start"]["seed"]),
        )
        descent = Descent(start)
        splits = np.cumsum(state["sizes"])[:-1]
        told, values = np.split(state["told"], splits), np.split(state["values"], splits)
        for drawn, places, f in zip(state["drawn_before"], told, values, strict=False):
            while descent._drawn < drawn:
                descent.draw()
            descent.tell(np.array(places), np.array(f))
        while descent._drawn < state["drawn"]:
            descent.draw()
        waiting = set(np.asarray(state["waiting"]).tolist())
        descent._points = {place: x for place, x in descent._points.items() if place in waiting}
        if not np.array_equal(descent._cma.mean, state["mean"]):
            raise RunError(
                "CMA-ES cannot be continued: repeating what it was told does not lead to where it was. "
                "Continue on the machine, and with the versions of numpy and cma, that it was begun with"
            )
        return descent


def _strategy(start: Start) -> Any:
    import cma  # takes a second, so only whoever uses it waits

    rng = np.random.Generator(np.random.PCG64(start.seed))
    scale = float(start.deviation.mean())
    options: dict[str, Any] = {
        "randn": partial(_orthogonal if start.orthogonal else _independent, rng),
        "seed": np.nan,  # leave NumPy's global generator alone
        "verbose": -10,  # and so without a file of the user's that `cma` would take orders from
        "verb_log": 0,
    }
    if start.population is not None:
        options["popsize"] = start.population
    if start.iterations is not None:
        options["maxiter"] = start.iterations
    if np.isfinite(start.low).any() or np.isfinite(start.high).any():
        options["bounds"] = [_or_none(start.low), _or_none(start.high)]
    if np.any(start.deviation != scale):
        options["CMA_stds"] = start.deviation / scale
    return cma.CMAEvolutionStrategy(start.mean, scale, options)


def _independent(rng: np.random.Generator, n: int, size: int) -> np.ndarray:
    """Standard normal [n, size]."""
    return rng.standard_normal((n, size))


def _orthogonal(rng: np.random.Generator, n: int, size: int) -> np.ndarray:
    """Standard normal [n, size], `size` rows at a time orthogonal to each other (Wang, Emmerich & Bäck 2019).

    Each row for itself is distributed as ever; together they cover more directions.
    """
    drawn = rng.standard_normal((n, size))
    for start in range(0, n, size):
        rows = drawn[start : start + size]
        axes, triangle = np.linalg.qr(rows.T)
        # The first row keeps its direction, the others what is left of theirs, and all keep their length.
        axes *= np.sign(np.diagonal(triangle))
        drawn[start : start + size] = axes.T * np.linalg.norm(rows, axis=1, keepdims=True)
    return drawn


def _or_none(bounds: np.ndarray) -> list[float | None]:
    return [float(bound) if np.isfinite(bound) else None for bound in bounds]
