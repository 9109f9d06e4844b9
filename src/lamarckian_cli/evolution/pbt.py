"""Population based training (Jaderberg et al. 2017): members train, the bad copy the good and explore.

An evaluation trains a member for a while: its genome comes back with other weights. Members
go on by arrival, each at its own pace, and nobody waits. A member is compared with what the
others came to at its own training age, which is how many evaluations its weights have been
through. Who copies takes over the whole genome of one donor, weights and hyperparameters and
age, and then explores: its hyperparameters alone are varied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lamarckian_cli.ec.coding import (
    Categorical,
    Genomes,
    Integer,
    NetworkWeights,
    Part,
    Permutation,
    Real,
    take,
)
from lamarckian_cli.errors import ConfigError, require
from lamarckian_cli.evolution.ages import Ages
from lamarckian_cli.evolution.arrivals import Arrivals
from lamarckian_cli.evolution.asking import Asking, check_population, check_staleness, one_objective
from lamarckian_cli.evolution.individuals import (
    as_state,
    best_first,
    blank,
    failed,
    from_state,
    living,
    put,
    unknown,
)
from lamarckian_cli.evolution.members import Members
from lamarckian_cli.evolution.strategy import FirstGenomes, Individuals, Settings, Task


@dataclass(frozen=True, kw_only=True)
class PBTSettings(Settings):
    """Keys of `conf/evo/pbt.yaml`."""

    population: int = 8  # members
    max_staleness: int | None = None  # rounds that a member may be out while others go on; None: any
    hyperparameters: tuple[str, ...] | None = None  # parts that explore varies; None: all but networks
    exploit: str = (
        "truncation"  # who copies: truncation: the worst, of the best; tournament: of a better other
    )
    fraction: float = 0.2  # of the members that truncation takes for the worst, and for the best
    factors: tuple[float, ...] = (0.8, 1.2)  # explore multiplies each hyperparameter by one of these
    resample_probability: float = 0.0  # of a hyperparameter being drawn anew instead
    interval: int = 1  # evaluations from one exploit of a member to its next

    def __post_init__(self) -> None:
        check_population(self.population, 2)
        check_staleness(self.max_staleness)
        require(
            self.exploit in ("truncation", "tournament"),
            "evo.exploit",
            self.exploit,
            "choose truncation or tournament",
        )
        require(0 < self.fraction <= 0.5, "evo.fraction", self.fraction, "it must lie in (0, 0.5] (0.2)")
        require(
            len(self.factors) > 0 and min(self.factors) > 0,
            "evo.factors",
            list(self.factors),
            "it must be a list of numbers above 0 ([0.8, 1.2])",
        )
        require(
            0 <= self.resample_probability <= 1,
            "evo.resample_probability",
            self.resample_probability,
            "it must lie in [0, 1]",
        )
        require(self.interval >= 1, "evo.interval", self.interval, "it must be at least 1")

    def make(self, task: Task, first: FirstGenomes, rng: np.random.Generator) -> PBT:
        one_objective(task, "pbt")
        return PBT(self, task, first, rng)


class PBT(Asking):
    """`exploit` says whom a member copies, `explore` varies a copy."""

    def __init__(
        self, settings: PBTSettings, task: Task, first: FirstGenomes, rng: np.random.Generator
    ) -> None:
        n = settings.population
        super().__init__(task, first, rng, Arrivals(first=n, each=n, limit=settings.max_staleness))
        self._settings = settings
        self._explored = _explored(settings, task)
        self._members = Members(n)
        self._genomes = blank(task.coding, n)  # what each trains, or is to train next
        self._latest = unknown(task, n)  # what each came to last
        self._ages = Ages(n)
        self._since = np.zeros(n, np.int64)  # evaluations since each could last exploit

    def tell(self, evaluated: Individuals) -> None:
        self._count(evaluated)
        members = self._members.back(evaluated.ids)
        put(self._latest, members, evaluated)
        for name, values in evaluated.genomes.items():
            self._genomes[name][members] = values
        self._since[members] += 1
        self._ages.report(members, evaluated)

    def population(self) -> Individuals:
        return living(self._latest.take(self._latest.ids >= 0))

    def exploit(self, member: int) -> int:
        """Whose genome the member goes on with: its own, or that of a donor who is better at equal age.

        Who failed takes one of the best as they are now; its own where nobody else came to anything.
        """
        if failed(self._latest)[member]:
            return self._any_of_the_best(member)
        if self._since[member] < self._settings.interval:
            return member
        self._since[member] = 0
        rivals, place = self._ages.standing(member)  # best first
        if len(rivals) < max(2, len(self._members) / 2):
            return member  # too few have been as old to say who is bad
        if self._settings.exploit == "tournament":
            other = int(self._rng.integers(len(rivals) - 1))
            other += other >= place
            return self._donor(rivals[other : other + 1], member) if other < place else member
        size = min(int(np.ceil(self._settings.fraction * len(rivals))), len(rivals) // 2)
        return self._donor(rivals[:size], member) if place >= len(rivals) - size else member

    def explore(self, genome: Genomes, age: int) -> Genomes:
        """A genome [1, D] with its hyperparameters varied within bounds; its other parts are as they were.

        `age` is that of its weights, in evaluations; PB2's model goes by it.
        """
        varied = dict(genome)
        for name in self._explored:
            part = self._task.coding.parts[name]
            varied[name] = self._varied(genome[name], part)
        return varied

    def _ready(self) -> int:
        return len(self._members.free())

    def _make(self, ids: np.ndarray) -> tuple[Genomes, np.ndarray]:
        if self._arrivals.started == len(ids):  # these are the first of the run
            self._genomes = {k: np.array(v) for k, v in self._draw_first(len(self._members)).items()}
        members = self._members.free()[: len(ids)]
        parents = np.full((len(ids), 2), -1)
        for row, member in enumerate(members.tolist()):
            if self._members.asked[member]:
                parents[row, 0] = self._go_on(member)
        self._members.send(members, ids)
        return take(self._genomes, members), parents

    def _go_on(self, member: int) -> int:
        """Settle what a member trains next; returns the id of whose genome that was, -1 for a fresh one."""
        donor = self.exploit(member)
        if donor == member and not failed(self._latest)[member]:
            return int(self._latest.ids[member])
        place = np.array([member])
        if donor == member:  # it failed, and there is nobody to copy
            genome, parent = self._draw_first(1), -1
            self._ages.start(member)
        else:
            self._ages.copy(member, donor)
            genome = self.explore(take(self._latest.genomes, np.array([donor])), self._ages.of(member))
            parent = int(self._latest.ids[donor])
            self._since[member] = 0
        for name, values in genome.items():
            self._genomes[name][place] = values
        return parent

    def _donor(self, candidates: np.ndarray, member: int) -> int:
        """One of the candidates who is still good, and as old; the member itself where none is."""
        good = ~failed(self._latest)
        usable = [d for d in candidates.tolist() if good[d] and self._ages.reached(d, member)]
        return int(self._rng.choice(usable)) if usable else member

    def _any_of_the_best(self, member: int) -> int:
        good = np.flatnonzero(~failed(self._latest))
        if not len(good):
            return member
        order = good[best_first(self._latest.take(good))]
        return int(self._rng.choice(order[: max(1, int(self._settings.fraction * len(order)))]))

    def _varied(self, values: np.ndarray, part: Part) -> np.ndarray:
        fresh = part.sample(len(values), self._rng)
        if isinstance(part, Categorical | Permutation):
            return fresh  # no choice is near another
        factors = self._rng.choice(self._settings.factors, values.shape)
        assert isinstance(part, Real | Integer)
        moved = values * factors
        if isinstance(part, Integer):
            rounded = np.rint(moved)
            # A whole number too small for the factor to reach the next goes there all the same.
            moved = np.where(rounded == values, values + np.where(factors < 1, -1, 1), rounded)
        # No factor moves 0.
        anew = (self._rng.random(values.shape) < self._settings.resample_probability) | (values == 0)
        moved = np.where(anew, fresh, moved)
        return np.clip(moved, part.low, part.high).astype(part.dtype)

    def _own_state(self) -> dict[str, Any]:
        return {
            "members": self._members.state(),
            "genomes": {name: values.copy() for name, values in self._genomes.items()},
            "latest": as_state(self._latest),
            "ages": self._ages.state(),
            "since": self._since.copy(),
        }

    def _adopt_state(self, state: Mapping[str, Any]) -> None:
        self._members.restore(state["members"])
        self._genomes = {name: np.array(values) for name, values in state["genomes"].items()}
        self._latest = from_state(state["latest"])
        self._ages.restore(state["ages"])
        self._since = np.array(state["since"])


def _explored(settings: PBTSettings, task: Task) -> tuple[str, ...]:
    """Names of the parts that explore varies, checked."""
    parts = task.coding.parts
    names = settings.hyperparameters
    if names is None:
        return tuple(name for name, part in parts.items() if not isinstance(part, NetworkWeights))
    for name in names:
        if name not in parts:
            raise ConfigError(
                f"evo.hyperparameters has {name!r}; the problem's genomes have {', '.join(parts)}"
            )
        if isinstance(parts[name], NetworkWeights):
            raise ConfigError(
                f"evo.hyperparameters has {name!r}, which are a network's weights; leave it out"
            )
    return names
