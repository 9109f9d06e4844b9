"""Knapsacks: which things to take, or how many of each, within a capacity; one value or two.

Instances are drawn as Zitzler and Thiele's (IEEE TEC 3(4), 1999): whole weights and values
from 10 to 100, and half of the whole weight as the capacity; here two values share one
knapsack. Optimum and front are exact, by dynamic programming.
"""

from __future__ import annotations

import numpy as np

from lamarckian_cli.ec.coding import Categorical, Integer
from lamarckian_cli.ec.pareto import nondominated
from lamarckian_cli.errors import require
from lamarckian_cli.problems.evaluator import Objective
from lamarckian_cli.problems.formula import Formula
from lamarckian_cli.seeding import stream

LEAST, MOST = 10, 100  # of weights and values
FRONT_THINGS = 50  # beyond so many, copies included, the states of the front's program get too many


class Knapsack(Formula):
    """`items` kinds of things, at most `copies` of each: choices of two where it is 1, else whole numbers."""

    def __init__(self, *, items: int = 100, copies: int = 1, objectives: int = 1, instance: int = 0) -> None:
        require(items >= 1, "problem.items", items, "it must be at least 1")
        require(copies >= 1, "problem.copies", copies, "it must be at least 1 (take it or leave it)")
        require(objectives in (1, 2), "problem.objectives", objectives, "it must be 1 or 2")
        rng = stream(instance, "knapsack", items)
        self.weights = rng.integers(LEAST, MOST, items, endpoint=True)
        self.worth = rng.integers(LEAST, MOST, (items, objectives), endpoint=True)  # [items, M]
        self.copies = copies
        self.capacity = int(self.weights.sum()) * copies // 2
        part = (
            Categorical(sizes=np.full(items, 2))
            if copies == 1
            else Integer(low=np.zeros(items, np.int64), high=np.full(items, copies))
        )
        names = ("value",) if objectives == 1 else ("value1", "value2")
        super().__init__(part, tuple(Objective(name=n, sense="max") for n in names), ("weight",))

    def values(self, x: np.ndarray) -> np.ndarray:
        return (x @ self.worth).astype(np.float64)

    def excess(self, x: np.ndarray) -> np.ndarray:
        return (x @ self.weights - self.capacity).astype(np.float64)[:, None]

    def optimum(self) -> float | None:
        """The most value that fits; None with two values."""
        if self.worth.shape[1] > 1:
            return None
        best = np.zeros(self.capacity + 1, np.int64)  # [weight]: the most value within that weight
        for weight, worth in zip(*self._bundles(), strict=True):
            if weight <= self.capacity:
                np.maximum(best[weight:], best[: len(best) - weight] + worth[0], out=best[weight:])
        return float(best[-1])

    def front(self) -> np.ndarray | None:
        """Every pair of values that no other dominates, [K, 2]; None with one value, and with more than 50
        things, copies included.

        Nemhauser and Ullmann's program: after each thing, only the loads (weight, values) stay that are
        lighter or worth more than every other.
        """
        if self.worth.shape[1] == 1 or len(self.weights) * self.copies > FRONT_THINGS:
            return None
        loads = np.zeros((1, 3))  # weight, and the values turned round, all to be minimised
        for weight, worth in zip(*self._bundles(), strict=True):
            more = loads + np.array([weight, *-worth])
            both = np.unique(np.concatenate([loads, more[more[:, 0] <= self.capacity]]), axis=0)
            loads = both[nondominated(both)]
        pairs = np.unique(-loads[:, 1:], axis=0)
        return pairs[nondominated(-pairs)]

    def _bundles(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights [B] and values [B, M] of bundles, to be taken or left, that add up to any count."""
        sizes: list[int] = []
        left = self.copies
        while left:
            sizes.append(min(left, 2 ** len(sizes)))
            left -= sizes[-1]
        bundle = np.array(sizes)
        weights = np.outer(self.weights, bundle).ravel()
        return weights, (self.worth[:, None, :] * bundle[:, None]).reshape(len(weights), -1)
