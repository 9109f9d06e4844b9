"""A population that meets the pool of its own past: ratings go with weights, and with a restart."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from lamarckian_cli.errors import ConfigError
from lamarckian_cli.launch.pool_table import read_pool
from lamarckian_cli.launch.population.evaluator import Training
from lamarckian_cli.launch.population.inproc import InprocTrainer
from lamarckian_cli.launch.population.members import Placing
from lamarckian_cli.launch.population.search import Range
from lamarckian_cli.launch.population.settings import TrainingSettings
from lamarckian_cli.launch.population.trainer import Plan
from lamarckian_cli.launch.wiring import job_of

NAMES = ("member0", "member1")
BATCH = 256
SMALL = (
    "env=pong",
    "env.max_steps=40",
    "selfplay=pfsp",
    "selfplay.add_every_env_steps=512",
    "cluster.matches=8",
    f"algo.batch_size={BATCH}",
    "algo.unroll=16",
    "model.policy=[16]",
    "model.critic=[8]",
)
SEARCH = {"algo": {"lr": Range(low=1e-4, high=1e-2, scale="log")}}


def job(*words):
    return dataclasses.replace(job_of([*SMALL, "tuned=none", "cluster=inproc", *words]), members=NAMES)


@pytest.fixture
def trainer():
    made = InprocTrainer(job(), Plan(env_steps=4 * BATCH, matches=2))
    yield made
    made.close()


def placing(trainer, number, parent=None):
    return Placing(individual=number, algorithm=trainer.job.algo, seed=number, parent=parent)


def train(trainer, *individuals):
    done = {}
    while set(done) != set(individuals):
        done.update({one.individual: one for one in trainer.advance(5.0)})
    return done


def rating(trainer, policy):
    one = trainer._keeper.league.ratings[policy]
    return one.mean, one.deviation


def test_a_child_takes_over_the_rating_with_the_weights(trainer):
    for number, member in enumerate(NAMES):
        trainer.place(member, placing(trainer, number))
    done = train(trainer, 0, 1)
    stood = {number: rating(trainer, str(number)) for number in (0, 1)}
    assert stood[0] != stood[1]
    assert {number: one.results["rating"] for number, one in done.items()} == {
        number: mean for number, (mean, _) in stood.items()
    }
    trainer.place("member1", placing(trainer, 2, parent=0))
    assert rating(trainer, "member1") == stood[0]
    trainer.place("member0", placing(trainer, 3))  # first weights know nothing of who was here
    fresh = InprocTrainer(job(), Plan(env_steps=BATCH, matches=1))
    assert rating(trainer, "member0") == rating(fresh, "member0")
    fresh.close()
    train(trainer, 2, 3)
    assert rating(trainer, "0") == stood[0], "what the parent was stays"
    assert rating(trainer, "member1") != stood[0]


def test_who_goes_on_with_its_own_weights_keeps_its_rating(trainer):
    trainer.place("member0", placing(trainer, 0))
    train(trainer, 0)
    before = rating(trainer, "member0")
    trainer.place("member0", placing(trainer, 1, parent=0))
    assert rating(trainer, "member0") == before


def test_who_is_not_kept_has_no_rating_any_more(trainer):
    trainer.place("member0", placing(trainer, 0))
    trainer.place("member1", placing(trainer, 1))
    train(trainer, 0, 1)
    trainer.keep([1])
    ratings = trainer._keeper.league.ratings
    assert "0" not in ratings
    assert "1" in ratings


def objectives(word, asked=None):
    settings = TrainingSettings(search=SEARCH, env_steps=32, matches=1, objectives=asked)
    evaluator = Training(settings, job_of(["env=pong", "cluster=inproc", word]))
    return [(o.name, o.sense) for o in evaluator.describe().objectives]


def test_the_rating_is_the_objective_unless_another_is_asked_for():
    assert objectives("selfplay=pfsp") == [("rating", "max")]
    assert objectives("selfplay=pfsp", ("win", "rating")) == [("win", "max"), ("rating", "max")]
    assert objectives("selfplay=none") == [("win", "max")]
    with pytest.raises(ConfigError, match=r"problem\.objectives has 'rating'"):
        objectives("selfplay=none", ("rating",))


EVOLVE = (
    "evolve",
    "evo=pbt",
    "evo.population=2",
    *SMALL,
    "cluster=inproc",
    "problem.env_steps=512",
    "problem.matches=1",
    "run.dir=run",
    "--json",
)


def lamarck(*words, cwd, status=0):
    command = [sys.executable, "-m", "lamarckian_cli.cli", *words]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == status, done.stderr
    return done


def test_the_pool_of_an_evolution_has_every_member_and_goes_on_after_a_restart(tmp_path):
    lamarck(*EVOLVE, "evo.evaluations=8", cwd=tmp_path)
    players = read_pool(tmp_path / "run")["players"]
    rated = {player["name"]: player for player in players if player["env_steps"] is not None}
    assert [player["name"] for player in players[:2]] == list(NAMES)
    assert {name.partition("#")[0] for name in rated} == set(NAMES)
    *_, row = (tmp_path / "run" / "lineage.jsonl").read_text().splitlines()
    assert np.isfinite(json.loads(row)["objectives"][0])
    lamarck("evolve", "resume=run", "evo.evaluations=12", "--json", cwd=tmp_path)
    after = {player["name"]: player for player in read_pool(tmp_path / "run")["players"]}
    assert rated.keys() <= after.keys()
    for member in NAMES:  # the schedule goes on where it was
        taken = [p["env_steps"] for name, p in after.items() if name.startswith(f"{member}#")]
        before = [p["env_steps"] for name, p in rated.items() if name.startswith(f"{member}#")]
        assert taken == sorted(taken)
        assert len(taken) > len(before)
    assert {name: after[name]["digest"] for name in rated} == {n: p["digest"] for n, p in rated.items()}
    assert all(after[name]["matches"] >= player["matches"] for name, player in rated.items())
    assert sum(after[name]["matches"] for name in rated) > sum(p["matches"] for p in rated.values()) > 0
    lamarck("eval", "run/best", "--episodes", "1", "--json", cwd=tmp_path)


def test_a_pool_with_fewer_places_than_members_is_refused_before_anything_starts(tmp_path):
    done = lamarck(*EVOLVE, "evo.population=3", "selfplay.capacity=2", cwd=tmp_path, status=2)
    told = " ".join(done.stderr.split())
    assert "selfplay.capacity is 2; it must be at least the number of members, which is 3" in told
    assert "Traceback" not in told
    assert not (tmp_path / "run").exists()
