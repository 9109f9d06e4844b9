"""`lamarck evolve` and `lamarck front`, from the command line to the run folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lamarckian_cli.launch.evolution.lineage import read_lineage

QUICK = ["evo.evaluations=120", "evo.population=20", "run.plots=false"]
FUNCTION = """
import numpy as np

def distance(x):
    return float(np.sum((x - 0.25) ** 2))

def broken(x):
    raise ValueError("no such thing")
"""


def test_without_arguments_it_evolves_and_says_what_to_type_next(lamarck) -> None:
    answer = lamarck("evolve", *QUICK)
    assert answer.status == 0, answer.err
    [run] = Path("runs").iterdir()
    assert run.name.startswith("zdt1-nsga2-")
    assert "120 evaluations" in answer.out
    assert "it ended at evo.evaluations=120" in answer.out
    assert f"lamarck front runs/{run.name}" in answer.out
    assert (run / "command.txt").read_text().startswith("lamarck evolve evo.evaluations=120")
    assert json.loads((run / "state.json").read_text())["evo"] == "nsga2"


def test_one_json_document_and_nothing_else(lamarck) -> None:
    answer = lamarck("evolve", "--json", *QUICK)
    document = json.loads(answer.out)
    assert document["evaluations"] == 120
    assert {"hypervolume", "igd", "front_size", "workers_busy", "seed", "command", "run"} <= set(document)
    assert answer.err == ""


def test_front_is_one_document_in_the_senses_of_the_problem(lamarck) -> None:
    lamarck("evolve", "evo=ga", "problem=knapsack", *QUICK)
    document = json.loads(lamarck("front", "last", "--json").out)
    assert set(document) == {"objectives", "genomes", "sense"}
    assert document["sense"] == ["max"]
    [[value]] = document["objectives"]
    [run] = Path("runs").iterdir()
    feasible = [row for row in read_lineage(run) if max(row["constraints"], default=0) <= 0]
    assert value == max(row["objectives"][0] for row in feasible) > 0
    [genome] = document["genomes"]
    assert all(isinstance(number, int) for part in genome.values() for number in part)
    table = lamarck("front", "last").out
    assert "(max)" in table


def test_front_of_several_objectives_is_shortened_in_a_table(lamarck) -> None:
    lamarck("evolve", "evo.evaluations=2000", "problem.dim=5", "run.plots=false")
    count = len(json.loads(lamarck("front", "last", "--json").out)["objectives"])
    assert count > 40
    assert f"40 of {count}" in lamarck("front", "last").out
    assert "of" not in lamarck("front", "last", "--all").out.splitlines()[-1]


def test_a_sweep_has_a_table_and_a_document(lamarck) -> None:
    words = ["-m", "evo=ga,pso", "problem=sphere", "evo.evaluations=60", "run.plots=false"]
    answer = lamarck("evolve", *words)
    assert answer.status == 0, answer.err
    rows = [line for line in answer.out.splitlines() if line.lstrip().startswith("evo=")]
    assert [row.split()[0] for row in rows] == ["evo=ga", "evo=pso"]
    document = json.loads(lamarck("evolve", "--json", *words).out)
    assert [job["overrides"][0] for job in document["jobs"]] == ["evo=ga", "evo=pso"]
    assert all(job["evaluations"] == 60 for job in document["jobs"])


def test_a_function_of_ones_own(lamarck, tmp_path: Path) -> None:
    Path("mine_evolving.py").write_text(FUNCTION)
    words = ["problem=function", "problem.dim=3", "problem.low=0", "problem.high=1", "run.plots=false"]
    given = [
        "evo=cmaes",
        "problem.function=mine_evolving.distance",
        "evo.evaluations=2000",
        "evo.target=1e-6",
    ]
    answer = lamarck("evolve", *words, *given)
    assert answer.status == 0, answer.err
    [genome] = json.loads(lamarck("front", "last", "--json").out)["genomes"]
    assert next(iter(genome.values())) == pytest.approx([0.25] * 3, abs=1e-2)
    answer = lamarck("evolve", *words, "evo=ga", "problem.function=mine_evolving.broken")
    assert answer.status == 2
    assert "no such thing" in answer.err
    assert "mine_evolving.py, line 8" in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evo=nsga"], "evo is 'nsga'; there is no such option; did you mean nsga"),
        (["problem=zdt9"], "problem is 'zdt9'; there is no such option; did you mean zdt"),
        (["env=pong"], "env is no group of this command"),
        (["algo.lr=1"], "algo is not a known key"),
        (["evo.populaton=3"], "evo.populaton is not a known key; did you mean evo.population?"),
        (["evo.evaluations=0"], "evo.evaluations is 0; it must be above 0"),
        (
            ["evo.evaluations=null"],
            "evo.evaluations is null; give evo.evaluations, budget.seconds or evo.target",
        ),
        (["evo.retries=-1"], "evo.retries is -1; it must be 0 or more"),
        (["evo.deadline_s=3"], "evo.deadline_s is 3.0; cluster=inproc cannot end an evaluation"),
        (["evo.target=0"], "evo.target is 0, which is of a single objective"),
        (["evo.reference=[1]"], "evo.reference is [1.0]; the problem has 2 objectives"),
        (["evo=cmaes"], "the problem has 2"),
        (["problem.dim=0"], "problem.dim is 0"),
        (["problem=null"], "problem is null"),
        (["run.checkpoint_every_s=0"], "run.checkpoint_every_s is 0.0; it must be above 0"),
        (["budget.seconds=-1"], "budget.seconds is -1.0; it must be above 0"),
        (["seed=-1"], "seed is -1; it must be 0 or more"),
        (["run.dir="], "run.dir is ''; give a folder"),
        (["--josn"], "--josn is no option of lamarck evolve"),
        (["resume=nothing"], "resume is 'nothing'; there is no run folder"),
        (
            ["problem._target_=lamarckian_cli.launch.evolution.settings.Budget", "~problem.dim"],
            "it must name a subclass of lamarckian_cli.problems.evaluator.Evaluator",
        ),
    ],
)
def test_bad_input_is_one_clear_message_and_nothing_half_written(lamarck, words, message: str) -> None:
    answer = lamarck("evolve", *words)
    assert answer.status == 2
    assert message in answer.err
    assert len(answer.err.strip().splitlines()) == 1
    assert answer.out == ""
    assert not list(Path().iterdir())


def test_runs_of_the_other_kind_are_refused_by_name(lamarck) -> None:
    lamarck("evolve", *QUICK)
    train = lamarck("train", "resume=last")
    assert train.status == 2
    assert "which lamarck evolve made; go on with lamarck evolve resume=" in train.err
    assert lamarck("eval", "last").status == 2
    Path("runs/t/checkpoints").mkdir(parents=True)
    Path("runs/t/config.yaml").write_text("algo: {}\nrun: {dir: x}\n")
    evolve = lamarck("evolve", "resume=t")
    assert evolve.status == 2
    assert "which lamarck train made" in evolve.err
    assert lamarck("front", "t").status == 2


def test_help_lists_its_groups_and_keys_and_no_others(lamarck) -> None:
    answer = lamarck("evolve", "--help")
    assert answer.status == 0
    for word in ("nsga2", "cmaes", "dtlz2", "tsp", "evo.evaluations=25000", "evo.deadline_s=", "--multirun"):
        assert word in answer.out
    assert "impala" not in answer.out
    assert "algo." not in answer.out
    assert "dtlz2" not in lamarck("train", "--help").out
    for command in ("evolve", "front"):
        assert f"  {command} " in lamarck("--help").out


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("lamarck ev", {"eval", "evolve"}),
        ("lamarck evolve evo=ns", {"evo=nsga2", "evo=nsga3"}),
        ("lamarck evolve evo.dead", {"evo.deadline_s="}),
        ("lamarck evolve algo.l", set()),
        ("lamarck train evo.p", set()),
    ],
)
def test_completion(lamarck, monkeypatch: pytest.MonkeyPatch, line: str, expected: set[str]) -> None:
    monkeypatch.setenv("COMP_LINE", line)
    assert set(lamarck("train", "-sc", "query=bash").out.split()) == expected


def test_list_and_runs_know_both_kinds(lamarck) -> None:
    document = json.loads(lamarck("list", "--json").out)
    assert {"evo", "problem", "algo"} <= set(document)
    lamarck("evolve", *QUICK)
    [entry] = json.loads(lamarck("runs", "--json").out)
    assert (entry["evo"], entry["problem"], entry["evaluations"]) == ("nsga2", "zdt1", 120)
    table = lamarck("runs").out
    assert "hypervolume" in table
    assert "env" not in table
