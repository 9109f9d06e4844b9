"""Drawing one opponent, which actors do, match by match. Needs no SciPy, as working out chances does."""

from __future__ import annotations

import numpy as np


def choose(chances: np.ndarray, rng: np.random.Generator) -> int:
    """Draw one of [N], by one number of `rng`."""
    bounds = np.cumsum(chances)
    # Rounding may leave the last bound a little below the sum, and a player of chance 0 behind it.
    index = int(np.searchsorted(bounds, rng.random() * bounds[-1], side="right"))
    return min(index, int(np.flatnonzero(chances)[-1]))
