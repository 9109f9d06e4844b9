"""The evolution strategy of Salimans et al. (2017): antithetic samples, ranks for rewards, Adam.

A candidate is the mean plus or minus noise, and its noise follows from its id: a result can
come late, whatever the mean is by then, and still be worth its own direction, as a stale
gradient is. So nothing has to be kept of who is out. What evaluating makes of the genomes is
not taken over: the gradient needs the noise that was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamarckian_cli.ec.coding import Genomes
from lamarckian_cli.errors import require
from lamarckian_cli.evolution.arrivals import Arrivals
from lamarckian_cli.evolution.asking import (
    Best,
    Gathering,
    check_population,
    check_staleness,
    one_objective,
)
from lamarckian_cli.evolution.individuals import as_state, best_first, failed, from_state, unknown
from lamarckian_cli.evolution.strategy import FirstGenomes, Individuals, Settings, Task
from lamarckian_cli.evolution.vectors import Vectors

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8  # of Adam


@dataclass(frozen=True, kw_only=True)
class OpenAIESSettings(Settings):
    """Keys of `conf/evo/openai_es.yaml`. For real parts `sigma` and `lr` are in widths of the start box."""

    population: int = 100  # samples of one step, in pairs of opposite noise
    max_staleness: int | None = None  # steps between asking for a sample and its use; None: any
    sigma: float = 0.02  # of the noise
    sigma_decay: float = 1.0  # factor of sigma, each step
    lr: float = 0.01  # of Adam
    lr_decay: float = 1.0  # factor of lr, each step
    weight_decay: float = 0.005  # of network weights

    def __post_init__(self) -> None:
        check_population(self.population, 2)
        require(
            self.population % 2 == 0,
            "evo.population",
            self.population,
            "it must be even: samples come in pairs",
        )
        check_staleness(self.max_staleness)
        for name in ("sigma", "lr"):
            value = getattr(self, name)
            require(value > 0, f"evo.{name}", value, "it must be above 0")
        for name in ("sigma_decay", "lr_decay"):
            value = getattr(self, name)
            require(0 < value <= 1, f"evo.{name}", value, "it must lie in (0, 1]; 1 is none")
        require(self.weight_decay >= 0, "evo.weight_decay", self.weight_decay, "it must be at least 0")

    def make(self, task: Task, first: FirstGenomes, rng: np.random.Generator) -> OpenAIES:
        one_objective(task, "openai_es")
        return OpenAIES(self, task, first, rng)


class OpenAIES(Gathering):
    """`variation` draws samples about the mean."""

    def __init__(
        self, settings: OpenAIESSettings, task: Task, first: FirstGenomes, rng: np.random.Generator
    ) -> None:
        n = settings.population
        super().__init__(task, first, rng, Arrivals(first=n, each=n, limit=settings.max_staleness))
        self._settings = settings
        self._vectors = Vectors(task.coding, "openai_es")
        self._key = int(rng.integers(2**63))  # of the noise
        self._decay = settings.weight_decay * self._vectors.networks()
        self._sigma, self._lr = settings.sigma, settings.lr
        self._steps = 0
        self._mean = np.empty(0)  # theta [D], in the genome's own units; empty until the first ask
        self._moment = self._square = np.zeros(self._vectors.size)  # of Adam
        self._population = unknown(task, 0)
        self._best = Best(task)

    def population(self) -> Individuals:
        people = self._population if self.generation else self._together()
        return self._best.leading(people)

    def variation(self, ids: np.ndarray) -> np.ndarray:
        """Samples [N, D] of candidates `ids` [N] about the mean as it is."""
        return self._mean + self._sigma * self._vectors.width * self._noise(ids)

    def _make(self, ids: np.ndarray) -> tuple[Genomes, np.ndarray]:
        if not len(self._mean):
            self._mean = self._vectors.of(self._draw_first(1))[0]
        return self._vectors.genomes(self.variation(ids)), np.full((len(ids), 2), -1)

    def _noise(self, ids: np.ndarray) -> np.ndarray:
        """Standard normal [N, D]; ids 2k and 2k + 1 have opposite noise."""
        noise = np.empty((len(ids), self._vectors.size))
        pairs, where = np.unique(ids // 2, return_inverse=True)
        for i, pair in enumerate(pairs.tolist()):
            # The counter's upper words set streams apart that could never meet.
            bits = np.random.Philox(key=self._key, counter=[0, 0, pair, 0])
            noise[where == i] = np.random.Generator(bits).standard_normal(self._vectors.size)
        noise[ids % 2 == 1] *= -1
        return noise

    def _select(self, arrived: Individuals) -> None:
        self._best.watch(arrived)
        self._population = arrived.take(best_first(arrived))
        people = arrived.take(~failed(arrived))
        if len(people) > 1:  # who failed says nothing about its direction
            gradient = _utilities(people) @ self._noise(people.ids) / (len(people) * self._sigma)
            self._step(gradient)
        self._sigma *= self._settings.sigma_decay
        self._lr *= self._settings.lr_decay

    def _step(self, gradient: np.ndarray) -> None:
        """Adam (Kingma & Ba 2015, algorithm 1) down the gradient [D], which is in widths of the start box."""
        gradient = gradient + self._decay * self._mean
        self._steps += 1
        self._moment = BETA1 * self._moment + (1 - BETA1) * gradient
        self._square = BETA2 * self._square + (1 - BETA2) * gradient**2
        deviation = np.sqrt(self._square / (1 - BETA2**self._steps)) + EPSILON
        step = self._lr * self._moment / (1 - BETA1**self._steps) / deviation
        mean = self._mean - step * self._vectors.width
        self._mean = np.clip(mean, self._vectors.low, self._vectors.high)

    def _own_state(self) -> dict[str, Any]:
        return {
            "key": self._key,
            "steps": self._steps,
            "sigma": self._sigma,
            "lr": self._lr,
            "mean": self._mean.copy(),
            "moment": self._moment.copy(),
            "square": self._square.copy(),
            "population": as_state(self._population),
            "best": self._best.state(),
        }

    def _adopt_state(self, state: Mapping[str, Any]) -> None:
        self._key, self._steps = int(state["key"]), int(state["steps"])
        self._sigma, self._lr = float(state["sigma"]), float(state["lr"])
        self._mean, self._moment, self._square = (np.array(state[n]) for n in ("mean", "moment", "square"))
        self._population = from_state(state["population"])
        self._best.restore(state["best"])


def _utilities(people: Individuals) -> np.ndarray:
    """Ranks of [N], the best first, spread evenly over [-0.5, 0.5]; equals share their mean."""
    merit = np.stack((people.violation, people.objectives[:, 0]), axis=1)
    _, group, sizes = np.unique(merit, axis=0, return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes)
    rank = (ends - (sizes + 1) / 2)[group.ravel()]
    return rank / (len(rank) - 1) - 0.5
