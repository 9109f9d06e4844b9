"""The pool with all that is known of its players, kept in step: who joins, who meets whom, who won.

    league.enroll("main")
    league.offer("main", vector, version=0, env_steps=0)   # a snapshot, when one is due
    names, chances = league.chances("main")                # by which actors draw, match by match
    league.record("main", "main#0", WIN)

It lives in one process, beside the learners; results may come late, of matches against who has
left the pool since.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lamarckian_cli.errors import ConfigError, require
from lamarckian_cli.selfplay import matchmaking
from lamarckian_cli.selfplay.payoff import WIN, Payoff
from lamarckian_cli.selfplay.pool import MARK, Pool, Snapshot
from lamarckian_cli.selfplay.quality import Quality
from lamarckian_cli.selfplay.ratings import Bayes, Elo, Ratings
from lamarckian_cli.selfplay.settings import SelfPlay

REFRESH = 100  # results after which an equilibrium is computed anew; it takes milliseconds


class League:
    """Learning policies and the pool of their snapshots; `settings.matchmaking` is not none."""

    def __init__(self, settings: SelfPlay) -> None:
        if settings.matchmaking == "none":
            raise ValueError("a league needs matchmaking; with none there is no pool")
        self.settings = settings
        self.pool = Pool(settings.capacity, settings.drop)
        self.payoff = Payoff(decay=settings.decay, prior=settings.prior)
        self.ratings: Ratings = (
            Elo(k=settings.elo_k) if settings.rating == "elo" else Bayes(draw_rate=settings.draw_rate)
        )
        self.quality = Quality(settings.quality_step)
        self._policies: list[str] = []
        self._equilibria: dict[tuple[str, ...], np.ndarray] = {}  # by opponents; no name is used again
        self._results = 0  # since the equilibria were computed

    @property
    def policies(self) -> tuple[str, ...]:
        """Those that learn."""
        return tuple(self._policies)

    def enroll(self, policy: str, *, like: str | None = None) -> None:
        """A policy that learns; `like` another, or anew like another whose weights it was given.

        Raises ConfigError where its name could be a snapshot's, or the pool is too small for it.
        """
        if MARK in policy:
            raise ConfigError(f"a policy is called {policy!r}; {MARK} is kept for opponents in the pool")
        if policy not in self._policies:
            count = len(self._policies) + 1
            require(
                count <= self.settings.capacity,
                "selfplay.capacity",
                self.settings.capacity,
                f"it must be at least the number of policies, which is {count} or more",
            )
            self._policies.append(policy)
        self.payoff.add(policy, like=like)
        self.ratings.add(policy, like=like)

    def remember(self, name: str, *, like: str) -> None:
        """Keep how a policy stands now under another name, for who is given its weights later on."""
        self.payoff.add(name, like=like)
        self.ratings.add(name, like=like, frozen=True)

    def forget(self, name: str) -> None:
        """Whoever was remembered is not asked for any more."""
        self.payoff.forget(name)
        self.ratings.forget(name)

    def is_due(self, policy: str, env_steps: int) -> bool:
        """Whether `offer` would take a snapshot of a policy that has learned from so many."""
        newest = self.pool.newest(policy)
        if newest is None:
            return True
        every, threshold = self.settings.add_every_env_steps, self.settings.add_win_rate
        if every is not None and env_steps - newest.env_steps >= every:
            return True
        if threshold is None or self._win_rates(policy, (newest.name,))[0] < threshold:
            return False
        names, chances = self.chances(policy)
        return float(chances @ self._win_rates(policy, names)) >= threshold

    def offer(self, policy: str, vector: np.ndarray, *, version: int, env_steps: int) -> Snapshot | None:
        """Weights [P] float32 of a policy after so many env steps; the snapshot where one is due.

        It is when the policy has none, every `add_every_env_steps`, and when the policy wins
        `add_win_rate` of its matches both against the opponents it is given and against its
        own newest snapshot. That one starts at even odds, so nothing is added twice.
        """
        if not self.is_due(policy, env_steps):
            return None
        snapshot = self.pool.add(policy, vector, version=version, env_steps=env_steps)
        self.payoff.add(snapshot.name, like=policy)
        self.ratings.add(snapshot.name, like=policy, frozen=True)
        self.quality.add(snapshot.name)
        self._trim()
        return snapshot

    def chances(self, learner: str) -> tuple[tuple[str, ...], np.ndarray]:
        """Names of all snapshots, and how likely `learner` meets each: [N] float64 that sums to 1.

        Raises ValueError while the pool is empty.
        """
        names = self.pool.names
        if not names:
            raise ValueError(f"{learner} has nobody to meet: offer the weights it starts with first")
        rates = self._win_rates(learner, names)
        admitted = self._admitted(learner, names, rates)
        inside = tuple(name for name, is_in in zip(names, admitted, strict=True) if is_in)
        chances = np.zeros(len(names))
        chances[admitted] = self._rule(inside, rates[admitted])
        return names, chances

    def record(self, home: str, away: str, score: float) -> None:
        """The end of a match between two players: WIN, DRAW or LOSS of `home`."""
        self.payoff.record(home, away, score)
        self.ratings.record([home], [away], score)
        if self.settings.matchmaking == "mixed" and score == WIN and home in self._policies:
            past = self._past()
            if away in past:
                self.quality.beaten(away, past)
        self._results += 1
        if self._results >= REFRESH:
            self._results = 0
            self._equilibria.clear()

    def state(self) -> dict[str, Any]:
        """Everything to go on from."""
        return {
            "policies": list(self._policies),
            "pool": self.pool.state(),
            "payoff": self.payoff.state(),
            "ratings": self.ratings.state(),
            "quality": self.quality.state(),
            "results": self._results,
            "equilibria": [[list(names), mixture] for names, mixture in self._equilibria.items()],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()` of a league with the same settings. Raises RunError for damaged weights."""
        self.pool.restore(state["pool"])
        self.payoff.restore(state["payoff"])
        self.ratings.restore(state["ratings"])
        self.quality.restore(state["quality"])
        self._policies = [str(policy) for policy in state["policies"]]
        self._results = int(state["results"])
        self._equilibria = {tuple(names): np.array(mixture) for names, mixture in state["equilibria"]}

    def _win_rates(self, learner: str, names: tuple[str, ...]) -> np.ndarray:
        [row] = self.payoff.rows((learner,))
        return self.payoff.win_rates()[row, self.payoff.rows(names)]

    def _admitted(self, learner: str, names: tuple[str, ...], rates: np.ndarray) -> np.ndarray:
        ceiling, floor = self.settings.max_win_rate, self.settings.min_expected_score
        if ceiling == 1 and floor == 0:  # all are; spares most of what a choice costs
            return np.ones(len(names), np.bool_)
        scores = np.array([self.ratings.expected(name, learner) for name in names])
        return matchmaking.admitted(rates, scores, max_win_rate=ceiling, min_expected_score=floor)

    def _rule(self, names: tuple[str, ...], rates: np.ndarray) -> np.ndarray:
        settings = self.settings
        if settings.matchmaking == "uniform":
            return matchmaking.uniform(len(names))
        if settings.matchmaking == "pfsp":
            return matchmaking.pfsp(rates, weighting=settings.weighting, power=settings.power)
        if settings.matchmaking == "nash":
            return self._equilibrium(names)
        newest = self._newest(names)
        if settings.matchmaking == "latest":
            return matchmaking.latest(newest)
        return matchmaking.mixed(newest, self.quality.of(names), share=settings.latest_share)

    def _equilibrium(self, names: tuple[str, ...]) -> np.ndarray:
        if names not in self._equilibria:
            rows = self.payoff.rows(names)
            self._equilibria[names] = matchmaking.nash(self.payoff.advantage()[np.ix_(rows, rows)])
        return self._equilibria[names]

    def _newest(self, names: tuple[str, ...]) -> np.ndarray:
        """bool [N]: the last of its policy among `names`."""
        last = {self.pool[name].policy: name for name in names}
        return np.array([last[self.pool[name].policy] == name for name in names])

    def _past(self) -> list[str]:
        names = self.pool.names
        return [name for name, is_new in zip(names, self._newest(names), strict=True) if not is_new]

    def _trim(self) -> None:
        if len(self.pool) <= self.pool.capacity:
            return
        for snapshot in self.pool.trim(self.ratings.means()):
            self.payoff.forget(snapshot.name)
            self.ratings.forget(snapshot.name)
            self.quality.forget(snapshot.name)
