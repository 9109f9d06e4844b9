"""Whom a learner meets: for N opponents, how likely each is. One is drawn for a whole match.

Each rule is a function of what is known of the opponents, oldest first: `newest` (bool [N]:
the newest snapshot of its policy), qualities, the learner's win rates against them, or the
game that they play among themselves. All give probabilities [N] float64 that sum to 1.
"""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from lamarckian_cli.selfplay.nash import nash_mixture
from lamarckian_cli.selfplay.settings import WEIGHTINGS


def latest(newest: np.ndarray) -> np.ndarray:
    """The newest snapshot; where several policies share the pool, that of any of them."""
    return _normalized(newest.astype(np.float64))


def uniform(n: int) -> np.ndarray:
    """Any of n (fictitious self-play)."""
    return np.full(n, 1 / n)


def mixed(newest: np.ndarray, quality: np.ndarray, *, share: float) -> np.ndarray:
    """The newest with probability `share`, else a past one by the softmax of its quality [N].

    As OpenAI Five (Berner et al. 2019), which had 0.8. Without any past one it is the newest.
    """
    if newest.all():
        return latest(newest)
    chances = share * latest(newest)
    chances[~newest] = (1 - share) * softmax(quality[~newest])
    return chances


def pfsp(win_rate: np.ndarray, *, weighting: str, power: float) -> np.ndarray:
    """Prioritised fictitious self-play by the learner's win rate x [N] against each (Vinyals et al. 2019).

    `hard` weighs by (1 - x)^power, who is hard to beat; `even` by x (1 - x), near equals. Where
    nobody has any weight, all are equally likely.
    """
    if weighting not in WEIGHTINGS:
        raise ValueError(f"weighting is {weighting!r}; it is one of {', '.join(WEIGHTINGS)}")
    weights = (1 - win_rate) ** power if weighting == "hard" else win_rate * (1 - win_rate)
    return _normalized(weights) if weights.sum() > 0 else uniform(len(win_rate))


def nash(advantage: np.ndarray) -> np.ndarray:
    """The most even equilibrium of the game [N, N] that the opponents play among themselves."""
    return nash_mixture(advantage)


def admitted(
    win_rate: np.ndarray, expected_score: np.ndarray, *, max_win_rate: float, min_expected_score: float
) -> np.ndarray:
    """bool [N]: who is worth meeting at all; at least one is.

    Left out is whom the learner beats more often than `max_win_rate`, and whose `expected_score`
    [N] against the learner, by their ratings, is below `min_expected_score`. The second also
    keeps out an exploiter: weak against everyone, yet often the winner against this learner, so
    that a rule by win rates alone would make the learner train against it most of the time, and
    forget how to play the strong ones. Where nobody is left, it is the one expected to score most.
    """
    worth = (win_rate <= max_win_rate) & (expected_score >= min_expected_score)
    if not worth.any():
        worth[np.argmax(expected_score)] = True
    return worth


def _normalized(weights: np.ndarray) -> np.ndarray:
    return weights / weights.sum()
