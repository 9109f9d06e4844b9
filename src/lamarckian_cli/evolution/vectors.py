"""The numbers of genomes as one array, for strategies that move points in space; and back."""

from __future__ import annotations

import numpy as np

from lamarckian_cli.ec.coding import Coding, Genomes, NetworkWeights, Real
from lamarckian_cli.errors import ConfigError


class Vectors:
    """Real parts and network weights, part after part, as float64 [N, D]; other parts are refused.

    low, high: [D], infinite where there is no bound. width: [D], the range that first genomes
    are drawn from; 1 for weights, whose sizes are their evaluator's business.
    """

    def __init__(self, coding: Coding, strategy: str, *, networks: bool = True) -> None:
        self._parts = coding.parts
        low, high, width = [], [], []
        for name, part in coding.parts.items():
            if isinstance(part, Real):
                lower, upper = (part.low, part.high) if part.start is None else part.start
                low.append(part.low)
                high.append(part.high)
                width.append(np.broadcast_to(np.subtract(upper, lower), part.size))
            elif isinstance(part, NetworkWeights) and networks:
                low.append(np.full(part.size, -np.inf))
                high.append(np.full(part.size, np.inf))
                width.append(np.ones(part.size))
            else:
                takes = "real numbers and network weights" if networks else "real numbers"
                raise ConfigError(
                    f"evo is {strategy}, which takes {takes}, and part {name!r} of the problem's genomes is "
                    f"{type(part).__name__}; use evo=ga"
                )
        self.low, self.high, self.width = map(np.concatenate, (low, high, width))

    @property
    def size(self) -> int:
        """D."""
        return len(self.low)

    def of(self, genomes: Genomes) -> np.ndarray:
        """[N, D] float64, always a new array."""
        return np.concatenate([genomes[name] for name in self._parts], axis=1, dtype=np.float64)

    def genomes(self, vectors: np.ndarray) -> Genomes:
        """Genomes of [N, D], in bounds and in the dtype of each part."""
        vectors = np.clip(vectors, self.low, self.high)
        genomes: Genomes = {}
        start = 0
        for name, part in self._parts.items():
            genomes[name] = vectors[:, start : start + part.size].astype(part.dtype)
            start += part.size
        return genomes

    def networks(self) -> np.ndarray:
        """[D] bool: which numbers are network weights."""
        parts = self._parts.values()
        return np.concatenate([np.full(part.size, isinstance(part, NetworkWeights)) for part in parts])
