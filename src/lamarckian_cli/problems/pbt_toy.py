"""The toy problem of population based training: weights that learn on a surrogate of what counts.

Source: Jaderberg et al., "Population Based Training of Neural Networks" (2017), section 4 and
figure 2. What counts is Q = 1.2 - (w0^2 + w1^2); training climbs 1.2 - (h0 w0^2 + h1 w1^2), so
a member with h = (1, 0) never improves w1. Only who takes over weights from others, and
changes h, gets both to 0.
"""

from __future__ import annotations

import numpy as np

from lamarckian_cli.ec.coding import Coding, Genomes, NetworkWeights, bounds
from lamarckian_cli.errors import require
from lamarckian_cli.problems.evaluator import Description, Evaluator, Objective, Results

MOST = 1.2
START = 0.9  # of both weights


class PBTToy(Evaluator):
    """Evaluating trains the weights for `steps` steps of gradient ascent at rate `lr`."""

    def __init__(self, *, steps: int = 4, lr: float = 0.01) -> None:
        require(steps >= 1, "problem.steps", steps, "it must be at least 1")
        require(0.0 < lr < 0.5, "problem.lr", lr, "it must lie between 0 and 0.5 (0.01 as published)")
        self.steps = steps
        self.lr = lr
        self._description = Description(
            coding=Coding({"h": bounds(0.0, 1.0, 2), "weights": NetworkWeights(layers=(2,))}),
            objectives=(Objective(name="Q", sense="max"),),
        )

    def describe(self) -> Description:
        return self._description

    def initialize(self, n: int, rng: np.random.Generator) -> Genomes:
        """h uniform in [0, 1], both weights 0.9."""
        h = self._description.coding.parts["h"].sample(n, rng)
        return {"h": h, "weights": np.full((n, 2), START, np.float32)}

    def evaluate(self, genomes: Genomes, seeds: np.ndarray) -> Results:
        h, weights = genomes["h"], genomes["weights"].astype(np.float64)
        for _ in range(self.steps):
            weights = weights - self.lr * 2.0 * h * weights
        trained = weights.astype(np.float32)
        return Results(
            objectives=MOST - np.square(trained, dtype=np.float64).sum(1, keepdims=True),
            genomes={"h": h.copy(), "weights": trained},
            cost=np.full(len(h), float(self.steps)),
        )

    def optimum(self) -> float:
        """1.2, which is come near and never reached."""
        return MOST
