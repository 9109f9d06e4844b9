"""Variation of whole genomes: the operator that each kind of part gets, and its settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from lamarckian_cli.ec import crossover, mutation
from lamarckian_cli.ec.coding import (
    Categorical,
    Coding,
    Genomes,
    Integer,
    NetworkWeights,
    Part,
    Permutation,
    Real,
)
from lamarckian_cli.errors import ConfigError, require

NONE = "none"
SBX = {"sbx": crossover.sbx, "sbx_clamped": crossover.sbx_clamped}
EXCHANGES = {
    "uniform": crossover.uniform,
    "one_point": crossover.one_point,
    "two_point": crossover.two_point,
}
TOURS = {"order": crossover.order, "edge": crossover.edge}
MOVES = {"invert": mutation.invert, "insert": mutation.insert, "swap": mutation.swap}
# The settings that name an operator, and the names that each of them knows beside "none".
CHOICES: dict[str, tuple[str, ...]] = {
    "crossover": (*SBX, *EXCHANGES),
    "mutation": ("polynomial", "gaussian"),
    "integer_crossover": tuple(EXCHANGES),
    "integer_mutation": ("creep", "reset"),
    "categorical_crossover": tuple(EXCHANGES),
    "categorical_mutation": ("reset",),
    "permutation_crossover": tuple(TOURS),
    "permutation_mutation": tuple(MOVES),
    "weights_crossover": ("layers", *EXCHANGES),
    "weights_mutation": ("gaussian",),
}
# What the settings of a kind of part begin with.
PREFIX: dict[type, str] = {
    Real: "",
    Integer: "integer_",
    Categorical: "categorical_",
    Permutation: "permutation_",
    NetworkWeights: "weights_",
}


class Operator(ABC):
    """A crossover or mutation of one's own: a setting takes an object of this in place of a name."""

    @abstractmethod
    def __call__(self, values: np.ndarray, part: Part, rng: np.random.Generator) -> np.ndarray:
        """A new array of the shape and dtype of `values` that follows the coding of `part`.

        A crossover gets pairs of parents [2, N, D], a mutation genomes [N, D]. It decides about
        its own probabilities.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """How parents become children; the defaults for real parts are those of Deb et al. 2002.

    `crossover` and `mutation` are those of real parts. Every part of a mixed genome is crossed
    and mutated on its own. "none" leaves a part as it is.
    """

    crossover_probability: float = 0.9  # of a pair being crossed; else its children start as copies
    mutation_probability: float | None = None  # of each number; None: 1 / numbers of the part
    crossover: str | Operator = "sbx"
    crossover_eta: float = 20.0  # of SBX; the larger, the closer children are to their parents
    mutation: str | Operator = "polynomial"
    mutation_eta: float = 20.0  # of polynomial mutation; the larger, the smaller the steps
    sigma: float = 0.1  # of Gaussian mutation, in parts of the range (of `start` where bounds are infinite)
    integer_crossover: str | Operator = "uniform"
    integer_mutation: str | Operator = "creep"  # creep: to a near value; reset: to any
    integer_step: float = 0.1  # how far creep goes at most, in parts of the range; 1 where that is less
    categorical_crossover: str | Operator = "uniform"
    categorical_mutation: str | Operator = "reset"  # to any other choice; bits flip
    permutation_crossover: str | Operator = "order"  # order keeps stretches, edge keeps neighbours
    permutation_mutation: str | Operator = "invert"
    permutation_probability: float = 0.2  # of a permutation being mutated
    weights_crossover: str | Operator = "layers"
    weights_mutation: str | Operator = "gaussian"
    weights_probability: float = 1.0  # of each weight being mutated
    weights_sigma: float = 0.02  # of the steps on weights

    def __post_init__(self) -> None:
        for key, names in CHOICES.items():
            known = (*names, NONE)
            self._require(
                key, f"it must be one of: {', '.join(known)}", _is_one_of(getattr(self, key), known)
            )
        for key in ("crossover", "permutation", "weights", "mutation"):
            key = f"{key}_probability"
            value = getattr(self, key)
            self._require(key, "it must lie in [0, 1]", value is None or 0 <= value <= 1)
        for key in ("crossover_eta", "mutation_eta"):
            self._require(key, "it must be at least 0 (20 is usual)", 0 <= getattr(self, key) < np.inf)
        for key in ("sigma", "integer_step", "weights_sigma"):
            self._require(key, "it must be above 0", 0 < getattr(self, key) < np.inf)

    def check(self, coding: Coding) -> None:
        """Raise a ConfigError where the operators cannot work on such genomes."""
        for name, part in coding.parts.items():
            if isinstance(part, Real) and self.mutation == "polynomial":
                with np.errstate(over="ignore"):
                    finite = bool(np.isfinite(part.high - part.low).all())
                remedy = (
                    f"part {name!r} has no finite range: bound it, or take evo.variation.mutation=gaussian"
                )
                self._require("mutation", remedy, finite)

    def vary(self, parents: Genomes, coding: Coding, rng: np.random.Generator) -> Genomes:
        """Children of pairs of parents; every part [2, N, D] in and out."""
        children = self.cross(parents, coding, rng)
        for name, values in children.items():
            rows = values.reshape(-1, values.shape[-1])
            children[name] = self._mutated(rows, coding.parts[name], rng).reshape(values.shape)
        return children

    def cross(self, parents: Genomes, coding: Coding, rng: np.random.Generator) -> Genomes:
        """Children before mutation; every part [2, N, D] in and out."""
        return {name: self._crossed(values, coding.parts[name], rng) for name, values in parents.items()}

    def mutate(self, genomes: Genomes, coding: Coding, rng: np.random.Generator) -> Genomes:
        """Mutants; every part [N, D] in and out."""
        return {name: self._mutated(values, coding.parts[name], rng) for name, values in genomes.items()}

    def _crossed(self, parents: np.ndarray, part: Part, rng: np.random.Generator) -> np.ndarray:
        key = f"{PREFIX[type(part)]}crossover"
        chosen = getattr(self, key)
        if isinstance(chosen, Operator):
            return _checked(chosen, key, parents, part, rng)
        probability = self.crossover_probability
        if isinstance(part, Real) and chosen in SBX:
            bounds = part.low, part.high
            return SBX[chosen](parents, *bounds, eta=self.crossover_eta, probability=probability, rng=rng)
        if isinstance(part, NetworkWeights) and chosen == "layers":
            return crossover.layers(parents, part.layers, probability=probability, rng=rng)
        if chosen in TOURS:
            return TOURS[chosen](parents, probability=probability, rng=rng)
        if chosen in EXCHANGES:
            return EXCHANGES[chosen](parents, probability=probability, rng=rng)
        return parents.copy()

    def _mutated(self, values: np.ndarray, part: Part, rng: np.random.Generator) -> np.ndarray:
        key = f"{PREFIX[type(part)]}mutation"
        chosen = getattr(self, key)
        if isinstance(chosen, Operator):
            return _checked(chosen, key, values, part, rng)
        if chosen == NONE:
            return values.copy()
        probability = 1 / part.size if self.mutation_probability is None else self.mutation_probability
        if isinstance(part, Real):
            return self._mutated_reals(values, part, probability, rng)
        if isinstance(part, Integer):
            low, high = part.low, part.high
            if chosen == "reset":
                return mutation.reset(values, low, high, probability=probability, rng=rng)
            steps = _steps(part, self.integer_step)
            return mutation.creep(values, low, high, step=steps, probability=probability, rng=rng)
        if isinstance(part, Categorical):
            low, high = np.zeros_like(part.sizes), part.sizes - 1
            return mutation.reset(values, low, high, probability=probability, rng=rng)
        if isinstance(part, Permutation):
            return MOVES[chosen](values, probability=self.permutation_probability, rng=rng)
        return mutation.weights(
            values, sigma=self.weights_sigma, probability=self.weights_probability, rng=rng
        )

    def _mutated_reals(
        self, values: np.ndarray, part: Real, probability: float, rng: np.random.Generator
    ) -> np.ndarray:
        low, high = part.low, part.high
        if self.mutation == "polynomial":
            return mutation.polynomial(
                values, low, high, eta=self.mutation_eta, probability=probability, rng=rng
            )
        if part.start is None:
            sigma = self.sigma * (high - low)
        else:
            sigma = np.where(np.isfinite(high - low), high - low, part.start[1] - part.start[0]) * self.sigma
        return mutation.gaussian(values, low, high, sigma=sigma, probability=probability, rng=rng)

    def _require(self, key: str, remedy: str, condition: bool) -> None:
        require(condition, f"evo.variation.{key}", getattr(self, key), remedy)


def _is_one_of(chosen: str | Operator, names: tuple[str, ...]) -> bool:
    return isinstance(chosen, Operator) or chosen in names


def _steps(part: Integer, share: float) -> np.ndarray:
    """How far each number may creep, int64 [D]: a share of its range, at least 1."""
    steps: np.ndarray = np.rint((part.high.astype(np.float64) - part.low) * share)
    return steps.clip(1, 2.0**62).astype(np.int64)


def _checked(
    operator: Operator, key: str, values: np.ndarray, part: Part, rng: np.random.Generator
) -> np.ndarray:
    """What an operator from elsewhere made; a ConfigError where it broke its promise."""
    made = operator(values, part, rng)
    source = f"evo.variation.{key} ({type(operator).__name__})"
    if not isinstance(made, np.ndarray) or made.shape != values.shape or made.dtype != values.dtype:
        shown = f"{made.dtype} {list(made.shape)}" if isinstance(made, np.ndarray) else type(made).__name__
        raise ConfigError(f"{source} gave {shown}; it must be {values.dtype} {list(values.shape)}, as it got")
    if not part.holds(made.reshape(-1, part.size)):
        raise ConfigError(f"{source} gave values that are outside of the part's coding; it must keep to it")
    return made
