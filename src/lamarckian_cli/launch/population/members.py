"""The learners of a population, side by side: individuals are placed on them, train, and are told of.

A member is a place: a learner, and the matches that actors play for it. An individual is placed
on a member that is free, takes over the weights, the optimizer and the observation statistics of
its parent, learns for its budget of env steps by hyperparameters of its own, and plays until it
has as many whole matches as are asked for. What it has become is kept under its number, for
its children, as long as somebody may want it.

Nothing here knows of processes: in process and over Ray the same object stands by the learners.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lamarckian_cli.launch.population.trainer import Plan
from lamarckian_cli.learner.batch import select

if TYPE_CHECKING:
    from lamarckian_cli.launch.pool_keeper import PoolKeeper
    from lamarckian_cli.learner.algorithm import Algorithm
    from lamarckian_cli.learner.learner import Learner
    from lamarckian_cli.records import MatchResult, Unrolls

RATING = "rating"  # in self-play, among the numbers that an individual comes to


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """An individual that is to be trained."""

    individual: int  # its number
    algorithm: Algorithm  # its hyperparameters
    head_weights: tuple[float, ...] | None = None  # of the reward heads; None: as the game has them
    parent: int | None = None  # whose weights, optimizer and statistics it takes over; None: nobody's
    seed: int = 0  # of first weights, where there is no parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What an individual has come to, or why it came to nothing."""

    individual: int
    member: str
    env_steps: int  # that it learned from
    matches: int  # that count
    results: dict[str, float]  # mean of each number that they reported
    error: str = ""


@dataclass(slots=True)
class _Stay:
    """An individual's time on its member."""

    placing: Placing
    version: int  # of the first weights that are its own, or that it went on with
    sampled_from: int  # version of the oldest weights that it may learn from: its own, or its parent's here
    env_steps: int  # of the learner at its beginning
    results: deque[dict[str, float]]
    matches: int = 0
    final_version: int | None = None  # once it has learned enough and only plays on, to be judged


