"""CMA-ES (Hansen & Ostermeier 2001) through the `cma` package, with restarts; for real numbers.

Samples are orthogonal to each other by default, which takes about a tenth fewer evaluations than
independent ones. IPOP doubles the population at each restart (Auger & Hansen 2005). BIPOP spends as much on
small populations with small steps in between (Hansen 2009). What evaluating makes of the
genomes is not taken over: the distribution learns from the points that it drew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamarckian_cli.ec.coding import Genomes
from lamarckian_cli.errors import ConfigError, require
from lamarckian_cli.evolution.arrivals import Arrivals
from lamarckian_cli.evolution.asking import Best, Gathering, check_population, check_staleness, one_objective
from lamarckian_cli.evolution.cma_descent import Descent, Start
from lamarckian_cli.evolution.cma_restarts import Plan, Restarts
from lamarckian_cli.evolution.individuals import as_state, best_first, from_state, penalised, unknown
from lamarckian_cli.evolution.strategy import FirstGenomes, Individuals, Settings, Task
from lamarckian_cli.evolution.vectors import Vectors


@dataclass(frozen=True, kw_only=True)
class CMAESSettings(Settings):
    """Keys of `conf/evo/cmaes.yaml`."""

    population: int | None = None  # samples of a generation; None: 4 + 3 ln D
    max_staleness: int | None = None  # generations between asking for a sample and its use; None: any
    sigma: float = 0.2  # first standard deviation, in widths of the start box
    sampling: str = "orthogonal"  # samples of a generation: orthogonal to each other, or independent
    restarts: str = "none"  # none, ipop or bipop
    max_restarts: int = 9  # those of bipop's small populations not counted

    def __post_init__(self) -> None:
        if self.population is not None:
            check_population(self.population, 4)
        check_staleness(self.max_staleness)
        require(self.sigma > 0, "evo.sigma", self.sigma, "it must be above 0 (0.2)")
        require(
            self.restarts in ("none", "ipop", "bipop"),
            "evo.restarts",
            self.restarts,
            "choose none, ipop or bipop",
        )
        require(
            self.sampling in ("orthogonal", "independent"),
            "evo.sampling",
            self.sampling,
            "choose orthogonal or independent",
        )
        require(self.max_restarts >= 0, "evo.max_restarts", self.max_restarts, "it must be at least 0")

    def make(self, task: Task, first: FirstGenomes, rng: np.random.Generator) -> CMAES:
        one_objective(task, "cmaes")
        return CMAES(self, task, first, rng)


class CMAES(Gathering):
    """`variation` draws samples from the distribution."""

    def __init__(
        self, settings: CMAESSettings, task: Task, first: FirstGenomes, rng: np.random.Generator
    ) -> None:
        self._settings = settings
        self._vectors = Vectors(task.coding, "cmaes", networks=False)
        self._moving = self._vectors.width > 0  # [D] bool; the others are what their bounds say
        if self._moving.sum() < 2:
            raise ConfigError("evo is cmaes, which needs two numbers that can move at least; use evo=pso")
        super().__init__(task, first, rng, Arrivals(first=1, each=1, limit=settings.max_staleness))
        self._population = unknown(task, 0)
        self._best = Best(task)
        self._restarts = Restarts(settings.restarts, settings.max_restarts, settings.population)
        self._stopped = ""
        self._queue: list[int] = []  # places that were drawn and not asked for
        self._places: dict[int, int] = {}  # id of a candidate who is out, or has arrived -> place
        self._begin(self._restarts.first())

    def finished(self) -> str:
        return self._stopped

    def population(self) -> Individuals:
        people = self._population if self.generation else self._together()
        return self._best.leading(people)

    def variation(self, n: int) -> list[int]:
        """n samples of the distribution as it is: their places in the descent."""
        while len(self._queue) < n:
            self._queue += self._descent.draw()
        drawn, self._queue = self._queue[:n], self._queue[n:]
        return drawn

    def tell(self, evaluated: Individuals) -> None:
        self._best.watch(evaluated)
        while len(evaluated):
            # Those of an earlier descent say nothing about this one.
            evaluated = evaluated.take(evaluated.ids >= self._first_id)
            expected = self._arrivals.expected()
            super().tell(evaluated.take(slice(expected)))
            evaluated = evaluated.take(slice(expected, None))

    def _make(self, ids: np.ndarray) -> tuple[Genomes, np.ndarray]:
        places = self.variation(len(ids))
        self._places.update(zip(ids.tolist(), places, strict=True))
        vectors = np.tile(self._mean, (len(ids), 1))
        vectors[:, self._moving] = self._descent.points(places)
        return self._vectors.genomes(vectors), np.full((len(ids), 2), -1)

    def _select(self, arrived: Individuals) -> None:
        self._population = arrived.take(best_first(arrived))
        places = np.array([self._places.pop(i) for i in arrived.ids.tolist()])
        self._descent.forget(self._queue)
        self._queue = []
        values = penalised(arrived)
        if values is None:
            self._descent.forget(places.tolist())
            return
        self._descent.tell(places, values)
        stopped = self._descent.stopped()
        if not stopped:
            return
        plan = self._restarts.after(
            population=self._descent.population,
            evaluations=self._descent.evaluations,
            iterations=self._descent.iterations_max,
            rng=self._rng,
        )
        if plan is None:
            self._stopped = f"cma stops by {stopped}"
            self._first_id = self._arrivals.started
        else:
            self._begin(plan)

    def _begin(self, plan: Plan) -> None:
        """Start a descent from a fresh place."""
        self._mean = self._vectors.of(self._draw_first(1))[0]
        moving = self._moving
        self._descent = Descent(
            Start(
                mean=self._mean[moving],
                deviation=self._settings.sigma * plan.sigma_factor * self._vectors.width[moving],
                low=self._vectors.low[moving],
                high=self._vectors.high[moving],
                population=plan.population,
                iterations=plan.iterations,
                orthogonal=self._settings.sampling == "orthogonal",
                seed=int(self._rng.integers(2**63)),
            )
        )
        self._arrivals.begin_anew(self._descent.population)
        self._first_id = self._arrivals.started
        self._queue, self._places = [], {}

    def _own_state(self) -> dict[str, Any]:
        return {
            "descent": self._descent.state(),
            "restarts": self._restarts.state(),
            "mean": self._mean.copy(),
            "first_id": self._first_id,
            "queue": list(self._queue),
            "ids": list(self._places),
            "places": list(self._places.values()),
            "stopped": self._stopped,
            "population": as_state(self._population),
            "best": self._best.state(),
        }

    def _adopt_state(self, state: Mapping[str, Any]) -> None:
        low, high = self._vectors.low[self._moving], self._vectors.high[self._moving]
        self._descent = Descent.restored(state["descent"], low, high)
        self._restarts.restore(state["restarts"])
        self._mean = np.array(state["mean"])
        self._first_id = int(state["first_id"])
        self._queue = list(state["queue"])
        self._places = dict(zip(state["ids"], state["places"], strict=True))
        self._stopped = str(state["stopped"])
        self._population = from_state(state["population"])
        self._best.restore(state["best"])
