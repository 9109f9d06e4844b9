"""Candidates find their members: who goes on stays, who is overdue or impossible fails alone."""

import numpy as np
import pytest

from lamarckian_cli.evolution.strategy import Candidates
from lamarckian_cli.launch.population.evaluator import Training
from lamarckian_cli.launch.population.members import Trained
from lamarckian_cli.launch.population.pool import TrainingPool
from lamarckian_cli.launch.population.search import Range
from lamarckian_cli.launch.population.settings import TrainingSettings
from lamarckian_cli.launch.wiring import job_of

NAMES = ("member0", "member1")


class Recording:
    """A Trainer that only writes down what it is told; `end` says who is done."""

    def __init__(self):
        self.notes, self.placed, self.kept_ids, self.done, self.given_up = [], {}, [], [], []

    def place(self, member, placing):
        assert member not in self.placed
        self.placed[member] = placing

    def give_up(self, member, error):
        self.given_up.append(member)
        self.end(member, error=error)

    def end(self, member, error=""):
        placing = self.placed.pop(member)
        results = {} if error else {"win": 0.5, "return": 1.0}
        self.done.append(
            Trained(
                individual=placing.individual,
                member=member,
                env_steps=10,
                matches=2,
                results=results,
                error=error,
            )
        )

    def advance(self, timeout_s):
        done, self.done = self.done, []
        return done

    def keep(self, individuals):
        self.kept_ids = sorted(set(individuals))

    def close(self):
        pass


@pytest.fixture(scope="module")
def training():
    settings = TrainingSettings(search={"algo": {"lr": Range(low=1e-4, high=1e-2, scale="log")}})
    return Training(settings, job_of(["env=pong", "cluster=inproc"]))


def candidates(*ids_and_parents, lr=1e-3):
    ids = np.array([i for i, _ in ids_and_parents])
    parents = np.array([[p, -1] for _, p in ids_and_parents])
    genomes = {"algo.lr": np.full((len(ids), 1), lr)}
    return Candidates(ids=ids, genomes=genomes, parents=parents, born=np.zeros(len(ids), np.int64))


def made(training, deadline_s=None):
    trainer = Recording()
    return TrainingPool(training, trainer, NAMES, seed=0, deadline_s=deadline_s), trainer


def test_who_goes_on_finds_its_own_member_even_when_others_are_first(training):
    pool, trainer = made(training)
    pool.put(candidates((0, -1), (1, -1)))
    assert pool.take(0.0) == []
    first = {placing.individual: member for member, placing in trainer.placed.items()}
    for member in NAMES:
        trainer.end(member)
    assert len(pool.take(0.0)) == 2
    pool.put(candidates((2, 1), (3, 0)))
    pool.take(0.0)
    assert {placing.individual: m for m, placing in trainer.placed.items()} == {2: first[1], 3: first[0]}


def test_a_child_of_somebody_else_leaves_the_member_of_one_who_goes_on_alone(training):
    pool, trainer = made(training)
    pool.put(candidates((0, -1), (1, -1)))
    pool.take(0.0)
    where = {placing.individual: member for member, placing in trainer.placed.items()}
    for member in NAMES:
        trainer.end(member)
    pool.take(0.0)
    pool.put(candidates((2, 1), (3, 1)))  # two children of 1, of which the first goes on where 1 was
    pool.take(0.0)
    assert trainer.placed[where[1]].individual == 2
    assert trainer.placed[where[0]].parent == 1


def test_more_candidates_than_members_wait_and_are_out(training):
    pool, trainer = made(training)
    pool.put(candidates((0, -1), (1, -1), (2, -1)))
    pool.take(0.0)
    assert pool.free() == 0
    assert sorted(int(c.ids[0]) for c in pool.out()) == [0, 1, 2]
    trainer.end("member0")
    [done] = pool.take(0.0)
    assert done.results.objectives.tolist() == [[0.5]]
    assert done.results.cost.tolist() == [10.0]
    pool.take(0.0)
    assert {p.individual for p in trainer.placed.values()} == {1, 2}


def test_hyperparameters_that_cannot_be_fail_alone_and_leave_the_member_free(training):
    pool, _ = made(training)
    pool.put(candidates((0, -1), lr=-1.0))
    [done] = pool.take(0.0)
    assert "algo.lr is -1.0" in done.failure.error
    assert pool.free() == 2


def test_who_fails_is_told_of_with_its_member(training):
    pool, trainer = made(training)
    pool.put(candidates((0, -1), (1, -1)))
    pool.take(0.0)
    member = next(m for m, placing in trainer.placed.items() if placing.individual == 1)
    trainer.end(member, error="its loss is no number")
    [done] = pool.take(0.0)
    assert done.failure.error == "its loss is no number"
    assert NAMES[done.worker] == member == "member1"
    pool.put(candidates((2, -1), lr=-1.0))
    [done] = pool.take(0.0)
    assert NAMES[done.worker] == "member1"


def test_an_overdue_individual_is_given_up_once(training):
    pool, trainer = made(training, deadline_s=1e-9)
    pool.put(candidates((0, -1)))
    [done] = pool.take(0.0)
    assert "longer than evo.deadline_s" in done.failure.error
    assert pool.take(0.0) == []
    assert len(trainer.given_up) == 1


def test_parents_of_those_who_are_out_are_kept(training):
    pool, trainer = made(training)
    pool.put(candidates((7, 3), (8, 4), (9, 5)))
    pool.keep([6])
    assert trainer.kept_ids == [3, 4, 5, 6]
