"""Mutation: [N, D] in, [N, D] out, always a new array.

`probability` is that of each number being changed, where nothing else is said.
"""

from __future__ import annotations

import numpy as np


def polynomial(
    x: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    *,
    eta: float,
    probability: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """Polynomial mutation within bounds (Deb & Goyal 1996; bounds as in Deb's NSGA-II code).

    With δ the step as a share of the range, downward for half of them, and δ_b where the bound is:

        P(|δ| < d) = (1 - (1 - d)^(η+1)) / (1 - (1 - δ_b)^(η+1))

    Args:
        x: float64 [N, D], within the bounds.
        low, high: float64 [D], finite. Where they are equal nothing changes.
        eta: the distribution index η, at least 0; the larger, the smaller the steps.
    """
    chosen = rng.random(x.shape) < probability
    chosen &= high > low
    at = np.flatnonzero(chosen)
    mutant = x.copy()
    flat = mutant.reshape(-1)
    column = at % x.shape[1] if x.shape[1] else at
    value, least, most = flat[at], low[column], high[column]
    span = most - least
    u, way = rng.random((2, len(at)))
    down = way < 0.5
    to_bound = np.where(down, value - least, most - value) / span
    step = 1.0 - (u + (1.0 - u) * (1.0 - to_bound) ** (eta + 1.0)) ** (1.0 / (eta + 1.0))
    step *= span
    value += np.where(down, -step, step)
    np.maximum(value, least, out=value)
    flat[at] = np.minimum(value, most, out=value)
    return mutant


def gaussian(
    x: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    *,
    sigma: float | np.ndarray,
    probability: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """Normal steps, clamped to the bounds [D], which may be infinite; `sigma` is absolute, one or [D]."""
    mutant = x + np.where(rng.random(x.shape) < probability, rng.normal(0.0, sigma, x.shape), 0.0)
    np.maximum(mutant, low, out=mutant)
    np.minimum(mutant, high, out=mutant)
    return mutant


def weights(x: np.ndarray, *, sigma: float, probability: float, rng: np.random.Generator) -> np.ndarray:
    """Normal steps on float32 [N, D], without bounds: for the weights of networks."""
    step = rng.standard_normal(x.shape, np.float32)
    step *= np.float32(sigma)
    if probability < 1:
        step *= rng.random(x.shape, np.float32) < probability
    return x + step


def reset(
    x: np.ndarray, low: np.ndarray, high: np.ndarray, *, probability: float, rng: np.random.Generator
) -> np.ndarray:
    """Another value of low..high, all equally likely; for choices without order. Bits flip.

    `x` is int64 [N, D], the bounds int64 [D], both included.
    """
    chosen = rng.random(x.shape) < probability
    return np.where(chosen, _another(x, low, high, rng), x)


def creep(
    x: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    *,
    step: np.ndarray,
    probability: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """Another value within the bounds, at most `step` [D] away (at least 1), all equally likely.

    For integers, whose near values are alike. Arrays are int64 as in `reset`.
    """
    chosen = rng.random(x.shape) < probability
    # Wraps, and so is exact, where int64 could not hold the distance.
    below = np.minimum((x - low).view(np.uint64), step.view(np.uint64)).view(np.int64)
    above = np.minimum((high - x).view(np.uint64), step.view(np.uint64)).view(np.int64)
    return np.where(chosen, _another(x, x - below, x + above, rng), x)


def swap(x: np.ndarray, *, probability: float, rng: np.random.Generator) -> np.ndarray:
    """Exchange two places of a permutation; `probability` is of each row being changed."""
    chosen, one, other = _places(x, probability, rng)
    mutant = x.copy()
    mutant[chosen, one], mutant[chosen, other] = x[chosen, other], x[chosen, one]
    return mutant


def insert(x: np.ndarray, *, probability: float, rng: np.random.Generator) -> np.ndarray:
    """Take one thing out of a permutation and put it in at another place; `probability` is of each row."""
    chosen, taken, put = _places(x, probability, rng)
    taken, put = taken[:, None], put[:, None]
    place = np.arange(x.shape[1])
    source = place + ((place >= taken) & (place < put)) - ((place <= taken) & (place > put))
    source = np.where(place == put, taken, source)
    return _rearranged(x, chosen, source)


def invert(x: np.ndarray, *, probability: float, rng: np.random.Generator) -> np.ndarray:
    """Turn a stretch of a permutation round (a 2-opt move of a tour); `probability` is of each row."""
    chosen, one, other = _places(x, probability, rng)
    first, last = np.minimum(one, other)[:, None], np.maximum(one, other)[:, None]
    place = np.arange(x.shape[1])
    source = np.where((place >= first) & (place <= last), first + last - place, place)
    return _rearranged(x, chosen, source)


def _another(x: np.ndarray, low: np.ndarray, high: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A value of low..high other than x; x where there is none. Never leaves int64."""
    several = high > low
    drawn = rng.integers(low, high - several, x.shape, endpoint=True)
    return np.where(several, drawn + (drawn >= x), x)


def _places(
    x: np.ndarray, probability: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows [K] to change, and two different places [K] in each; none where a row has but one."""
    n, size = x.shape
    chosen = np.flatnonzero(rng.random(n) < probability) if size > 1 else np.zeros(0, np.int64)
    one = rng.integers(0, max(size, 1), len(chosen))
    return chosen, one, (one + rng.integers(1, max(size, 2), len(chosen))) % max(size, 1)


def _rearranged(x: np.ndarray, chosen: np.ndarray, source: np.ndarray) -> np.ndarray:
    """A copy whose rows `chosen` [K] have at each place what was at `source` [K, D]."""
    mutant = x.copy()
    mutant[chosen] = np.take_along_axis(x[chosen], source, axis=1)
    return mutant
