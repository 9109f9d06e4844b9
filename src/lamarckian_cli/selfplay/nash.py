"""Matrix games: maximin mixtures by linear programming, and what a mixture can lose.

A payoff matrix [N, M] is what the row player gains from the column player. A table of win
rates between N players is such a game as well, symmetric, with win rate less 0.5 as payoff.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog, minimize
from scipy.special import logsumexp, softmax

TOLERANCE = 1e-7  # HiGHS's own, of payoffs scaled to at most 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Equilibrium:
    """Mixtures that neither player gains by leaving."""

    row: np.ndarray  # [N] float64, sums to 1
    column: np.ndarray  # [M] float64, sums to 1
    value: float  # what the row player gains


def equilibrium(payoff: np.ndarray) -> Equilibrium:
    """An equilibrium of the zero-sum game `payoff` [N, M]: a maximin mixture of each player.

    Raises ValueError where the matrix is empty or not finite.
    """
    payoff = _checked(payoff)
    row, value = _maximin(payoff)
    column, _ = _maximin(-payoff.T)
    return Equilibrium(row=row, column=column, value=value)


def nash_mixture(advantage: np.ndarray) -> np.ndarray:
    """[N], the equilibrium of largest entropy of a symmetric game; `advantage` [N, N] is antisymmetric.

    Such games often have many equilibria (without any results, every mixture is one). That of
    the largest entropy is unique and treats equal players alike (Balduzzi et al. 2018,
    "Re-evaluating evaluation"). Raises ValueError where the matrix is not antisymmetric.
    """
    advantage = _checked(advantage)
    if advantage.shape[0] != advantage.shape[1] or not np.array_equal(advantage, -advantage.T):
        raise ValueError(f"the game {list(advantage.shape)} is not antisymmetric; use equilibrium() for it")
    scale = np.abs(advantage).max()
    if scale == 0:
        return np.full(len(advantage), 1 / len(advantage))
    game = advantage / scale
    inner = _support_mixture(game)
    if inner is None:
        return _maximin(game)[0]
    support = inner > 0
    mixture = np.zeros(len(game))
    mixture[support] = _most_even(game, support)
    # Where the smooth problem is too badly conditioned, an equilibrium that is less even will do.
    return mixture if exploitability(game, mixture) <= TOLERANCE else inner


def exploitability(payoff: np.ndarray, row: np.ndarray, value: float = 0.0) -> float:
    """What the best answer to the mixture `row` [N] takes from it, compared with the game's value.

    0 for a maximin mixture. A symmetric game has the value 0.
    """
    return float(value - (row @ payoff).min())


def _checked(payoff: np.ndarray) -> np.ndarray:
    payoff = np.asarray(payoff, np.float64)
    if payoff.ndim != 2 or not payoff.size or not np.isfinite(payoff).all():
        raise ValueError(f"a payoff matrix is [N, M] of finite numbers, both at least 1; not {payoff.shape}")
    return payoff


def _maximin(payoff: np.ndarray) -> tuple[np.ndarray, float]:
    """The mixture x [N] and value v of: maximise v, where x gains at least v from every column."""
    rows, columns = payoff.shape
    low = payoff.min()
    scale = max(float(np.ptp(payoff)), np.finfo(np.float64).tiny)
    game = (payoff - low) / scale  # within [0, 1], so HiGHS's tolerance means the same for every game
    solution = linprog(
        c=np.append(np.zeros(rows), -1.0),
        A_ub=np.hstack([-game.T, np.ones((columns, 1))]),
        b_ub=np.zeros(columns),
        A_eq=np.append(np.ones(rows), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * (rows + 1),
        method="highs",
    )
    assert solution.status == 0, solution.message  # feasible and bounded for every finite matrix
    mixture = np.maximum(solution.x[:rows], 0)
    mixture /= mixture.sum()
    return mixture, float((mixture @ game).min() * scale + low)


def _support_mixture(game: np.ndarray) -> np.ndarray | None:
    """An equilibrium [N] of an antisymmetric game that has every player that any equilibrium has.

    Equilibria, at any scale, are the cone x >= 0, x @ game >= 0. Maximising the sum of t with
    0 <= t <= 1 and t <= x makes t 1 for each player that some x can have, and 0 for the rest.
    None where HiGHS fails, as it may when shares differ by many orders of magnitude.
    """
    n = len(game)
    identity = np.eye(n)
    solution = linprog(
        c=np.append(np.zeros(n), -np.ones(n)),
        A_ub=np.vstack([np.hstack([-game.T, np.zeros((n, n))]), np.hstack([-identity, identity])]),
        b_ub=np.zeros(2 * n),
        bounds=[(0, None)] * n + [(0, 1)] * n,
        method="highs",
    )
    if solution.status != 0:
        return None
    mixture = np.where(solution.x[n:] > 0.5, np.maximum(solution.x[:n], 0), 0)
    if mixture.sum() == 0:
        return None
    mixture /= mixture.sum()
    return mixture if exploitability(game, mixture) <= TOLERANCE else None


def _most_even(game: np.ndarray, support: np.ndarray) -> np.ndarray:
    """The largest-entropy x [S] over the `support` (bool [N], of S players) with x @ game >= 0.

    By its dual: x is the softmax of game @ multipliers, and the multipliers minimise its log
    normaliser. Those of players in the support have either sign: an equilibrium gains exactly
    nothing from them, so their inequality is an equality.
    """
    gains = game[support]  # [S, N], rows of the players that may be mixed

    def dual(multipliers: np.ndarray) -> tuple[float, np.ndarray]:
        logits = gains @ multipliers
        return float(logsumexp(logits)), softmax(logits) @ gains

    bounds = [(None, None) if inside else (0.0, None) for inside in support]
    found = minimize(
        dual,
        np.zeros(len(game)),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 1000, "maxfun": 5000, "ftol": 1e-16, "gtol": 1e-9},
    )
    return softmax(gains @ found.x)