class Members:
    """`learners` by the names of the members; each individual gets what `plan` says.

    Judged apart, an individual's matches are played from their first to their last step with its
    final weights; otherwise they have begun since it was placed.
    """

    def __init__(self, learners: dict[str, Learner], plan: Plan, keeper: PoolKeeper | None = None) -> None:
        """`keeper` is told who stands how, with self-play."""
        self.learners, self.plan, self._keeper = learners, plan, keeper
        self.finished: list[Trained] = []  # not yet asked for
        self.dropped_env_steps = 0  # that came too late for their individual
        self._stays: dict[str, _Stay] = {}
        self._last: dict[str, _Stay] = {}  # who was on a member before
        self._kept: dict[int, dict[str, Any]] = {}  # individual -> state of its learner at its end

    def place(self, member: str, placing: Placing) -> None:
        """Let an individual begin on a free member. KeyError where its parent is not kept."""
        if member in self._stays:
            raise ValueError(f"{member} is not free")
        learner, last = self.learners[member], self._last.get(member)
        learner.adopt(placing.algorithm, placing.head_weights)
        goes_on = last is not None and placing.parent == last.placing.individual
        if placing.parent is None:
            learner.begin_anew(placing.seed)
            if self._keeper is not None:
                self._keeper.begin_anew(member)
        elif not goes_on:
            learner.inherit(self._kept[placing.parent])
            if self._keeper is not None:
                self._keeper.inherit(member, str(placing.parent))
        if not goes_on:
            learner.queue.clear()
        version = learner.version
        self._stays[member] = _Stay(
            placing=placing,
            version=version,
            sampled_from=last.sampled_from if goes_on and last is not None else version,
            env_steps=learner.env_steps,
            results=deque(maxlen=self.plan.matches),
        )

    def put(self, unrolls: Unrolls) -> None:
        """Take in unrolls; those that nobody here may learn from are dropped."""
        learner = self.learners[unrolls.policy]
        stay = self._stays.get(unrolls.policy)
        if stay is None:
            # Whoever was here may go on: a batch is kept ready.
            last = self._last.get(unrolls.policy)
            waiting = learner.queue.count < learner.algorithm.unrolls_per_batch
            since = last.sampled_from if last is not None and not self.plan.apart and waiting else None
        else:
            since = stay.sampled_from if stay.final_version is None else None
        fresh = unrolls.version.min(1) >= since if since is not None else np.zeros(len(unrolls.reward), bool)
        self.dropped_env_steps += int((~fresh).sum()) * unrolls.reward.shape[1]
        if fresh.all():
            learner.put(unrolls)
        elif fresh.any():
            learner.put(select(unrolls, np.flatnonzero(fresh)))

    def takes(self, member: str, version: np.ndarray) -> bool:
        """Whether whoever is on a member learns from steps of these versions, any shape."""
        stay = self._stays.get(member)
        return stay is not None and stay.final_version is None and bool(version.min() >= stay.sampled_from)

    def ready(self, member: str) -> bool:
        """Whether a batch is there for an individual that still learns."""
        stay = self._stays.get(member)
        return stay is not None and stay.final_version is None and self.learners[member].ready()

    def learned(self, member: str) -> None:
        """An update was made: see whether it was the last one."""
        stay, learner = self._stays[member], self.learners[member]
        if learner.env_steps - stay.env_steps < self.plan.env_steps:
            return
        if stay.final_version is None:
            stay.final_version = learner.version
            if self.plan.apart:
                learner.queue.clear()
                stay.results.clear()
                stay.matches = 0
        self._end_if_judged(member)

    def add_results(self, results: Sequence[MatchResult]) -> None:
        """Matches that ended; those count that were played by one individual from their first step on."""
        if self._keeper is not None:
            self._keeper.add_results(results)
        for result in results:
            stay = self._stays.get(result.policy)
            if stay is None:
                continue
            since = stay.final_version if self.plan.apart else stay.version
            if since is None or result.first_version < since:
                continue
            stay.results.append(result.result)
            stay.matches += 1
            if stay.final_version is not None:
                self._end_if_judged(result.policy)

    def keep(self, individuals: Collection[int]) -> None:
        """Forget what others became than these, and than those who are done and not yet asked for."""
        wanted = {*individuals, *(one.individual for one in self.finished)}
        for number in self._kept.keys() - wanted:
            del self._kept[number]
            if self._keeper is not None:
                self._keeper.forget(str(number))

    def kept(self, individual: int) -> dict[str, Any]:
        """What an individual became: the state of its learner. KeyError where it is not kept."""
        return self._kept[individual]

    def free(self) -> list[str]:
        """Members that nobody is placed on."""
        return [name for name in self.learners if name not in self._stays]

    def fail(self, member: str, error: str) -> None:
        """End the time of whoever is on a member: it came to nothing, and its member is free."""
        stay, learner = self._stays.pop(member, None), self.learners[member]
        if stay is None:
            return
        self._last.pop(member, None)
        learner.queue.clear()
        self.finished.append(
            Trained(
                individual=stay.placing.individual,
                member=member,
                env_steps=learner.env_steps - stay.env_steps,
                matches=stay.matches,
                results={},
                error=error,
            )
        )

    def take_finished(self) -> list[Trained]:
        """Those who are done since the last call."""
        finished, self.finished = self.finished, []
        return finished

    # -------------------------------------------------------------- to go on from

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs: whoever is kept. Individuals that are being trained begin again."""
        return {
            "kept": [[number, state] for number, state in self._kept.items()],
            "env_steps": {name: learner.env_steps for name, learner in self.learners.items()},
            **({} if self._keeper is None else {"selfplay": self._keeper.state()}),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`; all members are free."""
        self._stays.clear()
        self._last.clear()
        self._kept = {int(number): kept for number, kept in state["kept"]}
        for name, env_steps in state.get("env_steps", {}).items():  # by which snapshots are due
            self.learners[name].env_steps = int(env_steps)
        if self._keeper is not None:
            self._keeper.restore(state["selfplay"])

    # -------------------------------------------------------------- parts

    def _end_if_judged(self, member: str) -> None:
        stay, learner = self._stays[member], self.learners[member]
        if stay.matches < self.plan.matches:
            return
        self._last[member] = self._stays.pop(member)
        number = stay.placing.individual
        self._kept[number] = learner.state()
        results = _means(stay.results)
        if self._keeper is not None:
            self._keeper.remember(str(number), member)
            results[RATING] = self._keeper.rating(member)
        self.finished.append(
            Trained(
                individual=number,
                member=member,
                env_steps=learner.env_steps - stay.env_steps,
                matches=stay.matches,
                results=results,
            )
        )


def _means(results: Collection[dict[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for result in results for name in result)
    return {name: float(np.mean([r[name] for r in results if name in r])) for name in names}
