"""Population based bandits (PB2, Parker-Holder, Nguyen and Roberts 2020): PBT whose explore asks a model.

What a stretch of training brings depends on its hyperparameters and on how long training has gone
on. A Gaussian process over both (`surrogate.py`) is fitted to the stretches seen so far, and a copy gets the
hyperparameters that promise most: a high mean, or much left to learn (an upper confidence bound).
Stretches that are still under way count as seen at their mean, so members do not all try the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamarckian_cli.ec.coding import Genomes, Integer, Part, Real
from lamarckian_cli.errors import require
from lamarckian_cli.evolution.asking import one_objective
from lamarckian_cli.evolution.pbt import PBT, PBTSettings
from lamarckian_cli.evolution.strategy import FirstGenomes, Individuals, Task
from lamarckian_cli.evolution.surrogate import Surrogate

TRIED = 2000  # points of the box that the bound is worked out for


@dataclass(frozen=True, kw_only=True)
class PB2Settings(PBTSettings):
    """Keys of `conf/evo/pb2.yaml`."""

    memory: int = 200  # newest stretches that the model is fitted to
    least: int = 4  # stretches before there is a model; until then copies are perturbed as in PBT
    confidence: float = 2.0  # deviations above the mean that the bound lies

    def __post_init__(self) -> None:
        PBTSettings.__post_init__(self)
        require(self.least >= 2, "evo.least", self.least, "it must be at least 2 (4)")
        require(
            self.memory >= self.least,
            "evo.memory",
            self.memory,
            f"it must be at least evo.least ({self.least})",
        )
        require(self.confidence >= 0, "evo.confidence", self.confidence, "it must be 0 or more (2)")

    def make(self, task: Task, first: FirstGenomes, rng: np.random.Generator) -> PB2:
        one_objective(task, "pb2")
        return PB2(self, task, first, rng)


class PB2(PBT):
    """A PBT that remembers what each stretch of training brought."""

    def __init__(
        self, settings: PB2Settings, task: Task, first: FirstGenomes, rng: np.random.Generator
    ) -> None:
        super().__init__(settings, task, first, rng)
        self._model = settings
        self._numbers = [
            name for name in self._explored if isinstance(task.coding.parts[name], Real | Integer)
        ]
        size = sum(task.coding.parts[name].size for name in self._numbers)
        self._seen = np.zeros((0, size + 2))  # [K] rows: place in the unit box, age, what it brought
        self._out: dict[int, tuple[np.ndarray, float]] = {}  # by id: its row so far, the parent's objective

    def tell(self, evaluated: Individuals) -> None:
        for row, number in enumerate(evaluated.ids.tolist()):
            known = self._out.pop(number, None)
            brought = np.inf if known is None else known[1] - evaluated.objectives[row, 0]  # minimised
            if known is not None and np.isfinite(brought) and evaluated.violation[row] <= 0:
                self._seen = np.vstack([self._seen, [*known[0], brought]])[-self._model.memory :]
        super().tell(evaluated)

    def explore(self, genome: Genomes, age: int) -> Genomes:
        """As PBT's, but numbers are those that promise most at this age."""
        varied = super().explore(genome, age)
        if len(self._seen) < self._model.least or not self._numbers:
            return varied
        model = Surrogate.fitted(self._seen[:, :-2], self._seen[:, -2], self._seen[:, -1])
        under_way = [row for row, _ in self._out.values()]
        if under_way:
            model = model.imagining(np.array(under_way)[:, :-1], np.array(under_way)[:, -1])
        tried = np.vstack([self._rng.random((TRIED, self._seen.shape[1] - 2)), self._place(varied)])
        mean, deviation = model.at(tried, np.full(len(tried), float(age)))
        return varied | self._numbers_at(tried[int(np.argmax(mean + self._model.confidence * deviation))])

    def _make(self, ids: np.ndarray) -> tuple[Genomes, np.ndarray]:
        genomes, parents = super()._make(ids)
        for row, number in enumerate(ids.tolist()):
            at = np.flatnonzero(self._latest.ids == parents[row, 0])
            if parents[row, 0] >= 0 and len(at):
                one = {name: values[row : row + 1] for name, values in genomes.items()}
                age = self._ages.of(self._members.who(number))
                self._out[number] = (
                    np.append(self._place(one)[0], age),
                    float(self._latest.objectives[at[0], 0]),
                )
        return genomes, parents

    # -------------------------------------------------------------- the unit box

    def _place(self, genome: Genomes) -> np.ndarray:
        """[1, D] of a genome [1, ...]: each number within its bounds, on its scale."""
        return np.hstack(
            [
                _scaled(genome[name].astype(np.float64), self._task.coding.parts[name])
                for name in self._numbers
            ]
        )

    def _numbers_at(self, place: np.ndarray) -> Genomes:
        found: Genomes = {}
        at = 0
        for name in self._numbers:
            part = self._task.coding.parts[name]
            found[name] = _unscaled(place[None, at : at + part.size], part)
            at += part.size
        return found

    def _own_state(self) -> dict[str, Any]:
        out = [[number, row, objective] for number, (row, objective) in self._out.items()]
        return {**super()._own_state(), "seen": self._seen.copy(), "stretches_out": out}

    def _adopt_state(self, state: Mapping[str, Any]) -> None:
        super()._adopt_state(state)
        self._seen = np.array(state["seen"])
        self._out = {
            int(number): (np.array(row), float(objective))
            for number, row, objective in state["stretches_out"]
        }


def _scaled(values: np.ndarray, part: Part) -> np.ndarray:
    assert isinstance(part, Real | Integer)
    low, high = _ends(part)
    width = np.where(high > low, high - low, 1.0)
    return (np.log(values) if part.log else values) / width - low / width


def _unscaled(place: np.ndarray, part: Part) -> np.ndarray:
    assert isinstance(part, Real | Integer)
    low, high = _ends(part)
    values = low + place * (high - low)
    values = np.exp(values) if part.log else values
    rounded = np.rint(values) if isinstance(part, Integer) else values
    return np.clip(rounded, part.low, part.high).astype(part.dtype)


def _ends(part: Real | Integer) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.asarray(part.low, np.float64), np.asarray(part.high, np.float64)
    return (np.log(low), np.log(high)) if part.log else (low, high)
