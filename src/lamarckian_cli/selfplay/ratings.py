"""Ratings of players from the results of their matches.

`Elo` moves points from loser to winner. `Bayes` believes a Gaussian over each player's skill
and says how sure it is. Sides have one player each, or teams of equal size; a policy that
plays several seats of a team is one player. A frozen player cannot change, so its skill does
not drift; it is still rated, for what is known about it changes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import erfcx, ndtri

from lamarckian_cli.selfplay.payoff import DRAW, LOSS, WIN

CAUTION = 3.0  # deviations below the mean that a leaderboard orders by


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """What is known of one player."""

    mean: float
    deviation: float  # 0 with Elo, which does not say
    matches: int = 0  # that it has played under its own name
    frozen: bool = False

    @property
    def cautious(self) -> float:
        """A skill that it very likely has."""
        return self.mean - CAUTION * self.deviation


class Ratings(ABC):
    """Ratings by name. A scheme says where players start, what a match changes and what it expects."""

    def __init__(self) -> None:
        self._ratings: dict[str, Rating] = {}

    def __contains__(self, player: str) -> bool:
        return player in self._ratings

    def __getitem__(self, player: str) -> Rating:
        return self._ratings[player]

    def add(self, player: str, *, like: str | None = None, frozen: bool = False) -> None:
        """A new player, or a known one anew: at the start, or where `like` stands, whose weights it has."""
        start = self._start() if like is None else self._ratings[like]
        self._ratings[player] = replace(start, matches=0, frozen=frozen)

    def forget(self, player: str) -> None:
        """Take a player out; what others had from it stays with them."""
        del self._ratings[player]

    def record(self, home: Sequence[str], away: Sequence[str], score: float) -> None:
        """One match: `score` is WIN, DRAW or LOSS of the `home` side.

        Raises ValueError for another score, sides of unequal size, or a player who is there twice.
        """
        players = [*home, *away]
        if score not in (WIN, DRAW, LOSS):
            raise ValueError(f"{home} scored {score}; a match is won (1), drawn (0.5) or lost (0)")
        if len(home) != len(away) or not home or len(set(players)) != len(players):
            raise ValueError(f"{home} against {away}; sides are of equal size, with each player once")
        before = [self._ratings[player] for player in players]
        changed = self._update(before[: len(home)], before[len(home) :], score)
        for player, rating in zip(players, changed, strict=True):
            self._ratings[player] = replace(rating, matches=rating.matches + 1)

    def expected(self, player: str, other: str) -> float:
        """The score in [0, 1] that `player` should have against `other`; a draw counts half."""
        return self._expected(self._ratings[player], self._ratings[other])

    def means(self) -> dict[str, float]:
        """The mean of every player."""
        return {player: rating.mean for player, rating in self._ratings.items()}

    def leaderboard(self) -> list[tuple[str, Rating]]:
        """All players, the best first: by what they very likely are worth, then by name."""
        return sorted(self._ratings.items(), key=lambda entry: (-entry[1].cautious, entry[0]))

    def state(self) -> dict[str, Any]:
        ratings = self._ratings.values()
        return {
            "players": list(self._ratings),
            "mean": np.array([r.mean for r in ratings], np.float64),
            "deviation": np.array([r.deviation for r in ratings], np.float64),
            "matches": np.array([r.matches for r in ratings], np.int64),
            "frozen": np.array([r.frozen for r in ratings], np.bool_),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()` of ratings with the same settings."""
        columns = zip(
            state["players"],
            state["mean"],
            state["deviation"],
            state["matches"],
            state["frozen"],
            strict=True,
        )
        self._ratings = {
            str(player): Rating(
                mean=float(mean), deviation=float(deviation), matches=int(matches), frozen=bool(frozen)
            )
            for player, mean, deviation, matches, frozen in columns
        }

    @abstractmethod
    def _start(self) -> Rating:
        """Of a player of whom nothing is known."""

    @abstractmethod
    def _update(self, home: list[Rating], away: list[Rating], score: float) -> list[Rating]:
        """The ratings of both sides, home first, after a match."""

    @abstractmethod
    def _expected(self, player: Rating, other: Rating) -> float:
        """The score of `player` against `other`, a draw as half."""


class Elo(Ratings):
    """Elo (1978): 400 points are odds of ten to one. A side plays as the mean of its players, and each of
    them gains or loses the same, so the sum of all ratings never changes."""

    def __init__(self, *, k: float = 16.0, start: float = 1500.0) -> None:
        super().__init__()
        if k <= 0:
            raise ValueError(f"Elo(k={k}): it must be above 0")
        self.k = k
        self.start = start

    def _start(self) -> Rating:
        return Rating(mean=self.start, deviation=0.0)

    def _update(self, home: list[Rating], away: list[Rating], score: float) -> list[Rating]:
        difference = sum(r.mean for r in home) - sum(r.mean for r in away)
        gain = self.k * (score - elo_expected(difference / len(home)))
        return [
            *(replace(r, mean=r.mean + gain) for r in home),
            *(replace(r, mean=r.mean - gain) for r in away),
        ]

    def _expected(self, player: Rating, other: Rating) -> float:
        return elo_expected(player.mean - other.mean)


