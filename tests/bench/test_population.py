"""`lamarck bench population`: the document that scripts rely on, its arithmetic, whole rounds, bad input."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Any

import pytest

from lamarckian_cli.bench import population as bench
from lamarckian_cli.bench import population_rate
from lamarckian_cli.bench.population import Plan, measure_population
from lamarckian_cli.bench.population_rate import Count, measure
from lamarckian_cli.bench.population_subjects import dealt_matches, evolution_of
from lamarckian_cli.bench.population_tune import OURS, check_peer, comparison
from lamarckian_cli.bench.population_tune_program import Watch
from lamarckian_cli.errors import ConfigError, MissingPackage, RunError, pip_install

BATCH = 64
SMALL = ("env=cartpole", f"algo.batch_size={BATCH}", "algo.unroll=16", "model.policy=[8]", "model.critic=[]")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Next to no warm-up."""
    monkeypatch.setattr(measure, "__kwdefaults__", {**measure.__kwdefaults__, "warm_up_s": 0.1})


# ---------------------------------------------------------------- the document


def plan(**values: Any) -> Plan:
    given = {"members": (2,), "matches": 4, "seconds": 1.0, "repeat": 2, "cluster": "inproc"}
    return Plan(**{**given, "overrides": SMALL, **values})


@pytest.mark.usefixtures("soon")
def test_the_document_in_process() -> None:
    told: list[float] = []
    document = measure_population(plan(), lambda _, share: told.append(share))
    json.dumps(document, allow_nan=False)
    assert list(document) == ["kind", "machine", "results"]
    assert document["kind"] == "population"
    assert document["machine"]["cores"] >= 1
    (result,) = document["results"]
    check(result)
    expected = {"population": 2, "env": "cartpole", "cluster": "inproc", "batch_size": BATCH, "actors": 1}
    assert {key: result[key] for key in expected} == expected
    assert told == sorted(told)
    assert all(0 <= share < 1 for share in told)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_document_over_ray() -> None:
    """As from the command line, in a process of its own: what Ray is started by stays in its environment."""
    words = (
        "--members",
        "2",
        "--matches",
        "4",
        "--seconds",
        "1",
        "--repeat",
        "1",
        "--cluster",
        "local",
        "--json",
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "lamarckian_cli.cli",
            "bench",
            "population",
            *words,
            *SMALL,
            "cluster.actors=1",
        ],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    check(result)
    assert (result["cluster"], result["actors"]) == ("local", 1)


def check(result: dict[str, Any]) -> None:
    """Medians, their ratio, and that the members learned as much as the rates say."""
    rates, single = result["rates"], result["single_rates"]
    assert result["env_steps_per_s"] == pytest.approx(statistics.median(rates))
    assert result["single_env_steps_per_s"] == pytest.approx(statistics.median(single))
    assert result["of_single"] == pytest.approx(statistics.median(rates) / statistics.median(single))
    assert min(*rates, *single) > 0
    learned = sum(rate * s for rate, s in zip(rates, result["seconds"], strict=True))
    assert result["learned_env_steps"] == pytest.approx(learned)
    assert result["learned_env_steps"] % BATCH == 0
    assert result["dropped_env_steps"] >= 0
    assert all(s >= 1.0 for s in result["seconds"])
    assert result["matches"] == result["single_matches"] == 4


@pytest.mark.parametrize(
    ("members", "actors", "matches", "total"),
    [
        (4, 2, 128, 256),  # two members an actor, 64 matches each
        (1, 2, 128, 256),  # both play for the one
        (2, 4, 8, 32),
        (8, 3, 128, 386),  # 3, 3 and 2 members: 43 x 3 + 43 x 3 + 64 x 2
    ],
)
def test_matches_are_those_that_are_dealt(members: int, actors: int, matches: int, total: int) -> None:
    assert dealt_matches(members, actors, matches) == total


# ---------------------------------------------------------------- rates


class Bursts:
    """A second goes by with each look. Every `every` seconds all members learn, one batch each."""

    round_env_steps = 400  # four members, batches of 100

    def __init__(self, every: int, last: int | None = None) -> None:
        self.now, self._every, self._last = 0, every, last

    def go_on(self) -> Count:
        self.now += 1
        bursts = min(self.now, self._last or self.now) // self._every
        return Count(env_steps=400 * bursts, dropped_env_steps=7 * self.now, actors=3)


