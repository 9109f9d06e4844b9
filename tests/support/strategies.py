"""Strategies at work in a test: whose candidates are evaluated at once, or by workers in any order."""

from collections.abc import Callable

import numpy as np

from lamarckian_cli.ec.coding import Genomes, take
from lamarckian_cli.evolution.strategy import Candidates, Individuals, Settings, Strategy, Task
from lamarckian_cli.problems.evaluator import Evaluator


def task_of(evaluator: Evaluator) -> Task:
    described = evaluator.describe()
    return Task(
        coding=described.coding,
        objectives=len(described.objectives),
        constrained=bool(described.constraints),
        measures=tuple((measure.low, measure.high) for measure in described.measures),
    )


def make(settings: Settings, evaluator: Evaluator, seed: int = 1) -> Strategy:
    return settings.make(task_of(evaluator), evaluator.initialize, np.random.default_rng(seed))


def evaluated(candidates: Candidates, evaluator: Evaluator, failing: np.ndarray | None = None) -> Individuals:
    """What a strategy is told of candidates, all objectives minimised; those `failing` [N] bool failed."""
    described = evaluator.describe()
    results = evaluator.evaluate(candidates.genomes, np.zeros(len(candidates), np.int64))
    senses = np.array([1.0 if objective.sense == "min" else -1.0 for objective in described.objectives])
    objectives = results.objectives * senses
    violation = np.zeros(len(candidates))
    if results.constraints is not None:
        violation = np.maximum(results.constraints, 0).sum(axis=1)
    genomes = candidates.genomes if results.genomes is None else results.genomes
    measures = np.zeros((len(candidates), 0)) if results.measures is None else results.measures
    if failing is not None:
        objectives = np.where(failing[:, None], np.inf, objectives)
        violation = np.where(failing, np.inf, violation)
    return Individuals(
        ids=candidates.ids,
        genomes=genomes,
        parents=candidates.parents,
        born=candidates.born,
        objectives=objectives,
        violation=violation,
        measures=measures,
    )


def evolve(strategy: Strategy, evaluator: Evaluator, evaluations: int) -> None:
    """All that is wanted at once, told together: the classical generation."""
    done = 0
    while done < evaluations and not strategy.finished():
        candidates = strategy.ask(strategy.wanted())
        strategy.tell(evaluated(candidates, evaluator))
        done += len(candidates)


class Workers:
    """`slots` evaluations at once, one candidate each, which end in a random order.

    Those whose id is `slow` end when nobody else is out.
    """

    def __init__(
        self,
        strategy: Strategy,
        evaluator: Evaluator,
        slots: int,
        seed: int = 7,
        fails: float = 0.0,
        slow: Callable[[int], bool] = lambda identity: False,
    ) -> None:
        self.strategy, self.evaluator, self.slots, self.fails, self.slow = (
            strategy,
            evaluator,
            slots,
            fails,
            slow,
        )
        self.rng = np.random.default_rng(seed)
        self.out: list[Candidates] = []
        self.idle = 0  # times that a slot found nothing to do

    def step(self) -> tuple[list[Candidates], Individuals | None]:
        """Fill the slots, end one evaluation; who was asked for, and who was told of."""
        asked = []
        while len(self.out) < self.slots and self.strategy.wanted() > 0:
            one = self.strategy.ask(1)
            assert len(one) == 1
            asked.append(one)
            self.out.append(one)
        self.idle += self.slots - len(self.out)
        if not self.out:
            return asked, None
        quick = [i for i, one in enumerate(self.out) if not self.slow(int(one.ids[0]))]
        candidate = self.out.pop(int(self.rng.choice(quick if quick else len(self.out))))
        told = evaluated(candidate, self.evaluator, self.rng.random(1) < self.fails)
        self.strategy.tell(told)
        return asked, told


def same(one: Genomes | Individuals | Candidates, other: Genomes | Individuals | Candidates) -> bool:
    """Bit for bit."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            a.dtype == b.dtype and a.tobytes() == b.tobytes()
            for a, b in zip(one.values(), other.values(), strict=True)
        )
    names = [name for name in type(one).__slots__ if name != "genomes"]
    return same(one.genomes, other.genomes) and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in names
    )


def some(candidates: Candidates, index: np.ndarray) -> Candidates:
    return Candidates(
        ids=candidates.ids[index],
        genomes=take(candidates.genomes, index),
        parents=candidates.parents[index],
        born=candidates.born[index],
    )
