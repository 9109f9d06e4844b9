"""`lamarck bench ec`: the document that scripts rely on, figures that can be right, missing rivals."""

from __future__ import annotations

import heapq
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from lamarckian_cli.bench import ec as bench
from lamarckian_cli.bench.ec import Plan, measure_ec
from lamarckian_cli.bench.ec_asynchrony import BARRIER, ONE_AT_A_TIME, POPULATION, durations_s
from lamarckian_cli.bench.ec_peers import Pymoo
from lamarckian_cli.bench.ec_runs import p_of
from lamarckian_cli.cli import bench_ec
from lamarckian_cli.errors import ConfigError
from lamarckian_cli.problems.zdt import ZDT4

KEYS = ["what", "ours_ms", "rival", "rival_ms", "ratio"]
SMALL: dict[str, Any] = {
    "repeat": 1,
    "seeds": 2,
    "generations": 20,
    "simulated": 1000,
    "sizes": (200, 400),
    "objectives": (2, 3),
    "problems": ("zdt1",),
}
OVERHEAD = """
import json
from lamarckian_cli.bench.ec import Plan, measure_ec
print(json.dumps(measure_ec(Plan(what=("overhead",), repeat=1, evaluations=300))))
"""


def rows(*what: str, **values: Any) -> list[dict[str, Any]]:
    document = measure_ec(Plan(what=what, **{**SMALL, **values}))
    assert document["kind"] == "ec"
    assert document["machine"]["cores"] >= 1
    json.dumps(document, allow_nan=False)
    for row in document["results"]:
        assert list(row)[:5] == KEYS
        if row["rival_ms"] is not None:
            assert row["ratio"] == pytest.approx(row["ours_ms"] / row["rival_ms"])
    return document["results"]


def test_speed_has_both_problems_beside_pymoo() -> None:
    found = rows("speed")
    assert [(row["what"], row["rival"]) for row in found] == [
        ("nsga2 zdt1", "pymoo"),
        ("nsga2 dtlz2", "pymoo"),
    ]
    for row in found:
        assert 0.01 < row["ours_ms"] < 1000
        assert row["ratio"] < 1


def test_sorting_is_measured_at_every_size() -> None:
    found = rows("sorting")
    beside = {row["rival"] for row in found}
    assert beside >= {"moocore", "pymoo"}
    assert {row["what"] for row in found} == {f"sorting {n} x {m}" for n in (200, 400) for m in (2, 3)}
    assert len(found) == 4 * len(beside)
    assert all(row["ours_ms"] > 0 and row["rival_ms"] > 0 for row in found)


def test_every_way_of_pymoo_sorts_as_ours_does() -> None:
    points = np.random.default_rng(0).random((60, 3))
    # A point's rank is the length of the longest chain of those that dominate it.
    better = (points[:, None] <= points[None]).all(2) & (points[:, None] < points[None]).any(2)
    rank = np.zeros(60, int)
    for at in np.argsort(points.sum(axis=1)):
        rank[at] = max((rank[j] + 1 for j in np.flatnonzero(better[:, at])), default=0)
    for sort in Pymoo().sorting().values():
        fronts = sort(points)
        assert [sorted(front) for front in fronts] == [
            np.flatnonzero(rank == r).tolist() for r in range(rank.max() + 1)
        ]


def test_simulated_times_are_those_of_the_schedules() -> None:
    found = {row["rival"]: row for row in rows("asynchrony", in_flight=(8,), seeds=1)}
    durations = durations_s(SMALL["simulated"], 1)
    assert found[ONE_AT_A_TIME]["rival_ms"] == pytest.approx(1000 * sum(durations))
    assert found[ONE_AT_A_TIME]["rival_workers_busy"] == pytest.approx(1)
    barrier = 0.0
    for start in range(0, len(durations), POPULATION):  # each on whoever is free first, then all wait
        free = [barrier] * 8
        for duration in durations[start : start + POPULATION]:
            heapq.heappush(free, heapq.heappop(free) + duration)
        barrier = max(free)
    assert found[BARRIER]["rival_ms"] == pytest.approx(1000 * barrier)
    free = [0.0] * 8
    for duration in durations:
        heapq.heappush(free, heapq.heappop(free) + duration)
    for row in found.values():
        assert row["ours_ms"] == pytest.approx(1000 * max(free))
        assert row["workers_busy"] == pytest.approx(sum(durations) / (8 * max(free)))
        assert row["sooner"] == pytest.approx(1 / row["ratio"])
        assert 0 < row["staleness_mean"] < row["staleness_max"]
        assert 0 < row["igd"] < 100
        assert 0 <= row["p_worse"] <= 1


