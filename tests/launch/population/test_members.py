"""Individuals on the members of a population: what they inherit, learn from, and are judged by."""

import dataclasses

import numpy as np
import pytest

from lamarckian_cli.launch.population.inproc import InprocTrainer
from lamarckian_cli.launch.population.members import Placing
from lamarckian_cli.launch.population.trainer import Plan
from lamarckian_cli.launch.wiring import job_of
from lamarckian_cli.records import MatchResult

NAMES = ("member0", "member1")
BATCH, UNROLL = 256, 16


def job(*overrides, members=NAMES):
    keys = ("env=pong", "tuned=none", "cluster=inproc", "cluster.matches=8", f"algo.batch_size={BATCH}")
    small = ("model.policy=[16]", "model.critic=[8]", f"algo.unroll={UNROLL}", "algo.precision=fp32")
    return dataclasses.replace(job_of([*keys, *small, *overrides]), members=members)


@pytest.fixture
def trainer(request):
    plan = Plan(env_steps=4 * BATCH, matches=1)
    made = InprocTrainer(job("algo.normalize_observations=true"), plan)
    yield made
    made.close()


def placing(trainer, number, **keys):
    algorithm = dataclasses.replace(trainer.job.algo, **keys.pop("algo", {}))
    return Placing(individual=number, algorithm=algorithm, seed=number, **keys)


def train(trainer, *individuals):
    """Until all of them are done."""
    done = {}
    while set(done) != set(individuals):
        done.update({one.individual: one for one in trainer.advance(5.0)})
    return done


def assert_same(one, other):
    """Two states of learners, in what is handed down."""
    np.testing.assert_array_equal(one["vector"], other["vector"])
    for part in ("adam", "observations", "returns"):
        for key, value in one[part].items():
            np.testing.assert_array_equal(value, other[part][key])


def test_a_child_takes_over_weights_optimizer_and_statistics_of_its_parent_and_learns_by_its_own_values(
    trainer,
):
    trainer.place("member0", placing(trainer, 0))
    trainer.place("member1", placing(trainer, 1))
    train(trainer, 0, 1)
    parent = trainer.kept(0)
    assert parent["adam"]["steps"] == 4
    assert parent["observations"]["count"] > 0
    trainer.place("member1", placing(trainer, 2, parent=0, algo={"lr": 0.0123, "clip": 0.07}))
    learner = trainer._members.learners["member1"]
    assert_same(learner.state(), parent)
    trainer._sample()
    while not trainer._members.ready("member1"):
        trainer._sample()
    report = learner.update()
    assert report["lr"] == 0.0123
    assert learner._optimizer.lr == 0.0123
    assert learner.algorithm.clip == 0.07


def test_what_a_parent_became_does_not_change_while_its_children_learn(trainer):
    trainer.place("member0", placing(trainer, 0))
    train(trainer, 0)
    before = {key: np.array(value) for key, value in trainer.kept(0)["adam"].items()}
    vector = trainer.kept(0)["vector"].copy()
    trainer.place("member0", placing(trainer, 1, parent=0))
    trainer.place("member1", placing(trainer, 2, parent=0))
    train(trainer, 1, 2)
    np.testing.assert_array_equal(trainer.kept(0)["vector"], vector)
    for key, value in before.items():
        np.testing.assert_array_equal(trainer.kept(0)["adam"][key], value)
    assert not np.array_equal(trainer.kept(1)["vector"], trainer.kept(2)["vector"])


def test_nobody_learns_from_what_another_individual_played(trainer):
    trainer.place("member0", placing(trainer, 0))
    train(trainer, 0)
    trainer.place("member0", placing(trainer, 1))  # a stranger to the one before it
    learner = trainer._members.learners["member0"]
    first = learner.version
    versions = []
    take = learner.queue.take

    def watched(size):
        unrolls = take(size)
        versions.append(unrolls.version.min())
        return unrolls

    learner.queue.take = watched
    train(trainer, 1)
    assert min(versions) >= first
    assert trainer.report().dropped_env_steps > 0


