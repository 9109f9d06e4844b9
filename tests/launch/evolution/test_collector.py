"""The workflow: who is asked for when, what the strategy is told, what is counted, and going on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from evolving import Bowl, Walk, WalkSettings

from lamarckian_cli.errors import RunError
from lamarckian_cli.evolution.strategy import Task
from lamarckian_cli.launch import checkpoint
from lamarckian_cli.launch.evolution.collector import Collector
from lamarckian_cli.launch.evolution.evaluation import evaluation_seeds
from lamarckian_cli.launch.evolution.lineage import Lineage, read_lineage
from lamarckian_cli.launch.evolution.pool import InprocPool, Pool, SimulatedPool
from lamarckian_cli.launch.evolution.settings import Workflow


def make(
    problem: Bowl | None = None,
    *,
    population: int = 4,
    staleness: int | None = 0,
    workers: int | None = None,
    whole: bool = False,
    lineage: Lineage | None = None,
    durations=lambda _: 1.0,
    **keys,
) -> Collector:
    problem = problem or Bowl()
    description = problem.describe()
    settings = WalkSettings(population=population, max_staleness=staleness)
    task = Task(coding=description.coding, objectives=len(description.objectives))
    strategy = settings.make(task, problem.initialize, np.random.default_rng(1))
    pool: Pool = InprocPool(problem, description, 0)
    if workers is not None:
        pool = SimulatedPool(problem, description, 0, workers=workers, duration=durations)
    workflow = Workflow(**{"evaluations": 40, **keys})
    return Collector(strategy, description, pool, workflow, whole=whole, lineage=lineage)


def run(collector: Collector, evaluations: int | None = None) -> Collector:
    while not collector.over() and (evaluations is None or collector.evaluations < evaluations):
        collector.step(0)
    return collector


def strategy_of(collector: Collector) -> Walk:
    assert isinstance(collector.strategy, Walk)
    return collector.strategy


def same_people(one: Collector, other: Collector) -> bool:
    a, b = one.individuals(), other.individuals()
    return np.array_equal(a.ids, b.ids) and np.array_equal(a.genomes["x"], b.genomes["x"])


def test_in_process_a_generation_is_one_batch() -> None:
    problem = Bowl()
    collector = run(make(problem, population=4))
    assert problem.batches == [4] * 10
    assert strategy_of(collector).generation == 10
    assert collector.over() == "evo.evaluations=40"


def test_the_budget_is_never_overrun() -> None:
    for workers in (None, 3):
        collector = run(make(population=4, evaluations=10, workers=workers))
        assert collector.evaluations == 10
        assert len(collector.pool.out()) == 0
        assert strategy_of(collector).heard == list(range(10))


def test_workers_are_kept_full_across_generations() -> None:
    durations = np.random.default_rng(0).lognormal(0, 1, 500)
    times = {}
    for staleness in (0, None):
        collector = make(
            workers=4, staleness=staleness, evaluations=400, durations=lambda i: float(durations[i])
        )
        run(collector)
        assert isinstance(collector.pool, SimulatedPool)
        report = collector.pool.report()
        times[staleness] = collector.pool.clock_s
        assert sorted(strategy_of(collector).heard) == list(range(400))
        if staleness is None:
            assert report.used is not None
            assert report.used > 0.97
            assert collector.staleness_max >= 1
        else:
            assert collector.staleness_max == 0
    assert times[0] > 1.5 * times[None]


def test_no_more_are_out_than_the_key_says() -> None:
    collector = make(workers=8, in_flight=3, staleness=None)
    while not collector.over():
        collector.step(0)
        assert sum(len(c) for c in collector.pool.out()) <= 3


def test_the_order_of_arrival_is_nothing_to_an_exact_strategy() -> None:
    plain = run(make(whole=True))
    durations = np.random.default_rng(0).lognormal(0, 1, 100)
    for workers in (1, 3):
        other = run(make(whole=True, workers=workers, durations=lambda i: float(durations[i])))
        assert same_people(plain, other)


def test_what_is_to_be_maximised_is_turned_round_and_back() -> None:
    low, high = run(make(Bowl())), run(make(Bowl(sense="max")))
    assert same_people(low, high)
    assert low.best is not None
    assert high.best is not None
    # What strategies see is to be minimised, whatever the sense.
    assert high.best.objectives[0, 0] == low.best.objectives[0, 0] >= 0


def test_a_target_ends_it_in_the_sense_of_the_objective() -> None:
    for sense, target in (("min", 0.3), ("max", -0.3)):
        collector = run(make(Bowl(sense=sense), evaluations=None, target=target))
        assert collector.over() == f"evo.target={target:g}"
        assert collector.best is not None
        assert collector.best.objectives[0, 0] <= 0.3


def test_violation_is_the_sum_of_what_is_exceeded_and_comes_before_the_objective() -> None:
    problem = Bowl(limit=0.2)
    collector = run(make(problem, evaluations=200))
    people = collector.individuals()
    expected = np.maximum(0, np.abs(people.genomes["x"]).sum(axis=1) - 0.2)
    np.testing.assert_allclose(people.violation, expected)
    assert collector.best is not None
    # The optimum without the constraint is at (0.5, 0.5).
    assert collector.best.violation[0] == 0
    assert collector.best.objectives[0, 0] > 0.3


def test_failures_are_told_as_infinitely_bad_and_only_the_broken_ones_fail() -> None:
    collector = make(Bowl(raises=0.3), evaluations=80)
    run(collector)
    assert 5 < collector.failed < 60
    assert collector.first_failure is not None
    assert "ValueError: the bowl is broken" in collector.first_failure.error
    assert "evolving.py, line" in collector.first_failure.error
    people = collector.individuals()
    assert np.isfinite(people.objectives).all()


def test_nan_fails_its_own_genome_alone() -> None:
    problem = Bowl(nans=0.3)
    collector = run(make(problem, evaluations=80))
    assert problem.batches == [4] * 20  # nothing was evaluated twice
    assert collector.first_failure is not None
    assert collector.first_failure.error == "objective 'f1' is nan"
    assert 5 < collector.failed < 60


def test_it_stops_where_everything_fails_and_shows_the_first_error() -> None:
    collector = make(Bowl(raises=1.0), evaluations=10_000)
    with pytest.raises(RunError, match=r"the last 10 evaluations failed.*ValueError: the bowl is broken"):
        run(collector)
    with pytest.raises(RunError, match="the last 3 evaluations failed"):
        run(make(Bowl(raises=1.0), evaluations=3))


@pytest.mark.parametrize("workers", [None, 1, 3])
def test_a_restored_workflow_goes_on_as_if_it_had_not_stopped(workers: int | None, tmp_path: Path) -> None:
    whole = run(make(workers=workers, whole=True))
    first = run(make(workers=workers, whole=True), evaluations=17)
    checkpoint.save(tmp_path / "1.ckpt", first.state())
    second = make(workers=workers, whole=True)
    second.restore(checkpoint.load(tmp_path / "1.ckpt"))
    run(second)
    assert same_people(whole, second)
    assert second.evaluations == whole.evaluations
    assert strategy_of(second).heard == strategy_of(whole).heard
    assert second.history.evaluations == whole.history.evaluations


@pytest.mark.parametrize("workers", [None, 3])
def test_a_larger_budget_later_is_as_good_as_from_the_start(workers: int | None) -> None:
    whole = run(make(workers=workers, staleness=None, in_flight=workers))
    first = run(make(workers=workers, staleness=None, in_flight=workers, evaluations=17))
    second = make(workers=workers, staleness=None, in_flight=workers)
    second.restore(first.state())
    run(second)
    assert same_people(whole, second)
    assert strategy_of(second).heard == strategy_of(whole).heard


def test_those_in_flight_are_evaluated_again_under_the_same_ids(tmp_path: Path) -> None:
    first = run(make(workers=3, staleness=None), evaluations=10)
    out = [int(c.ids[0]) for c in first.pool.out()]
    assert len(out) == 2
    second = make(workers=3, staleness=None)
    second.restore(first.state())
    assert [int(c.ids[0]) for c in second.pool.out()] == out
    run(second)
    assert sorted(strategy_of(second).heard) == list(range(40))


def test_lineage_has_a_line_for_everyone(tmp_path: Path) -> None:
    lineage = Lineage(tmp_path / "lineage.jsonl")
    collector = run(make(Bowl(raises=0.3, limit=0.5), lineage=lineage, workers=3, staleness=None))
    lineage.close()
    rows = list(read_lineage(tmp_path))
    assert [row["id"] for row in rows] == strategy_of(collector).heard
    assert sum(row["error"] is not None for row in rows) == collector.failed
    for row in rows:
        assert set(row) == {
            *("id", "parents", "born", "generation", "objectives", "constraints", "cost"),
            *("worker", "seconds", "attempts", "error"),
        }
        assert row["parents"] == [] if row["born"] == 0 else len(row["parents"]) == 1
        assert row["generation"] >= row["born"]
        assert (row["objectives"] is None) == (row["error"] is not None)
    stale = [row["generation"] - row["born"] for row in rows]
    assert collector.staleness_mean == pytest.approx(np.mean(stale))
    assert collector.staleness_max == max(stale)


def test_lineage_is_cut_where_its_checkpoint_was(tmp_path: Path) -> None:
    lineage = Lineage(tmp_path / "lineage.jsonl")
    collector = run(make(lineage=lineage), evaluations=8)
    size = lineage.flush(durable=True)
    before = (tmp_path / "lineage.jsonl").read_text()
    run(collector)
    lineage.close()
    again = Lineage(tmp_path / "lineage.jsonl")
    again.rewind(size)
    assert (tmp_path / "lineage.jsonl").read_text() == before
    assert len(before.splitlines()) == 8
    with pytest.raises(RunError, match="bytes"):
        again.rewind(size + 1)


def test_infinite_objectives_are_null_in_json(tmp_path: Path) -> None:
    class Cliff(Bowl):
        def evaluate(self, genomes, seeds):
            results = super().evaluate(genomes, seeds)
            results.objectives[::2] = np.inf
            return results

    lineage = Lineage(tmp_path / "lineage.jsonl")
    run(make(Cliff(), lineage=lineage))
    lineage.close()
    lines = (tmp_path / "lineage.jsonl").read_text().splitlines()
    values = [json.loads(line, parse_constant=pytest.fail)["objectives"] for line in lines]
    assert values[0] == [None]
    assert isinstance(values[1][0], float)


def test_seeds_follow_from_job_and_id_alone() -> None:
    ids = np.arange(10_000)
    seeds = evaluation_seeds(7, ids)
    assert seeds.dtype == np.int64
    assert (seeds >= 0).all()
    assert len(set(seeds.tolist())) == len(ids)
    assert np.array_equal(evaluation_seeds(7, ids[::-1]), seeds[::-1])
    assert not (evaluation_seeds(8, ids) == seeds).any()
    # Every bit differs between neighbours as often as not: 0.5, give or take 6 standard errors.
    bits = ((seeds[1:, None] ^ seeds[:-1, None]) >> np.arange(63)) & 1
    np.testing.assert_allclose(bits.mean(axis=0), 0.5, atol=6 * 0.5 / np.sqrt(len(bits)))