def test_durations_are_log_normal_of_mean_one() -> None:
    logarithms = np.log(durations_s(100_000, 3))
    assert logarithms.std() == pytest.approx(1, abs=0.02)
    assert logarithms.mean() == pytest.approx(-0.5, abs=0.02)  # the mean of exp(x) is then 1


def test_a_small_p_says_that_ours_is_greater() -> None:
    assert p_of([4, 5, 6], [1, 2, 3], "greater") == pytest.approx(1 / 20)  # one of the orders of 6 choose 3
    assert p_of([1, 2, 3], [4, 5, 6], "greater") == pytest.approx(1)


def test_quality_has_both_crossovers_by_name() -> None:
    found = rows("quality", problems=("zdt1",), seeds=1)
    assert [row["what"] for row in found] == ["quality zdt1 sbx", "quality zdt1 sbx_clamped"]
    for row in found:
        assert 0.004 < row["igd"] < 0.006  # of 100 points at best 0.0038 or so
        assert 0.004 < row["rival_igd"] < 0.006
        assert 0 < row["p_worse"] <= 1


def test_pymoo_evaluates_within_the_bounds_of_the_problem() -> None:
    class Watched(ZDT4):
        seen: list[np.ndarray] = []  # noqa: RUF012 - of this test alone

        def values(self, x):
            self.seen.append(x.copy())
            return super().values(x)

    Pymoo().nsga2(Watched(), population=20, generations=5, seed=1)
    x = np.concatenate(Watched.seen)
    assert x.shape[1] == 10
    assert (x[:, 0].min(), x[:, 0].max()) > (0, 0.9)
    assert x[:, 1:].min() < -4
    assert np.abs(x[:, 1:]).max() <= 5


def test_a_rival_that_is_missing_is_said_and_has_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymoo.functions", None)
    document = measure_ec(Plan(what=("speed", "sorting", "quality"), **SMALL | {"seeds": 1}))
    assert "install pymoo" in document["missing"]
    assert document["rivals"].keys() == {"moocore"}
    rivals = {row["rival"] for row in document["results"]}
    assert rivals == {"pymoo", "moocore"}
    for row in document["results"]:
        assert row["ours_ms"] > 0
        assert (row["rival_ms"] is None) == (row["ratio"] is None) == (row["rival"] == "pymoo")
        assert row.get("rival_igd") is None


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("no_children_left")
def test_overhead_is_measured_over_ray() -> None:
    # As from the command line, in a process of its own: Ray starts once in each.
    done = subprocess.run([sys.executable, "-c", OVERHEAD], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    [row] = json.loads(done.stdout)["results"]
    assert (row["what"], row["rival"], row["evaluations"]) == ("overhead", "ray calls", 300)
    assert 0.01 < row["ours_ms"] < 1000
    assert 0.01 < row["rival_ms"] < 1000


def test_the_command_prints_a_table_of_each_kind_or_one_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = []

    def measured(plan: Plan, say: Any) -> dict[str, Any]:
        plans.append(plan)
        say("nothing")
        first = dict.fromkeys(KEYS, 1.5) | {"what": "nsga2 zdt1", "rival_ms": None}
        second = dict.fromkeys(KEYS, 2.5) | {"what": "asynchrony", "igd": 0.25}
        return {"kind": "ec", "results": [first, second], "missing": "pymoo: pip install pymoo"}

    monkeypatch.setattr(bench, "measure_ec", measured)
    bench_ec.ec(what="speed, asynchrony", repeat=2, seeds=3, in_flight="4,8")
    out = capsys.readouterr().out
    assert out.count("ours, ms") == 2
    assert out.count("IGD") == 1
    assert "missing: pymoo: pip install pymoo" in out
    assert plans == [Plan(what=("speed", "asynchrony"), repeat=2, seeds=3, in_flight=(4, 8))]
    bench_ec.ec(json_output=True, what="speed", repeat=1, seeds=1, in_flight="16")
    assert json.loads(capsys.readouterr().out)["results"][0]["rival_ms"] is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"what": ("spede",)}, "--what is 'spede'; it must be of speed, sorting"),
        ({"what": ()}, "--what is ''; it must be one of"),
        ({"repeat": 0}, "--repeat is 0; it must be at least 1"),
        ({"seeds": 0}, "--seeds is 0; it must be at least 1"),
        ({"in_flight": (16, 0)}, "--in-flight is 0; each must be at least 1"),
        ({"in_flight": ()}, "--in-flight is ''; it must be at least one number"),
    ],
)
def test_what_cannot_be_measured_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Plan(**values)