@pytest.mark.parametrize("every", [5, 7, 11])
@pytest.mark.parametrize("seconds", [1.0, 10.0, 16.0])
def test_a_rate_spans_whole_bursts(every: int, seconds: float) -> None:
    """However long is measured: 400 env steps each time they come are 400 / every a second."""
    subject = Bursts(every)
    rate = measure(subject, seconds=seconds, warm_up_s=3.0, clock=lambda: float(subject.now))
    assert rate.env_steps_per_s == pytest.approx(400 / every)
    assert rate.seconds >= seconds
    assert rate.learned_env_steps == 400 * rate.seconds / every
    assert rate.dropped_env_steps == 7 * rate.seconds
    assert rate.actors == 3
    # the first round, the warm-up, and what was under way then are left out
    assert subject.now - rate.seconds >= every + 3


def test_learning_that_stands_still_is_said() -> None:
    subject = Bursts(every=5, last=10)
    with pytest.raises(RunError, match=r"no learner took in a batch for 300 s; take smaller batches"):
        measure(subject, seconds=30.0, warm_up_s=3.0, clock=lambda: float(subject.now))
    assert subject.now < 10 + 2 * population_rate.STALL_S + 30


# ---------------------------------------------------------------- beside Ray Tune


def test_the_best_of_the_peer_counts() -> None:
    rows = comparison([900.0, 1100.0, 1000.0], {1: [90.0], 2: [250.0, 150.0], 4: [80.0]}, setting="cluster=x")
    assert [(r["setting"], r["env_steps_per_s"]) for r in rows] == [
        ("cluster=x", 1000.0),
        ("1 at once", 90.0),
        ("2 at once", 200.0),
        ("4 at once", 80.0),
    ]
    assert rows[0]["of_best_peer"] == pytest.approx(5.0)
    assert {r["peer"] for r in rows[1:]} == {"ray tune, rllib ppo"}


def test_tune_is_watched_from_when_all_slots_have_reported() -> None:
    now = [0.0]
    watch = Watch(at_once=2, batch=100, seconds=10.0, clock=lambda: now[0])
    for now[0], trial in [(5, "a"), (6, "a"), (8, "b"), (9, "a"), (13, "b")]:
        assert watch(trial, {}) is False
        assert not watch.stop_all()
    now[0] = 18.5
    watch("a", {})
    assert watch.stop_all()
    assert (watch.env_steps, watch.seconds) == (300, 10.5)


@pytest.mark.usefixtures("soon")
def test_ours_is_an_evolution_with_exploit_and_explore() -> None:
    small = ("cluster=inproc", "cluster.matches=8", "problem.env_steps=128", "problem.matches=1")
    with evolution_of([*OURS, *SMALL[1:], *small]) as evolution:
        assert evolution.round_env_steps == 4 * BATCH
        assert measure(evolution, seconds=1.0).env_steps_per_s > 0


def test_a_missing_peer_is_said_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_pair", lambda *_: pytest.fail("measured"))
    monkeypatch.setattr(
        f"{check_peer.__module__}.Program.answer",
        lambda *_: {"missing": "No module named 'tree'"},
    )
    with pytest.raises(MissingPackage) as error:
        measure_population(plan(compare="tune"))
    assert "No module named 'tree'" in str(error.value)
    assert str(error.value).endswith(pip_install("'ray[rllib]'"))


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"members": ()}, "--members is ''; give at least one number"),
        ({"members": (4, 0)}, "--members is 0; each must lie in 1 to 1024"),
        ({"members": (8,)}, "--matches is 4; each of 8 members needs a match of its own"),
        ({"seconds": 0.0}, "--seconds is 0.0; it must be at least 1"),
        ({"seconds": float("nan")}, "--seconds is nan"),
        ({"repeat": 0}, "--repeat is 0"),
        ({"cluster": "auto"}, "--cluster is 'auto'; choose one of local, inproc"),
        ({"compare": "chess"}, "--compare is 'chess'; choose from tune"),
        ({"overrides": ("cluster=local",)}, "cluster is 'local'; give --cluster instead"),
        ({"overrides": ("cluster.matches=9",)}, "cluster.matches is '9'; give --matches instead"),
    ],
)
def test_a_plan_that_cannot_be_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan(**change)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("algo.batch_size=100",), "algo.batch_size is 100; it must be a multiple of algo.unroll"),
        (("selfplay=pfsp",), "selfplay.matchmaking is 'pfsp'"),
        (("env=pong", "players.seats=[a,b]"), "a population takes the place of one policy"),
    ],
)
def test_overrides_that_cannot_be_are_named_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, overrides: tuple[str, ...], words: str
) -> None:
    monkeypatch.setattr(bench, "_pair", lambda *_: pytest.fail("measured"))
    with pytest.raises(ConfigError, match=words):
        measure_population(plan(overrides=overrides))
