"""Candidates to members: the pool through which the workflow of evolution trains agents."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lamarckian_cli.errors import LamarckError
from lamarckian_cli.evolution.strategy import Candidates
from lamarckian_cli.launch.evolution.evaluation import Done, Failure, evaluation_seeds, failure_of
from lamarckian_cli.launch.evolution.pool import PoolReport, done, one_by_one
from lamarckian_cli.launch.population.evaluator import Training
from lamarckian_cli.launch.population.members import Trained
from lamarckian_cli.launch.population.trainer import Trainer
from lamarckian_cli.problems.evaluator import Results

NOBODY = -1


@dataclass(slots=True)
class _Place:
    """A candidate on its member."""

    candidate: Candidates
    began: float
    overdue: bool = False


class TrainingPool:
    """A Pool whose workers are the members of a population.

    A candidate whose first parent was the last on a member that is free goes on there: nothing is
    copied, and no sample is lost.
    """

    keeps = True

    def __init__(
        self,
        training: Training,
        trainer: Trainer,
        members: tuple[str, ...],
        seed: int,
        deadline_s: float | None = None,
    ) -> None:
        """`deadline_s` that an individual may take; None: as long as it likes."""
        self._training, self._trainer, self._seed, self._deadline_s = training, trainer, seed, deadline_s
        self._last: dict[str, int] = dict.fromkeys(members, NOBODY)  # free members: who was there
        self._number = {member: i for i, member in enumerate(members)}
        self._places: dict[str, _Place] = {}
        self._waiting: deque[Candidates] = deque()
        self._failed: list[Done] = []
        self._began = time.monotonic()
        self._busy_s = 0.0

    @property
    def notes(self) -> list[str]:
        return self._trainer.notes

    def free(self) -> int | None:
        return max(0, len(self._last) - len(self._waiting))

    def put(self, candidates: Candidates) -> None:
        self._waiting.extend(one_by_one(candidates))

    def take(self, timeout_s: float) -> list[Done]:
        """Place those who wait, and train; who is done."""
        self._place_all()
        failed, self._failed = self._failed, []
        if failed:
            return failed
        self._end_overdue()
        return [self._done(trained) for trained in self._trainer.advance(timeout_s)]

    def out(self) -> list[Candidates]:
        return [place.candidate for place in self._places.values()] + list(self._waiting)

    def keep(self, individuals: Sequence[int]) -> None:
        """Whose weights may still be asked for; the parents of those who are out are among them."""
        parents = [int(p) for c in self.out() for p in c.parents.ravel() if p != NOBODY]
        self._trainer.keep([*individuals, *parents])

    def kept(self, individual: int) -> dict[str, Any]:
        """The learner's state that an individual came to."""
        return self._trainer.kept(individual)

    def state(self) -> dict[str, Any]:
        return {"trainer": self._trainer.state()}

    def metrics(self) -> dict[str, float]:
        """Of the learning: env steps in all, those that came too late, and the actors."""
        progress = self._trainer.report()
        return {
            "learned_env_steps": progress.env_steps,
            "dropped_env_steps": progress.dropped_env_steps,
            "actors": progress.actors,
        }

    def report(self) -> PoolReport:
        now = time.monotonic()
        busy = self._busy_s + sum(now - place.began for place in self._places.values())
        whole = len(self._number) * (now - self._began)
        return PoolReport(
            workers=len(self._number), busy=len(self._places), used=busy / whole if whole > 0 else None
        )

    def close(self) -> None:
        self._trainer.close()

    # -------------------------------------------------------------- parts

    def _place_all(self) -> None:
        while self._waiting and self._last:
            candidate = self._waiting.popleft()
            parent = int(candidate.parents[0, 0])
            member = next((m for m, last in self._last.items() if last == parent != NOBODY), None)
            if member is None:
                member = self._spare()
            del self._last[member]
            [seed] = evaluation_seeds(self._seed, candidate.ids)
            try:
                placing = self._training.placing(
                    candidate.genomes,
                    0,
                    individual=int(candidate.ids[0]),
                    parent=None if parent == NOBODY else parent,
                    seed=int(seed),
                )
                self._trainer.place(member, placing)
            except LamarckError as error:  # hyperparameters that cannot be
                self._last[member] = NOBODY
                self._failed.append(
                    done(candidate, failure_of(error), seconds=0.0, worker=self._number[member])
                )
                continue
            self._places[member] = _Place(candidate, time.monotonic())

    def _end_overdue(self) -> None:
        if self._deadline_s is None:
            return
        for member, place in self._places.items():
            if not place.overdue and time.monotonic() - place.began > self._deadline_s:
                place.overdue = True
                self._trainer.give_up(member, f"it took longer than evo.deadline_s={self._deadline_s:g}")

    def _spare(self) -> str:
        """A free member whose last individual nobody who waits goes on from; any, where there is none."""
        going_on = {int(c.parents[0, 0]) for c in self._waiting}
        return next((m for m, last in self._last.items() if last not in going_on), next(iter(self._last)))

    def _done(self, trained: Trained) -> Done:
        place = self._places.pop(trained.member)
        self._last[trained.member] = NOBODY if trained.error else trained.individual
        seconds = time.monotonic() - place.began
        self._busy_s += seconds
        results: Results | Failure
        try:
            results = self._training.results(trained)
        except LamarckError as error:
            results = failure_of(error)
        return done(place.candidate, results, seconds=seconds, worker=self._number[trained.member])
