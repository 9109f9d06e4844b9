"""Selection: indices of individuals from their keys. Keys are minimised; NaN comes last."""

from __future__ import annotations

import numpy as np


def contestants(n: int, size: int, of: int, rng: np.random.Generator) -> np.ndarray:
    """Indices [size, n] below `of`: all take part equally often, give or take one (as in Deb's code)."""
    rounds = -(-n * size // of)
    turns = np.concatenate([rng.permutation(of) for _ in range(rounds)]) if rounds else np.zeros(0, np.int64)
    return turns[: n * size].reshape(n, size).T


def tournament(keys: np.ndarray, n: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """The winners [n] of n tournaments of `size` each; ties go to who was drawn first.

    Args:
        keys: [N], the smallest wins.
    """
    drawn = contestants(n, size, len(keys), rng)
    met = np.where(np.isnan(keys), np.inf, keys)[drawn]
    winners: np.ndarray = drawn[met.argmin(axis=0), np.arange(n)]
    return winners


def crowded_tournament(
    ranks: np.ndarray, crowding: np.ndarray, n: int, rng: np.random.Generator
) -> np.ndarray:
    """The winners [n] of binary tournaments: lower rank, then more room (Deb et al. 2002, ≺n).

    Args:
        ranks, crowding: [N]; ties go to who was drawn first.
    """
    one, other = contestants(n, 2, len(ranks), rng)
    first, second = ranks[one], ranks[other]
    other_wins = crowding[other] > crowding[one]
    other_wins &= first == second
    other_wins |= second < first
    winners: np.ndarray = np.where(other_wins, other, one)
    return winners


def truncation(keys: np.ndarray, n: int) -> np.ndarray:
    """The n best of keys [N], best first; ties in the order of the array."""
    order: np.ndarray = np.argsort(keys, kind="stable")
    return order[:n]


def roulette(weights: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """n independent draws, each in proportion to weights [N] (Holland 1975); uniform where all are 0.

    Weights are finite and not negative: `ranking` makes some from keys.
    """
    return _wheel(weights, rng.random(n))


def stochastic_universal(weights: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """n draws in proportion to weights [N] with one spin of n equal spokes (Baker 1987), in random order.

    Each index comes as often as expected, but for a fraction below one. Weights as of `roulette`.
    """
    return rng.permutation(_wheel(weights, (np.arange(n) + rng.random()) / max(n, 1)))


def ranking(keys: np.ndarray, pressure: float) -> np.ndarray:
    """Weights [N] of linear ranking (Baker 1985): the best gets `pressure`, from 1 to 2, the mean is 1.

    Equal keys get equal weights, the mean of theirs.
    """
    n = len(keys)
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    place = (last - counts + last - 1) / 2  # the mean place of each distinct key, 0 is best
    weights: np.ndarray = (pressure - 2 * (pressure - 1) * place / max(n - 1, 1))[inverse]
    return weights


def _wheel(weights: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Where each of turns [n] in [0, 1) stops on a wheel whose sectors are weights [N]."""
    edges = np.cumsum(weights, dtype=np.float64)
    if edges[-1] <= 0:
        edges = np.arange(1.0, len(weights) + 1)
    index = np.searchsorted(edges, turns * edges[-1], side="right")
    # A product that rounds up to the whole wheel belongs to the last sector that has a width.
    stops: np.ndarray = np.minimum(index, np.searchsorted(edges, edges[-1]))
    return stops