class Bayes(Ratings):
    """A Gaussian over each player's skill, updated by the exact mean and variance of the posterior.

    The model is Herbrich, Minka and Graepel's (2006, "TrueSkill: a Bayesian skill rating
    system"): a player performs as its skill plus Gaussian noise of deviation `beta`, a side as
    the sum of its players, and sides whose performances differ by less than a margin draw. For
    two sides that posterior's moments are closed: no message passing is needed. `drift` is what
    a skill may move between two matches, and frozen players have none. `draw_rate` is how often
    equals draw.
    """

    def __init__(
        self,
        *,
        mean: float = 25.0,
        deviation: float = 25.0 / 3,
        beta: float = 25.0 / 6,
        drift: float = 25.0 / 300,
        draw_rate: float = 0.1,
    ) -> None:
        super().__init__()
        if not 0 <= draw_rate < 1 or min(deviation, beta) <= 0 or drift < 0:
            raise ValueError(
                f"Bayes(deviation={deviation}, beta={beta}, drift={drift}, draw_rate={draw_rate}): "
                "deviation and beta above 0, drift 0 or more, draw_rate in [0, 1)"
            )
        self.mean = mean
        self.deviation = deviation
        self.beta = beta
        self.drift = drift
        self.draw_rate = draw_rate
        self._margin_of_one = float(ndtri((draw_rate + 1) / 2)) * beta

    def _start(self) -> Rating:
        return Rating(mean=self.mean, deviation=self.deviation)

    def _update(self, home: list[Rating], away: list[Rating], score: float) -> list[Rating]:
        variance = [r.deviation**2 + (0.0 if r.frozen else self.drift**2) for r in (*home, *away)]
        c = math.sqrt(sum(variance) + (len(home) + len(away)) * self.beta**2)
        t = (sum(r.mean for r in home) - sum(r.mean for r in away)) / c
        margin = self._margin(len(home) + len(away)) / c
        if score == DRAW:
            v, w = within(t, margin)
        elif score == WIN:
            v, w = beyond(t - margin)
        else:
            v, w = beyond(-t - margin)
            v = -v
        signs = [1.0] * len(home) + [-1.0] * len(away)
        return [
            replace(
                rating,
                mean=rating.mean + sign * (var / c) * v,
                deviation=math.sqrt(var * (1.0 - var / c**2 * min(w, 1.0))),
            )
            for rating, var, sign in zip((*home, *away), variance, signs, strict=True)
        ]

    def _expected(self, player: Rating, other: Rating) -> float:
        c = math.sqrt(2 * self.beta**2 + player.deviation**2 + other.deviation**2)
        difference, margin = player.mean - other.mean, self._margin(2)
        # P(win) + P(draw) / 2, each an integral of the same Gaussian
        return (_normal((difference - margin) / c) + _normal((difference + margin) / c)) / 2

    def _margin(self, players: int) -> float:
        """Within which performances draw: equals of known skill do so at the draw rate."""
        return self._margin_of_one * math.sqrt(players)


def elo_expected(difference: float) -> float:
    """The score in [0, 1] of who is rated `difference` above the other."""
    return 1.0 / (1.0 + 10.0 ** (-difference / 400.0))


def beyond(t: float) -> tuple[float, float]:
    """(v, w) of a Gaussian of mean t and deviation 1 that turned out to be above 0.

    Its mean is t + v and its variance 1 - w (Herbrich et al. 2006, section 4, v and w of a win).
    """
    v = math.sqrt(2 / math.pi) / float(erfcx(-t / math.sqrt(2)))  # φ(t) / Φ(t), also far below 0
    return v, v * (v + t)


def within(t: float, margin: float) -> tuple[float, float]:
    """(v, w) of a Gaussian of mean t and deviation 1 that turned out to be within [-margin, margin].

    Its mean is t + v and its variance 1 - w (ibid., v and w of a draw).
    """
    if margin == 0:
        return -t, 1.0  # exactly 0
    # Everything is over φ(upper), which keeps its digits where Φ(upper) - Φ(lower) underflows.
    upper, lower = margin - abs(t), -margin - abs(t)
    ratio = math.exp(-2 * margin * abs(t))  # φ(lower) / φ(upper)
    mass = _mills(upper) - ratio * _mills(lower)
    v = math.expm1(-2 * margin * abs(t)) / mass
    w = v * v + (upper - lower * ratio) / mass
    return math.copysign(v, -t) if t else 0.0, w


def _normal(x: float) -> float:
    """Φ(x). In plain Python: a match asks for one number a player, where NumPy is slow."""
    return math.erfc(-x / math.sqrt(2)) / 2


def _mills(x: float) -> float:
    """Φ(x) / φ(x)."""
    return math.sqrt(math.pi / 2) * float(erfcx(-x / math.sqrt(2)))
