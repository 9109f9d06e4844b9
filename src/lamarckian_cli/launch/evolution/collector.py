"""The collector: asks the strategy for candidates while workers have room, tells it what comes back.

The paper's workflow (section III-A): every candidate is evaluated on its own, results arrive
one by one in any order, and the strategy selects when it has enough of them. The collector
turns senses round, so that strategies always minimise, sums constraint violations up, counts,
and keeps what is needed to go on from a checkpoint.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lamarckian_cli.errors import RunError
from lamarckian_cli.evolution.strategy import Candidates, Individuals, Strategy
from lamarckian_cli.launch.evolution.evaluation import Done, Failure
from lamarckian_cli.launch.evolution.history import History
from lamarckian_cli.launch.evolution.lineage import Lineage
from lamarckian_cli.launch.evolution.pool import Pool, part_of
from lamarckian_cli.launch.evolution.settings import Workflow
from lamarckian_cli.problems.evaluator import Description, Results

MANY = 1 << 30
FEWEST_FAILURES = 10  # in a row that end an evolution, however small its population


class Collector:
    """One evolution at work; `step` until `over`."""

    def __init__(
        self,
        strategy: Strategy,
        description: Description,
        pool: Pool,
        workflow: Workflow,
        *,
        whole: bool = False,
        lineage: Lineage | None = None,
    ) -> None:
        """With `whole` all that the strategy wants is asked for at once, as far as the limit of
        `evo.in_flight` lets it: then nothing depends on which worker is free when."""
        self.strategy, self.pool, self.workflow = strategy, pool, workflow
        self.description = description
        self.signs = signs(description)
        self.history = History(single=len(description.objectives) == 1)
        self.evaluations = 0  # told
        self.failed = 0
        self.staleness_sum, self.staleness_max = 0, 0
        self.best: Individuals | None = None  # of a single objective, [1]
        self.first_failure: Failure | None = None
        self.failures: list[tuple[int, Failure]] = []  # not yet looked at: first id of each, and why
        self._whole, self._lineage = whole, lineage
        self._out = 0  # in the pool
        self._held: list[Candidates] = []  # asked for, and not in the pool yet
        self._failed_in_a_row = 0
        self._first_wanted = 0
        self._unselected: list[int] = []  # ids that were told of since the last selection

    # -------------------------------------------------------------- at work

    def step(self, timeout_s: float) -> bool:
        """Hand out and take in once; whether anything was told. RunError where everything fails."""
        self._ask()
        arrived = self.pool.take(timeout_s)
        for done in arrived:
            self._tell(done)
        if arrived and self.pool.keeps:
            # Whoever lives may have children; so may those who have arrived, once they are selected.
            self.pool.keep([*self.individuals().ids.tolist(), *self._unselected])
        return bool(arrived)

    def over(self) -> str:
        """Which end has been reached, as `key=value` or in the strategy's words; empty while none is."""
        workflow = self.workflow
        if workflow.evaluations is not None and self.evaluations >= workflow.evaluations:
            return f"evo.evaluations={workflow.evaluations}"
        if workflow.target is not None and self._reaches(workflow.target):
            return f"evo.target={workflow.target:g}"
        if not self._out and not self._held:
            return self.strategy.finished()
        return ""

    @property
    def staleness_mean(self) -> float:
        """Generations between asking and arriving, on average."""
        return self.staleness_sum / max(1, self.evaluations)

    def individuals(self) -> Individuals:
        """Who lives, and of a single objective the best that was ever seen; none that failed."""
        population = self.strategy.population()
        if self.best is not None:
            others = population.take(population.ids != self.best.ids[0])
            population = Individuals.join([self.best, others]) if len(others) else self.best
        lives = np.isfinite(population.violation)
        return population if lives.all() else population.take(lives)

    # -------------------------------------------------------------- to go on from

    def state(self) -> dict[str, Any]:
        """Everything that a checkpoint needs of the workflow."""
        out = sorted([*self.pool.out(), *self._held], key=lambda candidates: int(candidates.ids[0]))
        return {
            "strategy": self.strategy.state(),
            "out": [_candidates_state(candidates) for candidates in out],
            "evaluations": self.evaluations,
            "failed": self.failed,
            "staleness": [self.staleness_sum, self.staleness_max],
            "best": None if self.best is None else individuals_state(self.best),
            "first_failure": None if self.first_failure is None else [self.first_failure.error],
            "first_wanted": self._first_wanted,
            "unselected": list(self._unselected),
            "history": self.history.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`; those that were out are put to be evaluated again, under the same ids."""
        self.strategy.restore(state["strategy"])
        self.evaluations, self.failed = state["evaluations"], state["failed"]
        self.staleness_sum, self.staleness_max = state["staleness"]
        self.best = None if state["best"] is None else individuals_of(state["best"])
        self.first_failure = None if not state["first_failure"] else Failure(error=state["first_failure"][0])
        self._first_wanted = state["first_wanted"]
        self._unselected = list(state["unselected"])
        self.history.restore(state["history"])
        self._held = [Candidates(**values) for values in state["out"]]
        self._hand_out()

    # -------------------------------------------------------------- parts

    def _reaches(self, target: float) -> bool:
        best = self.best
        return best is not None and best.violation[0] <= 0 and best.objectives[0, 0] <= self.signs[0] * target

    def _ask(self) -> None:
        """Candidates for all workers that have room; where any number is as good, what is wanted once.

        What the budget does not allow for is asked all the same, and held: so an evolution that
        is given a larger one later goes on as if it had had it from the start.
        """
        at_once = self._whole or self.workflow.in_flight is not None or self.pool.free() is not None
        if not at_once and (self._out or self._held):
            return  # the last batch of a run that goes on comes first, as it would have without a break
        while (wanted := min(self._room(), self.strategy.wanted())) > 0:
            candidates = self.strategy.ask(wanted)
            self._first_wanted = self._first_wanted or len(candidates)
            self._held.append(candidates)
            self._hand_out()
            if not at_once:
                return

    def _hand_out(self) -> None:
        """Give the pool what is held, as far as the budget goes."""
        while self._held:
            candidates, budget = self._held[0], self.workflow.evaluations
            left = len(candidates) if budget is None else budget - self.evaluations - self._out
            if left <= 0:
                return
            if left < len(candidates):
                self._held[0] = part_of(candidates, slice(left, None))
                candidates = part_of(candidates, slice(0, left))
            else:
                self._held.pop(0)
            self._out += len(candidates)
            self.pool.put(candidates)

    def _room(self) -> int:
        """How many may be asked for now, as the limit of `evo.in_flight` or the workers have it."""
        held = sum(map(len, self._held))
        if self.workflow.in_flight is not None:
            return self.workflow.in_flight - self._out - held
        free = None if self._whole else self.pool.free()
        return (MANY if free is None else free) - held

    def _tell(self, done: Done) -> None:
        n, strategy = len(done.candidates), self.strategy
        generation = strategy.generation
        individuals = self._individuals(done)
        stale = generation - done.candidates.born
        self.staleness_sum += int(stale.sum())
        self.staleness_max = max(self.staleness_max, int(stale.max()))
        self.evaluations += n
        self._out -= n
        if self._lineage is not None:
            self._lineage.add(done, generation)
        if done.failure is None:
            self._failed_in_a_row = 0
            if self.history.single:
                self._take_best(individuals)
        strategy.tell(individuals)
        self._unselected = [*self._unselected, *individuals.ids.tolist()] if self.pool.keeps else []
        if strategy.generation != generation:
            self._unselected = []
            self.history.add(self.evaluations, self)
        if done.failure is not None:
            self._count_failure(done, done.failure)

    def _individuals(self, done: Done) -> Individuals:
        candidates, results, n = done.candidates, done.results, len(done.candidates)
        behaviours = len(self.description.measures)
        if results is None:
            objectives = np.full((n, len(self.signs)), np.inf)
            violation, measures = np.full(n, np.inf), np.zeros((n, behaviours))
            genomes = candidates.genomes
        else:
            objectives = results.objectives * self.signs
            violation = violation_of(results)
            measures = results.measures if results.measures is not None else np.zeros((n, 0))
            genomes = results.genomes if results.genomes is not None else candidates.genomes
        return Individuals(
            ids=candidates.ids,
            genomes=genomes,
            parents=candidates.parents,
            born=candidates.born,
            objectives=objectives,
            violation=violation,
            measures=measures,
        )

    def _take_best(self, individuals: Individuals) -> None:
        """Feasible before infeasible, then by violation, then by the objective; the earlier of equals."""
        violation, objective = individuals.violation, individuals.objectives[:, 0]
        least = violation.min()
        at = int(np.where(violation == least, objective, np.inf).argmin())
        if violation[at] != least:
            at = int(violation.argmin())
        best = self.best
        if best is None or (violation[at], objective[at]) < (best.violation[0], best.objectives[0, 0]):
            self.best = individuals.take(slice(at, at + 1))

    def _count_failure(self, done: Done, failure: Failure) -> None:
        n = len(done.candidates)
        self.failed += n
        self._failed_in_a_row += n
        self.first_failure = self.first_failure or failure
        self.failures.append((int(done.candidates.ids[0]), failure))
        budget = self.workflow.evaluations
        enough = max(FEWEST_FAILURES, self._first_wanted)
        nothing_else = self.failed == self.evaluations and budget is not None and self.evaluations >= budget
        if self._failed_in_a_row >= enough or nothing_else:
            raise RunError(
                f"the last {self._failed_in_a_row} evaluations failed, one after the other; the first error: "
                f"{self.first_failure.error}"
            )


def signs(description: Description) -> np.ndarray:
    """[M] float64 that objectives are multiplied with to be minimised, and to be turned back."""
    return np.array([-1.0 if objective.sense == "max" else 1.0 for objective in description.objectives])


def violation_of(results: Results) -> np.ndarray:
    """[N] float64: the sum of what constraints are exceeded by."""
    if results.constraints is None:
        return np.zeros(len(results.objectives))
    total: np.ndarray = np.maximum(results.constraints, 0.0).sum(axis=1)
    return total


def individuals_state(individuals: Individuals) -> dict[str, Any]:
    """As a checkpoint takes it."""
    names = ("ids", "genomes", "parents", "born", "objectives", "violation", "measures")
    return {name: getattr(individuals, name) for name in names}


def individuals_of(state: dict[str, Any]) -> Individuals:
    """The inverse of `individuals_state`."""
    return Individuals(**state)


def _candidates_state(candidates: Candidates) -> dict[str, Any]:
    return {name: getattr(candidates, name) for name in ("ids", "genomes", "parents", "born")}
