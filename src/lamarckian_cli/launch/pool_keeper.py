"""The league beside the learners: snapshots when they are due, results in, and what actors need to know.

    keeper = make_keeper(job, cast.trained)     # None without self-play
    keeper.offer(learner)                       # after each update
    keeper.add_results(results)
    snapshots, pairings = keeper.news()         # that actors have not got yet

Every snapshot of the pool stands in a place; who takes the place of one that was dropped is
published by the same name, so that what carries weights holds no more of them than the pool.
Calls may come from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from lamarckian_cli.errors import MDPError
from lamarckian_cli.launch.casting import WIN
from lamarckian_cli.launch.job import Job
from lamarckian_cli.records import MatchResult, Pairings, Weights, place_name
from lamarckian_cli.selfplay.league import League

if TYPE_CHECKING:
    from lamarckian_cli.actor.opponents import Opponents
    from lamarckian_cli.learner.learner import Learner

NOBODY = -1  # number of the snapshot in an empty place


def make_keeper(job: Job, policies: Iterable[str]) -> PoolKeeper | None:
    """For the policies that learn; None where the job has no self-play."""
    return None if job.selfplay.matchmaking == "none" else PoolKeeper(League(job.selfplay), policies)


class PoolKeeper:
    """Keeps `league`, and numbers the places of its pool."""

    def __init__(self, league: League, policies: Iterable[str]) -> None:
        self.league = league
        self._places: list[str] = [""] * league.settings.capacity  # who stands in each
        self._fresh: set[str] = set()  # snapshots that were not told of yet
        self._changed = False  # since pairings were told
        self._version = 0  # of the pairings, told or to be told
        self._lock = threading.Lock()
        for policy in policies:
            league.enroll(policy)

    def offer(self, learner: Learner) -> None:
        """A policy's weights as they are now: its first ones, or those after an update."""
        with self._lock:
            if not self.league.is_due(learner.policy, learner.env_steps):
                return  # nothing is copied
            weights = learner.weights()
            self.league.offer(
                weights.policy, weights.vector, version=weights.version, env_steps=learner.env_steps
            )
            self._take_places()

    def add_results(self, results: Iterable[MatchResult]) -> None:
        """Matches that ended; those against who has left the pool since say nothing any more.

        Raises MDPError where the game does not say who won.
        """
        with self._lock:
            for result in results:
                if result.opponent in self.league.pool and result.policy in self.league.policies:
                    self.league.record(result.policy, result.opponent, _score(result))
                    self._change()

    def news(self) -> tuple[list[Weights], Pairings | None]:
        """Snapshots that are new since the last call, and the pairings where they have changed."""
        with self._lock:
            snapshots = [
                Weights(policy=place_name(place), version=snapshot.number, vector=snapshot.vector)
                for place, snapshot in self._standing()
                if snapshot.name in self._fresh
            ]
            self._fresh.clear()
            changed, self._changed = self._changed, False
            return snapshots, self._pairings() if changed else None

    def follow(self, learners: Iterable[Learner], opponents: Opponents | None) -> None:
        """Offer these learners, and give the news to the opponents of a rollout in this process."""
        assert opponents is not None
        for learner in learners:
            self.offer(learner)
        snapshots, pairings = self.news()
        for weights in snapshots:
            opponents.load(weights)
        if pairings is not None:
            opponents.pair(pairings)

    # -------------------------------------------------------------- populations

    def remember(self, name: str, member: str) -> None:
        """Keep how a member stands, for who is given its weights later on."""
        with self._lock:
            self.league.remember(name, like=member)

    def forget(self, name: str) -> None:
        with self._lock:
            if name in self.league.ratings:
                self.league.forget(name)

    def inherit(self, member: str, name: str) -> None:
        """A member was given the weights of one who was remembered."""
        with self._lock:
            self.league.enroll(member, like=name)
            self._change()

    def begin_anew(self, member: str) -> None:
        """A member has first weights again."""
        with self._lock:
            self.league.enroll(member)
            self._change()

    def rating(self, policy: str) -> float:
        """The mean of what is known of its skill."""
        with self._lock:
            return self.league.ratings[policy].mean

    # -------------------------------------------------------------- to look at, and to go on from

    def progress(self) -> dict[str, float]:
        """Numbers for metrics: the pool's size, and each policy's rating."""
        with self._lock:
            ratings = {name: self.league.ratings[name] for name in self.league.policies}
            several = len(ratings) > 1
            numbers: dict[str, float] = {"pool": len(self.league.pool)}
            for name, rating in ratings.items():
                numbers[f"{name}/rating" if several else "rating"] = rating.mean
            return numbers

    def state(self) -> dict[str, Any]:
        with self._lock:
            return {"league": self.league.state(), "places": list(self._places), "version": self._version}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`; everything is news again."""
        with self._lock:
            self.league.restore(state["league"])
            self._places = [str(name) for name in state["places"]]
            self._version = int(state["version"])
            self._fresh = set(self.league.pool.names)
            self._changed = True

    # -------------------------------------------------------------- parts

    def _take_places(self) -> None:
        """Give those who are new the places of those who were dropped."""
        pool = self.league.pool
        self._places = [name if name in pool else "" for name in self._places]
        for name in pool.names:
            if name not in self._places:
                self._places[self._places.index("")] = name
                self._fresh.add(name)
        self._change()

    def _change(self) -> None:
        """Pairings are not any more what was told; a resumed run tells the same ones by the same version."""
        if not self._changed:
            self._changed = True
            self._version += 1

    def _standing(self) -> list[tuple[int, Any]]:
        """Places where somebody stands, and who."""
        return [(place, self.league.pool[name]) for place, name in enumerate(self._places) if name]

    def _pairings(self) -> Pairings:
        learners = self.league.policies
        chances = np.zeros((len(learners), len(self._places)))
        numbers = [NOBODY] * len(self._places)
        place_of = {name: place for place, name in enumerate(self._places) if name}
        for place, snapshot in self._standing():
            numbers[place] = snapshot.number
        for row, learner in enumerate(learners):
            names, of_names = self.league.chances(learner)
            chances[row, [place_of[name] for name in names]] = of_names
        return Pairings(
            version=self._version,
            opponents=tuple(self._places),
            numbers=tuple(numbers),
            learners=learners,
            chances=chances,
        )


def _score(result: MatchResult) -> float:
    score = result.result.get(WIN)
    if score not in (1.0, 0.5, 0.0):
        raise MDPError(
            f"a match reported {WIN}={score}; self-play needs 1 (won), 0.5 (drawn) or 0 (lost) of each"
        )
    return score
