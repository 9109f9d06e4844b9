"""How a genome is coded: named parts of one kind each, and N genomes as one array a part.

A population is never a list of objects: `Genomes` maps the name of a part to the array
[N, D] of all its genomes, so that every operator works on the whole batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from lamarckian_cli.errors import ConfigError

Genomes = dict[str, np.ndarray]
"""N genomes: name of the part -> [N, D], in the dtype of the part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Real:
    """D real numbers, each within [low, high]; float64. Without finite bounds it needs `start`.

    With `log` new values are drawn by their order of magnitude; bounds are above 0 then.
    """

    low: np.ndarray  # [D] float64
    high: np.ndarray  # [D] float64
    start: tuple[float, float] | None = None  # the box that first genomes are drawn from; None: the bounds
    log: bool = False

    dtype = np.dtype(np.float64)

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)
        if self.start is None and not (np.isfinite(self.low).all() and np.isfinite(self.high).all()):
            raise ConfigError("a real part without finite bounds needs `start`, the box of the first genomes")
        _check_scale(self.log, self.low)

    @property
    def size(self) -> int:
        return len(self.low)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """[n, D], uniform in the box, or uniform in the logarithm."""
        low, high = self.start if self.start is not None else (self.low, self.high)
        if self.log:
            return np.clip(
                np.exp(rng.uniform(np.log(low), np.log(high), (n, self.size))), self.low, self.high
            )
        return np.clip(rng.uniform(low, high, (n, self.size)), self.low, self.high)

    def holds(self, values: np.ndarray) -> bool:
        """Whether every value of [N, D] is within the bounds."""
        return bool(np.all((values >= self.low) & (values <= self.high)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer:
    """D whole numbers, each within [low, high], both included; int64. `log` is as of Real."""

    low: np.ndarray  # [D] int64
    high: np.ndarray  # [D] int64
    log: bool = False

    dtype = np.dtype(np.int64)

    def __post_init__(self) -> None:
        _check_bounds(self.low, self.high)
        _check_scale(self.log, self.low)

    @property
    def size(self) -> int:
        return len(self.low)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """[n, D], uniform, or uniform in the logarithm."""
        if self.log:
            drawn = np.exp(rng.uniform(np.log(self.low), np.log(self.high), (n, self.size)))
            return np.clip(np.rint(drawn).astype(np.int64), self.low, self.high)
        return rng.integers(self.low, self.high, (n, self.size), endpoint=True)

    def holds(self, values: np.ndarray) -> bool:
        """Whether every value of [N, D] is within the bounds."""
        return bool(np.all((values >= self.low) & (values <= self.high)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Categorical:
    """D choices without an order; choice d is one of 0..sizes[d]-1; int64. Bits are choices of two."""

    sizes: np.ndarray  # [D] int64

    dtype = np.dtype(np.int64)

    def __post_init__(self) -> None:
        if not len(self.sizes) or np.any(self.sizes < 1):
            raise ConfigError("a categorical part needs at least one choice, and one value a choice")

    @property
    def size(self) -> int:
        return len(self.sizes)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """[n, D], uniform."""
        return rng.integers(0, self.sizes, (n, self.size))

    def holds(self, values: np.ndarray) -> bool:
        """Whether every value of [N, D] is one of its choices."""
        return bool(np.all((values >= 0) & (values < self.sizes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Permutation:
    """An order of 0..size-1; int64."""

    size: int

    dtype = np.dtype(np.int64)

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"a permutation of {self.size} things is none; it needs at least one")

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """[n, size], uniform over all orders."""
        return rng.permuted(np.tile(np.arange(self.size), (n, 1)), axis=1)

    def holds(self, values: np.ndarray) -> bool:
        """Whether every row of [N, size] is an order of 0..size-1."""
        return bool(np.all(np.sort(values, axis=1) == np.arange(self.size)))


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkWeights:
    """A network's parameters as one flat vector, in layers that crossover keeps whole; float32.

    How fresh weights are drawn is the evaluator's business (`Evaluator.initialize`); `sample`
    draws them from a normal distribution.
    """

    layers: tuple[int, ...]  # parameters of each layer, in their order
    scale: float = 0.1  # standard deviation of `sample`

    dtype = np.dtype(np.float32)

    def __post_init__(self) -> None:
        if not self.layers or min(self.layers) < 1:
            raise ConfigError("a network needs at least one layer, and one parameter a layer")

    @property
    def size(self) -> int:
        return sum(self.layers)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """[n, D] float32."""
        return rng.standard_normal((n, self.size), np.float32) * np.float32(self.scale)

    def holds(self, values: np.ndarray) -> bool:
        """Whether every value of [N, D] is finite."""
        return bool(np.isfinite(values).all())


Part = Real | Integer | Categorical | Permutation | NetworkWeights


@dataclass(frozen=True, slots=True)
class Coding:
    """The parts of a genome, by name and in order."""

    parts: Mapping[str, Part]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ConfigError("a genome without parts has nothing to evolve; describe at least one part")

    @property
    def size(self) -> int:
        """Numbers of one genome."""
        return sum(part.size for part in self.parts.values())

    def sample(self, n: int, rng: np.random.Generator) -> Genomes:
        """n random genomes."""
        return {name: part.sample(n, rng) for name, part in self.parts.items()}

    def check(self, genomes: Genomes, source: str) -> None:
        """Raise a ConfigError where genomes that `source` made do not follow the coding."""
        if set(genomes) != set(self.parts):
            raise ConfigError(f"{source} gave the parts {sorted(genomes)}; the coding has {list(self.parts)}")
        counts = {len(values) for values in genomes.values()}
        if len(counts) > 1:
            raise ConfigError(f"{source} gave {sorted(counts)} genomes in its parts; it must be one number")
        for name, part in self.parts.items():
            values = genomes[name]
            if values.shape[1:] != (part.size,) or values.dtype != part.dtype:
                raise ConfigError(
                    f"{source} gave part {name!r} as {values.dtype} {list(values.shape)}; "
                    f"it must be {part.dtype} [N, {part.size}]"
                )
            if not part.holds(values):
                raise ConfigError(f"{source} gave values of part {name!r} that are outside of its coding")


def count(genomes: Genomes) -> int:
    """N."""
    return len(next(iter(genomes.values())))


def take(genomes: Genomes, index: np.ndarray | slice) -> Genomes:
    """The genomes at `index` (int or bool array, or a slice)."""
    return {name: values[index] for name, values in genomes.items()}


def join(several: Iterable[Genomes]) -> Genomes:
    """All of them in one; at least one is needed, and all have the same parts."""
    several = list(several)
    return {name: np.concatenate([genomes[name] for genomes in several]) for name in several[0]}


def bounds(low: float | Iterable[float], high: float | Iterable[float], size: int) -> Real:
    """A real part of `size` numbers; a single bound holds for all of them."""
    return Real(
        low=np.array(np.broadcast_to(np.asarray(low, np.float64), (size,))),
        high=np.array(np.broadcast_to(np.asarray(high, np.float64), (size,))),
    )


def _check_scale(log: bool, low: np.ndarray) -> None:
    if log and np.any(low <= 0):
        raise ConfigError("a part on a logarithmic scale needs bounds above 0")


def _check_bounds(low: np.ndarray, high: np.ndarray) -> None:
    if low.ndim != 1 or low.shape != high.shape or not len(low):
        raise ConfigError(f"bounds have shapes {low.shape} and {high.shape}; both must be [D], D at least 1")
    if not np.all(low <= high):  # also false for NaN
        index = int(np.argmin(low <= high))
        raise ConfigError(f"bound {index} is [{low[index]}, {high[index]}]; low must not be above high")