def test_who_goes_on_where_it_was_keeps_what_was_sampled_meanwhile(trainer):
    trainer.place("member0", placing(trainer, 0))
    train(trainer, 0)
    learner = trainer._members.learners["member0"]
    learner.queue.clear()
    while not learner.queue.count:
        trainer._sample()
    waiting, version = learner.queue.count, learner.version
    trainer.place("member0", placing(trainer, 1, parent=0, algo={"lr": 0.002}))
    assert (learner.queue.count, learner.version) == (waiting, version)
    assert learner.algorithm.lr == 0.002
    train(trainer, 1)


def result(first, last, win):
    return MatchResult(
        policy="member0",
        seat=0,
        first_version=first,
        version=last,
        env_steps=1,
        frames=1,
        result={"win": win},
    )


@pytest.mark.parametrize("apart", [False, True])
def test_only_whole_matches_of_the_individual_itself_count(apart):
    trainer = InprocTrainer(job(), Plan(env_steps=2 * BATCH, matches=3, apart=apart))
    members = trainer._members
    trainer.place("member0", placing(trainer, 0))
    learner = members.learners["member0"]
    placed = learner.version
    members.add_results([result(placed - 1, placed, 1.0)])  # begun by whoever was there before
    members.add_results([result(placed, placed, 0.0)])
    for _ in range(2):
        while not members.ready("member0"):
            trainer._sample()
            members._stays["member0"].results.clear()
            members._stays["member0"].matches = 0
        members.add_results([result(placed, placed, 0.0)] * 5)
        learner.update()
        members.learned("member0")
    final = learner.version
    if apart:
        assert members.take_finished() == []
        members.add_results([result(final - 1, final, 0.0)])  # begun before it had learned
        members.add_results([result(final, final, 1.0)] * 3)
    [done] = members.take_finished()
    assert done.results == {"win": 1.0 if apart else 0.0}
    trainer.close()


def test_a_learner_that_breaks_costs_its_own_individual_alone(trainer):
    trainer.place("member0", placing(trainer, 0, algo={"lr": 10.0, "max_grad_norm": None}))
    trainer.place("member1", placing(trainer, 1))
    learner = trainer._members.learners["member0"]
    learner.parameters.vector.fill_(np.nan)
    done = train(trainer, 0, 1)
    assert "the loss of policy 'member0' became nan" in done[0].error
    assert done[1].error == ""
    trainer.place("member0", placing(trainer, 2, parent=1))
    assert train(trainer, 2)[2].error == ""


def test_the_same_seed_gives_the_same_individuals():
    def run():
        trainer = InprocTrainer(job(), Plan(env_steps=2 * BATCH, matches=1))
        trainer.place("member0", placing(trainer, 0))
        trainer.place("member1", placing(trainer, 1))
        done = train(trainer, 0, 1)
        vectors = [trainer.kept(i)["vector"] for i in (0, 1)]
        trainer.close()
        return done, vectors

    (one, vectors), (other, others) = run(), run()
    assert one == other
    np.testing.assert_array_equal(vectors, others)
    assert not np.array_equal(vectors[0], vectors[1])


def test_fifty_children_of_one_parent_need_nothing_but_that_it_is_kept(trainer):
    trainer.place("member0", placing(trainer, 0))
    train(trainer, 0)
    parent = trainer.kept(0)
    for number in range(1, 51):
        trainer.place("member1", placing(trainer, number, parent=0))
        assert_same(trainer._members.learners["member1"].state(), parent)
        trainer._members.fail("member1", "given up")
        trainer.keep([0])
    assert len(trainer._members.take_finished()) == 50


def test_who_is_done_and_not_yet_asked_for_is_not_forgotten(trainer):
    trainer.place("member0", placing(trainer, 0))
    trainer.place("member1", placing(trainer, 1))
    while len(trainer._members.finished) < 2:
        trainer._sample()
        for name in NAMES:
            while trainer._members.ready(name):
                trainer._learn(name)
    trainer.keep([])
    assert {one.individual for one in trainer._members.take_finished()} == {0, 1}
    assert trainer.kept(0)["version"] > 0
    trainer.keep([1])
    with pytest.raises(KeyError):
        trainer.kept(0)
