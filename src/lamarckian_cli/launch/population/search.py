"""What evolution may change of a training: hyperparameters and weights of reward heads, with their ranges.

Every key is a part of the genome under its own name, in its own unit: `algo.lr`, `algo.clip`,
`reward.goals`. So a line of the lineage reads like an override of the command line.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lamarckian_cli.ec.coding import Categorical, Coding, Genomes, Integer, Part, Real
from lamarckian_cli.errors import ConfigError, require

if TYPE_CHECKING:
    from lamarckian_cli.learner.algorithm import Algorithm
    from lamarckian_cli.records import SeatSpec

ALGO, REWARD = "algo.", "reward."
# What shapes unrolls and batches, and so the arrays that members share.
SHAPES = ("unroll", "batch_size", "precision")
SCALES = ("linear", "log")


@dataclass(frozen=True, kw_only=True)
class Range:
    """The values that one key may take: from `low` to `high`, or one of `choices`."""

    low: float | None = None
    high: float | None = None
    scale: str = "linear"  # or log: how new values are drawn
    choices: tuple[float | int | str | bool | None, ...] | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """Low and high, of a range that has been checked and has no choices."""
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high

    def check(self, key: str) -> None:
        """Raise a ConfigError where it is no range; `key` is where it stands."""
        if self.choices is not None:
            require(len(self.choices) > 0, f"{key}.choices", [], "name at least one value")
            require(
                self.low is None and self.high is None,
                key,
                f"choices and {'low' if self.low is not None else 'high'}",
                "give either choices, or low and high",
            )
            return
        if self.low is None or self.high is None:
            raise ConfigError(
                f"{key} has no {'low' if self.low is None else 'high'}; give low and high, or choices"
            )
        require(self.scale in SCALES, f"{key}.scale", self.scale, "choose linear or log")
        finite = math.isfinite(self.low) and math.isfinite(self.high)
        require(finite, key, [self.low, self.high], "low and high must be finite")
        require(self.low <= self.high, f"{key}.low", self.low, f"it must not be above high ({self.high})")
        require(
            self.scale == "linear" or self.low > 0,
            f"{key}.low",
            self.low,
            "on a logarithmic scale it must be above 0",
        )


class Search:
    """The ranges of several keys, for one algorithm and one seat."""

    def __init__(self, ranges: Mapping[str, Range], algorithm: Algorithm, seat: SeatSpec) -> None:
        """Raises a ConfigError where a key is unknown, or the ends of its range are refused."""
        require(bool(ranges), "problem.search", {}, "name at least one key, such as algo.lr")
        self.ranges = dict(ranges)
        self._algorithm, self._seat = algorithm, seat
        for key, span in ranges.items():
            span.check(f"problem.search.{key}")
            self._check_key(key)
        self.coding = Coding({key: self._part(key, span) for key, span in ranges.items()})
        for key, span in ranges.items():
            for value in span.choices if span.choices is not None else span.ends:
                self._check_value(key, value)

    def sample(self, n: int, rng: np.random.Generator) -> Genomes:
        """n genomes, uniform on the scale of each key."""
        return self.coding.sample(n, rng)

    def values(self, genomes: Genomes, index: int) -> dict[str, Any]:
        """What the genome at `index` stands for, by key."""
        found: dict[str, Any] = {}
        for key, span in self.ranges.items():
            number = genomes[key][index, 0]
            found[key] = span.choices[int(number)] if span.choices is not None else number.item()
        return found

    def algorithm(self, values: Mapping[str, Any]) -> Algorithm:
        """The algorithm with these hyperparameters; a ConfigError where it refuses one."""
        own = {key.removeprefix(ALGO): value for key, value in values.items() if key.startswith(ALGO)}
        return dataclasses.replace(self._algorithm, **own)

    def head_weights(self, values: Mapping[str, Any]) -> tuple[float, ...] | None:
        """Weights [K] of the reward heads; None where none is searched."""
        if not any(key.startswith(REWARD) for key in values):
            return None
        return tuple(float(values.get(f"{REWARD}{h.name}", h.weight)) for h in self._seat.rewards)

    # -------------------------------------------------------------- parts

    def _check_key(self, key: str) -> None:
        if key.startswith(REWARD):
            names = [head.name for head in self._seat.rewards]
            if key.removeprefix(REWARD) not in names:
                raise ConfigError(f"problem.search has {key}; the game's reward heads are {', '.join(names)}")
            return
        fields = {field.name for field in dataclasses.fields(self._algorithm)}
        name = key.removeprefix(ALGO)
        if not key.startswith(ALGO) or name not in fields:
            raise ConfigError(
                f"problem.search has {key}; it can have "
                f"{', '.join(ALGO + field for field in sorted(fields - set(SHAPES)))}, and "
                f"{REWARD}NAME of a reward head"
            )
        if name in SHAPES:
            raise ConfigError(
                f"problem.search has {key}, which members of one population share; sweep it instead: "
                f"lamarck evolve -m {key}=..."
            )

    def _part(self, key: str, span: Range) -> Part:
        if span.choices is not None:
            return Categorical(sizes=np.array([len(span.choices)]))
        now = getattr(self._algorithm, key.removeprefix(ALGO), 0.0)
        if isinstance(now, bool | str):
            raise ConfigError(f"problem.search.{key} has low and high; it needs choices, such as [{now!r}]")
        kind, dtype = (Integer, np.int64) if isinstance(now, int) else (Real, np.float64)
        low, high = (np.array([end], dtype) for end in span.ends)
        return kind(low=low, high=high, log=span.scale == "log")

    def _check_value(self, key: str, value: Any) -> None:
        if key.startswith(REWARD):
            return
        if isinstance(self.coding.parts[key], Integer):
            value = round(value)
        try:
            self.algorithm({key: value})
        except ConfigError as error:
            raise ConfigError(f"problem.search.{key} reaches {value!r}: {error}") from error
        except TypeError as error:
            raise ConfigError(
                f"problem.search.{key} reaches {value!r}, which is no value of {key}"
            ) from error
