"""The sweep's document, its folder, and what it refuses; its costs are given, not measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lamarckian_cli.bench import scaling
from lamarckian_cli.bench.calibration import WORKLOADS, Calibrated
from lamarckian_cli.bench.scaling import PAPER, Sweep, fitted, measure_scaling
from lamarckian_cli.bench.simulation import Costs
from lamarckian_cli.bench.simulation_network import Transport
from lamarckian_cli.errors import ConfigError
from lamarckian_cli.transport.tree import Wire

COSTS = Costs(
    step_rate=500,
    forward_rate=10_000,
    bytes_per_step=500,
    weights_bytes=1e6,
    matches=2,
    unroll=64,
    batch_size=8192,
    update_s=0.05,
)
SMALL = Sweep(workloads=("pendulum", "pendulum_paper"), cores=(10, 80))


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch) -> None:
    def calibrate(name: str, *, cores: int) -> Calibrated:
        assert name in WORKLOADS
        return Calibrated(costs=COSTS, declared=("step_rate", "update_s"), update_s_here=None)

    monkeypatch.setattr(scaling, "calibrate", calibrate)
    monkeypatch.setattr(scaling, "measure_transport", Transport)


def test_the_document_has_a_result_for_each_point(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    document = measure_scaling(SMALL, out=tmp_path / "out", progress=lambda *what: told.append(what))
    assert document["kind"] == "scaling"
    assert document["machine"]["cores"] >= 1
    points = [(r["workload"], r["layout"], r["cores"]) for r in document["results"]]
    assert points == [(w, la, c) for w in SMALL.workloads for la in SMALL.layouts for c in SMALL.cores]
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert told[-1] == ("pendulum_paper, tree, 80 cores", pytest.approx(7 / 8))


def test_the_folder_has_the_document_and_a_plot_of_each_workload(tmp_path: Path) -> None:
    document = measure_scaling(SMALL, out=tmp_path / "a" / "out")
    assert list((tmp_path / "a").iterdir()) == [tmp_path / "a" / "out"]
    files = {path.name for path in (tmp_path / "a" / "out").iterdir()}
    assert files == {"scaling.json", "pendulum.png", "pendulum_paper.png"}
    assert json.loads((tmp_path / "a" / "out" / "scaling.json").read_text())["results"] == document["results"]
    assert (tmp_path / "a" / "out" / "pendulum.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_fitted_meets_the_paper_and_is_named(tmp_path: Path) -> None:
    document = measure_scaling(SMALL, out=tmp_path / "out")
    (met,) = (r for r in document["results"] if r["fitted"] and r["layout"] == "tree")
    assert met["env_steps_per_s"] == pytest.approx(met["paper_env_steps_per_s"], rel=0.01)
    inputs = document["inputs"]["workloads"]
    assert inputs["pendulum_paper"]["fitted"] == ["step_rate"]
    assert inputs["pendulum_paper"]["declared"] == ["update_s"]
    assert inputs["pendulum"]["declared"] == ["step_rate", "update_s"]


def test_a_fit_finds_the_rate_that_gives_the_target() -> None:
    def run(costs: Costs) -> float:
        return 100 / (1 / costs.step_rate + 0.01)

    assert run(fitted(COSTS, 2000, 100, run)) == pytest.approx(2000, rel=0.01)


def test_an_update_time_of_ones_own_goes_everywhere(tmp_path: Path) -> None:
    sweep = Sweep(workloads=("football",), cores=(10,), update_s=0.5)
    document = measure_scaling(sweep, out=tmp_path / "out")
    assert document["inputs"]["workloads"]["football"]["costs"]["update_s"] == 0.5


def test_the_papers_figures_belong_to_workloads_that_are_there() -> None:
    assert all(paper.of in WORKLOADS for paper in PAPER.values())


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--out is .*; it is there already"):
        measure_scaling(SMALL, out=tmp_path)


def test_nothing_is_left_where_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"--out is .*; it cannot be written"):
        measure_scaling(Sweep(workloads=("football",), cores=(10,)), out=tmp_path / "file" / "out")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"workloads": ("chess",)}, "--workload is 'chess'; choose from pendulum"),
        ({"workloads": ()}, "--workload is ''; name at least one"),
        ({"layouts": ("star",)}, "--layout is 'star'; choose from flat, tree"),
        ({"cores": (-5,)}, "--cores is -5; each must lie in 1 to"),
        ({"cores": ()}, "--cores is ''; give at least one number"),
        ({"cores_per_machine": 0}, "--cores-per-machine is 0"),
        ({"update_s": -1.0}, "--update-seconds is -1.0"),
        ({"update_s": float("nan")}, "--update-seconds is nan"),
        ({"wire": Wire(bytes_per_s=0)}, "--bandwidth is 0.0"),
        ({"wire": Wire(bytes_per_s=1, latency_s=-1e-6)}, "--latency-us is -1.0"),
        ({"seed": -1}, "--seed is -1"),
    ],
)
def test_a_sweep_that_cannot_be_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Sweep(**change)
