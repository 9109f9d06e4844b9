"""`lamarck replay`: the schedule that the lineage tells is what the new learner is trained by."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lamarckian_cli.errors import ConfigError, RunError
from lamarckian_cli.launch.evolution.wiring import run_evolve
from lamarckian_cli.launch.population.replay import replay, schedule_of
from lamarckian_cli.launch.runfolder import RunFolder
from lamarckian_cli.learner.learner import Learner

SMALL = (
    "evo=pbt",
    "evo.population=4",
    "evo.fraction=0.5",
    "problem.env_steps=256",
    "problem.matches=1",
    "algo.batch_size=256",
    "algo.unroll=16",
    "env.max_steps=40",
    "cluster=inproc",
    "cluster.matches=8",
    "run.plots=false",
)


def write_lineage(folder: Path, *rows: dict[str, Any]) -> None:
    (folder / "lineage.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def row(number: int, parents: list[int], lr: float, **changes: Any) -> dict[str, Any]:
    made = {"id": number, "parents": parents, "objectives": [lr], "genome": {"algo.lr": lr}, "error": None}
    return made | changes


def test_a_schedule_is_the_line_of_first_parents_from_the_first_on(tmp_path: Path) -> None:
    write_lineage(
        tmp_path,
        row(0, [], 0.1),
        row(1, [], 0.2),
        row(2, [1, 0], 0.3),
        row(3, [0], 0.4),
        row(4, [2], 0.5),
        row(5, [], 0.6, objectives=None, error="it broke"),
    )
    line = schedule_of(tmp_path, 4)
    assert [(s.individual, s.values["algo.lr"], s.objectives) for s in line] == [
        (1, 0.2, (0.2,)),
        (2, 0.3, (0.3,)),
        (4, 0.5, (0.5,)),
    ]
    with pytest.raises(RunError, match=r"does not tell how individual 9 was trained; .*--individual"):
        schedule_of(tmp_path, 9)
    with pytest.raises(RunError, match="individual 5"):
        schedule_of(tmp_path, 5)
    write_lineage(tmp_path, row(6, [7], 0.1), row(7, [6], 0.1))
    with pytest.raises(RunError, match="damaged"):
        schedule_of(tmp_path, 6)


@pytest.fixture(scope="module")
def evolved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("evolved") / "pbt"
    run_evolve([*SMALL, "evo.evaluations=16", f"run.dir={run}"], json_output=True)
    return run


def test_the_learner_goes_by_the_winners_schedule(
    evolved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {r["id"]: r for r in map(json.loads, (evolved / "lineage.jsonl").read_text().splitlines())}
    winner = max(rows.values(), key=lambda r: r["objectives"][0])["id"]
    line = [winner]
    while rows[line[0]]["parents"]:
        line.insert(0, rows[line[0]]["parents"][0])
    used = []
    update = Learner.update

    def watched(learner: Learner) -> dict[str, float]:
        report = update(learner)
        used.append((learner.algorithm.lr, learner.algorithm.entropy_weight, report["lr"]))
        return report

    monkeypatch.setattr(Learner, "update", watched)
    summary = replay(evolved, folder=tmp_path / "again", command=["lamarck", "replay"], quiet=True)
    expected = [(rows[i]["genome"]["algo.lr"], rows[i]["genome"]["algo.entropy_weight"]) for i in line]
    assert [(lr, entropy) for lr, entropy, _ in used] == expected
    assert [actual for *_, actual in used] == pytest.approx([lr for lr, _ in expected])  # of the optimizer
    assert [s["individual"] for s in summary["stretches"]] == line
    assert [s["objectives_then"] for s in summary["stretches"]] == [rows[i]["objectives"] for i in line]
    folder = RunFolder.open(tmp_path / "again")
    assert folder.state == "finished"
    assert folder.config()["algo"]["lr"] == rows[winner]["genome"]["algo.lr"]
    assert [r["env_steps"] for r in folder.rows()] == [256 * (i + 1) for i in range(len(line))]


def test_a_replay_in_process_is_exact_and_its_seed_its_own(evolved: Path, tmp_path: Path) -> None:
    vectors = []
    for name, seed in (("a", None), ("b", None), ("c", 7)):
        replay(evolved, individual=3, seed=seed, folder=tmp_path / name, quiet=True)
        state = RunFolder.open(tmp_path / name).load_checkpoint()
        vectors.append(state["learners"]["main"]["vector"].tobytes())
    assert vectors[0] == vectors[1] != vectors[2]


def test_what_cannot_be_replayed_is_said_and_leaves_nothing(evolved: Path, tmp_path: Path) -> None:
    several = tmp_path / "several"
    run_evolve(
        [
            *[word for word in SMALL if not word.startswith(("evo=", "evo.fraction"))],
            "evo=nsga2",
            "problem=training",
            "problem.objectives=[win,moves]",
            "evo.evaluations=4",
            f"run.dir={several}",
        ],
        json_output=True,
    )
    numbers = tmp_path / "numbers"
    run_evolve(["problem=sphere", "evo=ga", "evo.evaluations=200", f"run.dir={numbers}"], json_output=True)
    with pytest.raises(ConfigError, match=r"2 objectives.*--individual"):
        replay(several, folder=tmp_path / "x", quiet=True)
    with pytest.raises(RunError, match="evolved solutions, not agents"):
        replay(numbers, folder=tmp_path / "x", quiet=True)
    with pytest.raises(RunError, match="no evolution; lamarck train resume="):
        replay(evolved / "best", folder=tmp_path / "x", quiet=True)
    with pytest.raises(RunError, match="exists and is not empty"):
        replay(evolved, folder=evolved, quiet=True)
    assert not (tmp_path / "x").exists()
