"""The configuration of self-play, `selfplay.*`: pool, matchmaking, guard, table and ratings."""

from __future__ import annotations

from dataclasses import dataclass

from lamarckian_cli.errors import require

RULES = ("none", "latest", "uniform", "mixed", "pfsp", "nash")
DROP_RULES = ("spread", "rating")
RATINGS = ("bayes", "elo")
WEIGHTINGS = ("hard", "even")
_CHOICES = {"matchmaking": RULES, "drop": DROP_RULES, "rating": RATINGS, "weighting": WEIGHTINGS}
_SHARES = ("latest_share", "max_win_rate", "min_expected_score")


@dataclass(frozen=True, kw_only=True)
class SelfPlay:
    """How opponents are kept and met. `matchmaking` none: there is no pool."""

    matchmaking: str = "none"  # whom a learner meets, each match anew
    # The pool.
    capacity: int = 32  # snapshots
    drop: str = "spread"  # which go when there are more
    add_every_env_steps: int | None = 100_000  # of the policy, between two snapshots of it
    add_win_rate: float | None = None  # against the opponents it is given; also adds one
    # Whom not to meet at all.
    max_win_rate: float = 1.0
    min_expected_score: float = 0.0
    # What is remembered of results.
    decay: float = 0.99  # of a pair's older results, at each new one
    prior: float = 2.0  # drawn matches that each pair starts with
    rating: str = "bayes"
    elo_k: float = 16.0
    draw_rate: float = 0.1  # of equals, as the Bayesian rating assumes
    # Of single rules.
    latest_share: float = 0.8  # mixed
    quality_step: float = 0.01  # mixed
    weighting: str = "hard"  # pfsp
    power: float = 2.0  # pfsp, hard

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            require(value in allowed, f"selfplay.{name}", value, f"choose one of {', '.join(allowed)}")
        for name in _SHARES:
            value = getattr(self, name)
            require(0 <= value <= 1, f"selfplay.{name}", value, "it must lie in [0, 1]")
        self._check_pool()
        require(0 < self.decay <= 1, "selfplay.decay", self.decay, "it must lie in (0, 1]; 1 forgets nothing")
        require(self.prior >= 0, "selfplay.prior", self.prior, "it must be 0 or more (2)")
        require(
            0 <= self.draw_rate < 1,
            "selfplay.draw_rate",
            self.draw_rate,
            "it must lie in [0, 1), such as 0.1",
        )
        for name, usual in (("elo_k", 16), ("quality_step", 0.01), ("power", 2)):
            value = getattr(self, name)
            require(value > 0, f"selfplay.{name}", value, f"it must be above 0 ({usual})")

    def _check_pool(self) -> None:
        require(self.capacity >= 1, "selfplay.capacity", self.capacity, "it must be at least 1 (32)")
        every, rate = self.add_every_env_steps, self.add_win_rate
        require(
            every is not None or rate is not None,
            "selfplay.add_every_env_steps",
            every,
            "give it or selfplay.add_win_rate, else the pool never grows",
        )
        require(
            every is None or every >= 1,
            "selfplay.add_every_env_steps",
            every,
            "it must be at least 1, or null to add by selfplay.add_win_rate alone",
        )
        require(
            rate is None or 0.5 < rate < 1,
            "selfplay.add_win_rate",
            rate,
            "it must lie in (0.5, 1), such as 0.7, or be null",
        )
