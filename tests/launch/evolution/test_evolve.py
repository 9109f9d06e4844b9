"""Whole evolutions in this process: what is in the run folder, and going on after a kill or a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from evolving import Bowl
from waiting import wait_until

from lamarckian_cli.errors import ConfigError, RunError
from lamarckian_cli.launch.evolution.evolve import evolve
from lamarckian_cli.launch.evolution.front import Front, read_front
from lamarckian_cli.launch.evolution.lineage import read_lineage
from lamarckian_cli.launch.evolution.wiring import job_of, run_evolve
from lamarckian_cli.launch.runfolder import RunFolder
from lamarckian_cli.launch.runs import list_runs

TWO = ["evo=nsga2", "problem=zdt1", "evo.population=20"]
ONE = ["evo=ga", "problem=sphere", "evo.population=20"]


def run(folder: Path, *overrides: str, plots: bool = False) -> dict:
    words = [*overrides, f"run.dir={folder}", f"run.plots={str(plots).lower()}"]
    return evolve(job_of(words), json_output=True)


def resume(folder: Path, *overrides: str) -> dict:
    [ended] = run_evolve([f"resume={folder}", *overrides], json_output=True)
    return ended.summary


def same(one: Front, other: Front) -> bool:
    return (
        np.array_equal(one.ids, other.ids)
        and np.array_equal(one.objectives, other.objectives)
        and all(np.array_equal(one.genomes[name], other.genomes[name]) for name in one.genomes)
    )


def test_a_run_folder_has_everything(run_dir: Path) -> None:
    summary = run(run_dir, *TWO, "evo.evaluations=410", plots=True)
    assert json.loads((run_dir / "summary.json").read_text()) == {
        k: v for k, v in summary.items() if k != "run"
    }
    assert (summary["evaluations"], summary["generations"], summary["seed"]) == (410, 20, 0)
    assert summary["hypervolume_reference"] == [1.1, 1.1]
    assert summary["staleness_max"] == 0
    rows = list(read_lineage(run_dir))
    assert [row["id"] for row in rows] == list(range(410))
    assert all(row["generation"] == row["born"] == row["id"] // 20 for row in rows)
    front = read_front(run_dir)
    assert summary["front_size"] == len(front) >= 1
    assert (np.diff(front.objectives[:, 0]) >= 0).all()
    # The front is of those in the lineage, with the same numbers.
    for i, number in enumerate(front.ids.tolist()):
        assert rows[number]["objectives"] == front.objectives[i].tolist()
    for name in ("front", "convergence"):
        assert (run_dir / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "plotly.min.js" in (run_dir / f"{name}.html").read_text()
    assert (run_dir / "plotly.min.js").exists()
    assert RunFolder.open(run_dir).state == "finished"
    last = RunFolder.open(run_dir).rows()[-1]
    assert (last["evaluations"], last["generation"]) == (410, 20)


def test_igd_and_hypervolume_are_those_of_the_front(run_dir: Path) -> None:
    summary = run(run_dir, *TWO, "evo.evaluations=4000", "evo.population=40")
    points = read_front(run_dir).objectives
    from lamarckian_cli.problems.zdt import ZDT1

    known = ZDT1().front()
    assert known is not None
    distances = np.sqrt(((known[:, None] - points[None]) ** 2).sum(axis=2)).min(axis=1)
    assert summary["igd"] == pytest.approx(distances.mean())
    worse = np.maximum(points[None] - known[:, None], 0)
    assert summary["igd_plus"] == pytest.approx(np.sqrt((worse**2).sum(axis=2)).min(axis=1).mean())
    nearest = np.sqrt(((known[:, None] - points[None]) ** 2).sum(axis=2)).min(axis=0)
    assert summary["gd"] == pytest.approx(nearest.mean())
    assert 0 < summary["spread"] < 1
    inside = points[(points < 1.1).all(axis=1)]
    ordered = inside[np.argsort(inside[:, 0])]
    edges = np.append(ordered[1:, 0], 1.1)
    assert summary["hypervolume"] == pytest.approx(
        float(((edges - ordered[:, 0]) * (1.1 - ordered[:, 1])).sum())
    )


def test_the_same_seed_gives_the_same_individuals_and_another_others(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(tmp_path / name, *TWO, "evo.evaluations=200", f"seed={seed}")
    a, b, c = (read_front(tmp_path / name) for name in "abc")
    assert same(a, b)
    assert not same(a, c)


@pytest.mark.parametrize("words", [TWO, ONE, [*TWO, "evo.in_flight=7"]])
def test_a_resumed_run_ends_as_an_unbroken_one(tmp_path: Path, words: list[str]) -> None:
    run(tmp_path / "whole", *words, "evo.evaluations=600")
    run(tmp_path / "broken", *words, "evo.evaluations=330")
    summary = resume(tmp_path / "broken", "evo.evaluations=600")
    assert summary["evaluations"] == 600
    assert same(read_front(tmp_path / "whole"), read_front(tmp_path / "broken"))
    ids = [[row["id"] for row in read_lineage(tmp_path / name)] for name in ("whole", "broken")]
    assert ids[0] == ids[1]


def test_one_objective_is_told_by_its_best(run_dir: Path) -> None:
    summary = run(run_dir, *ONE, "evo.evaluations=500")
    front = read_front(run_dir)
    best = min(row["objectives"][0] for row in read_lineage(run_dir))
    assert summary["best"] == front.objectives[0, 0] == best
    assert len(front) == 1
    assert "hypervolume" not in summary
    assert summary["optimum"] == 0


def test_an_archive_tells_how_much_of_behaviour_it_covers(run_dir: Path) -> None:
    words = ("evo=map_elites", "problem=arm", "evo.cells=8", "evo.evaluations=300")
    summary = run(run_dir, *words, "run.plots=false")
    assert summary["coverage"] == RunFolder.open(run_dir).rows()[-1]["coverage"]
    assert 0 < summary["coverage"] <= 1


def test_a_target_ends_a_run(run_dir: Path) -> None:
    summary = run(run_dir, *ONE, "evo.evaluations=null", "evo.target=5.0")
    assert summary["best"] <= 5.0
    assert summary["end"] == "evo.target=5"


def test_whoever_is_feasible_makes_the_front(run_dir: Path) -> None:
    run(run_dir, "problem=tnk", "evo.evaluations=2000", "evo.population=40")
    front = read_front(run_dir)
    rows = list(read_lineage(run_dir))
    assert (front.violation == 0).all()
    for number in front.ids.tolist():
        assert max(rows[number]["constraints"]) <= 0


def test_lists_of_runs_know_evolutions(tmp_path: Path) -> None:
    summary = run(tmp_path / "runs" / "a", *TWO, "evo.evaluations=100")
    [entry] = list_runs(tmp_path / "runs")
    assert (entry["evo"], entry["problem"]) == ("nsga2", "zdt1")
    assert (entry["evaluations"], entry["igd"], entry["state"]) == (100, summary["igd"], "finished")
    assert "algo" not in entry


def test_a_failing_evaluator_ends_the_run_with_its_error_and_keeps_the_traceback(run_dir: Path) -> None:
    job = job_of([*ONE, f"run.dir={run_dir}", "evo.evaluations=100"])
    spec = {"_target_": f"{Bowl.__module__}.Bowl", "raises": 1.0}
    object.__setattr__(job, "problem", type(job.problem)(spec=spec))
    with pytest.raises(RunError, match=r"ValueError: the bowl is broken \(.*evolving\.py, line \d+\)"):
        evolve(job, json_output=True)
    assert RunFolder.open(run_dir).state == "failed"
    assert "Traceback" in (run_dir / "errors.log").read_text()
    assert all("bowl is broken" in row["error"] for row in read_lineage(run_dir))


def test_nothing_is_left_of_a_run_that_cannot_begin(run_dir: Path) -> None:
    with pytest.raises(ConfigError, match=r"evo\.target is 1.*single objective"):
        run(run_dir, *TWO, "evo.target=1")
    with pytest.raises(ConfigError, match=r"evo\.reference is \[1\.0\].*2 objectives"):
        run(run_dir, *TWO, "evo.reference=[1]")
    assert not run_dir.exists()


def test_what_is_over_is_not_resumed(run_dir: Path) -> None:
    run(run_dir, *ONE, "evo.evaluations=100")
    with pytest.raises(RunError, match=r"has reached evo\.evaluations=100 already.*larger evo\.evaluations"):
        resume(run_dir)
    with pytest.raises(ConfigError, match=r"evo\.population cannot change when a run is resumed"):
        resume(run_dir, "evo.population=10")


LONG = ["evo.evaluations=100000000", "run.checkpoint_every_s=0.2", "run.log_every_s=0.1", "run.plots=false"]


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lamarckian_cli.cli", "evolve", *words, f"run.dir={folder}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def checkpoints(folder: Path) -> int:
    return len(list((folder / "checkpoints").glob("*.ckpt")))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_run_that_a_signal_ends_goes_on_as_an_unbroken_one(tmp_path: Path, number: signal.Signals) -> None:
    broken = tmp_path / "broken"
    process = start(broken, *TWO, *LONG)
    try:
        wait_until(lambda: checkpoints(broken) >= 2)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    if number == signal.SIGKILL:
        assert RunFolder.open(broken).state == "killed"
    else:
        assert (process.returncode, err) == (130, "lamarck: interrupted\n")
        assert RunFolder.open(broken).state == "interrupted"
    done = int(RunFolder.open(broken).checkpoints()[0].stem)
    total = done + 200
    resume(broken, f"evo.evaluations={total}")
    run(tmp_path / "whole", *TWO, f"evo.evaluations={total}")
    assert same(read_front(tmp_path / "whole"), read_front(broken))
    assert [row["id"] for row in read_lineage(broken)] == list(range(total))
    assert not [p for p in os.listdir(broken) if p.startswith(".")]
