"""Tables in a terminal of 80 columns: every number and word is there in one piece."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.cli.conftest import Lamarck

from lamarckian_cli.bench.gather import WAYS, Plan
from lamarckian_cli.cli import output, sweep
from lamarckian_cli.launch.evolution.front import Front
from lamarckian_cli.launch.wiring import Ended

WIDTH = 80
STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
LONG_PATH = "/home/someone/" + "/".join(["a-folder-with-a-long-name"] * 4)
NUMBERS = {"mean": 1234.5, "std": 123.4, "min": -9876.0, "max": 123_456.7}
QUANTILES = {"p05": -1234.0, "p25": -123.4, "p50": 1.234, "p75": 1235.0, "p95": 12_345.6}


def scaled(workload: str, layout: str, cores: int) -> dict[str, Any]:
    return {
        "workload": workload,
        "layout": layout,
        "cores": cores,
        "env_steps_per_s": 12_345_678.9,
        "paper_env_steps_per_s": 2_345_678.0 if workload.endswith("paper") else None,
        "staleness_mean": 12.34,
        "staleness_paper": 173.5,
        "egress_bytes_per_s": 1.2345e12,
        "egress_bytes_per_version": 9.876e9,
        "cpu_use": 0.98765,
        "paper_cpu_use": None,
        "learner_use": 0.87654,
    }


SCALING = {
    "results": [scaled("pendulum_paper", "per_actor", 100_000), scaled("football", "tree", 10)],
    "inputs": {"workloads": {}, "load_average": 0.0},
    "machine": {"cores": 2},
}
CHECK = {
    "results": [
        {
            "machines": 16,
            "layout": "tree",
            "check": {
                name: {"predicted": 12_345.6, "measured": 0.012345, "ratio": 1.2345, "within": False}
                for name in ("env_steps_per_s", "egress_bytes_per_version", "last_host_s")
            },
            "batches": 7,
            "seconds": 8.0,
            "cpu_use": 0.5,
            "cpu_load": 0.6,
        }
    ]
}
BROADCAST = {
    "results": [
        {
            "layout": layout,
            "hosts": 16,
            "payload_bytes": 10_000_000,
            "last_host_s": 13.579,
            "predicted_s": 12.468,
            "of_predicted": 0.9182,
            "egress_bytes": 168_421_053,
            "flat_over_tree": 2.345,
            "predicted_flat_over_tree": 2.468,
            "staleness": 11.11,
            "predicted_staleness": 10.99,
            "cpu_s_per_version": 0.01357,
        }
        for layout in ("flat", "zmq-per-actor", "ray-object-store")
    ]
}
GATHER = {
    "results": [
        {
            "what": what,
            "env": "pong_image",
            "actors": 256,
            "unrolls_per_s": 221_172.4,
            "env_steps_per_s": 14_155_027.1,
            "mb_per_s": 3093.4,
            "message_bytes": 58_761_335,
            "of_ray": 0.2068,
        }
        for what in WAYS
    ]
}
EVOLVED = {"name": "zdt1-nsga2-20300101-000000", "state": "interrupted", "evaluations": 1_000_000}
EVOLVED |= {"best": None, "hypervolume": 0.8765, "igd": 0.004321, "when": "2030-01-01 00:00:00"}
EVOLVED |= {
    "problem": "zdt1",
    "evo": "nsga2",
    "reason": f"no space left on the device that {LONG_PATH} is on",
}
TRAINED = {"name": "cartpole-ppo-20300101-000000", "state": "finished", "env_steps": 123_456_789}
TRAINED |= {"best_return": -1234.5, "when": "2030-01-01 00:00:00", "env": "MountainCarContinuous-v0"}
TRAINED |= {"algo": "ppo"}
FRONT = Front(
    objectives=np.array([[12_345.6, 0.001234, -1234.5]]),
    violation=np.array([0.01357]),
    genomes={"x": np.linspace(-1000.5, 1000.5, 30)[None]},
    ids=np.array([1_234_567]),
    sense=("min", "max", "min"),
    names=("makespan", "throughput", "consumption"),
)
REPORT = {f"return_{name}": value for name, value in (NUMBERS | {"quantiles": QUANTILES}).items()}
REPORT |= {"episodes": 20, "results": {"score_of_this_side": NUMBERS | {"quantiles": QUANTILES}}}
SAMPLING = {"results": [{"env": "pong_image", "learner": {"env_steps_per_s": 55_000.0, "cores_used": 1.97}}]}
FINDINGS = [
    SimpleNamespace(name="ffmpeg", ok=True, needed=False, found=LONG_PATH, remedy=""),
    SimpleNamespace(name="tensorboard", ok=False, needed=True, found="", remedy="pip install tensorboard"),
]
COMMANDS = [
    ("lamarckian_cli.bench.scaling", "measure_scaling", SCALING, ["bench", "scaling", "--simulate"]),
    ("lamarckian_cli.bench.scaling_check", "check_scaling", CHECK, ["bench", "scaling", "--check"]),
    ("lamarckian_cli.bench.broadcast", "measure_broadcast", BROADCAST, ["bench", "broadcast"]),
    ("lamarckian_cli.bench.gather", "measure_gather", GATHER, ["bench", "gather"]),
    ("lamarckian_cli.bench.sampling", "measure_sampling", SAMPLING, ["bench", "sampling"]),
    ("lamarckian_cli.launch.runs", "list_runs", [EVOLVED, TRAINED], ["runs"]),
    ("lamarckian_cli.launch.doctor", "examine", FINDINGS, ["doctor"]),
    ("lamarckian_cli.launch.doctor", "examine", FINDINGS[:1], ["doctor"]),
    ("lamarckian_cli.launch.evaluate", "evaluate", REPORT, ["eval", "runs/x"]),
    ("lamarckian_cli.launch.evolution.front", "read_front", FRONT, ["front", "runs/x"]),
    ("", "", None, ["list"]),
    ("", "", None, ["cluster", "plan", "cluster=6000cores"]),
]


@pytest.fixture
def terminal(lamarck: Lamarck, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs something with a terminal of 80 columns for standard output; what it left there."""

    def run(act: Callable[[], Any]) -> str:
        lamarck.capture.readouterr()
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        act()
        return STYLES.sub("", lamarck.capture.readouterr().out)

    monkeypatch.setenv("COLUMNS", str(WIDTH))
    return run


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], list[str]]]:
    """Of every table, what its cells say: of columns that may not break, and of those that may."""
    kept: list[tuple[list[str], list[str]]] = []
    original = output.print_table

    def record(columns: Any, rows: Any, *, fold: Any = (-1,), **options: Any) -> None:
        folding = {i % len(columns) for i in fold}
        texts: tuple[list[str], list[str]] = (list(columns), [])
        for row in rows:
            for i, value in enumerate(row):
                texts[i in folding].append(output.cell(value))
        kept.append(texts)
        original(columns, rows, fold=fold, **options)

    monkeypatch.setattr(output, "print_table", record)
    return kept


def words(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from text.split()


@pytest.mark.parametrize(
    ("module", "function", "answer", "command"), COMMANDS, ids=lambda given: str(given)[:20]
)
def test_every_value_is_whole(lamarck, terminal, printed, monkeypatch, module, function, answer, command):
    if module == "lamarckian_cli.launch.evaluate":  # it takes the launcher, which is not the real one here
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(evaluate=lambda *_, **__: answer))
    elif module:
        monkeypatch.setattr(f"{module}.{function}", lambda *_, **__: answer)
    answers = []
    shown = terminal(lambda: answers.append(lamarck_keeps(lamarck, command)))
    assert answers == [0]
    assert printed
    there = Counter(shown.split())
    together = re.sub(r"\s", "", shown)
    for word, count in Counter(words(text for texts, _ in printed for text in texts)).items():
        assert there[word] >= count, word
    for word in words(text for _, prose in printed for text in prose):
        assert word in there or (len(word) > output.NARROWEST_PROSE and word in together)
    tables = [line for line in shown.splitlines() if line.startswith(" ")]
    assert max(map(len, tables)) <= WIDTH


def lamarck_keeps(lamarck: Lamarck, command: list[str]) -> int:
    """The exit status of a command whose output stays where it was captured."""
    from lamarckian_cli.cli import main

    lamarck.patch.setattr(sys, "argv", ["lamarck", *command])
    return main.run()


def test_a_sweep_at_80_columns(terminal, tmp_path: Path) -> None:
    summaries = [
        {
            "best_return": 12_345.6 + seed,
            "last_return": -9876.5,
            "run": f"multirun/2030-01-01/{LONG_PATH[-40:]}",
        }
        for seed in (1, 2)
    ]
    jobs = [
        Ended(overrides=(f"algo.learning_rate=0.00012{seed}", f"seed={seed}"), summary=summary, error=None)
        for seed, summary in enumerate(summaries)
    ]
    shown = terminal(lambda: sweep.print_sweep(jobs)).split()
    for job in jobs:
        assert {*job.overrides, "12,347", "12,348", "-9876", job.summary["run"]} <= set(shown)


def test_further_tables_begin_with_the_keys(terminal) -> None:
    columns = ["name", "size", *(f"figure {i}" for i in range(12))]
    rows = [[f"row{r}", r, *(1000 * r + i for i in range(12))] for r in (1, 2)]
    lines = terminal(lambda: output.print_table(columns, rows, fold=(), keys=2)).splitlines()
    of_row = [line.split() for line in lines if "row2" in line]
    assert len(of_row) > 1
    assert all(line[:2] == ["row2", "2"] for line in of_row)
    assert [value for line in of_row for value in line[2:]] == [f"{2000 + i:,}" for i in range(12)]


def test_titles_break_before_a_table_does(terminal) -> None:
    columns = ["name", *(f"title of several words {i}" for i in range(6))]
    shown = terminal(lambda: output.print_table(columns, [["row", *range(6)]], fold=()))
    assert sum("row" in line for line in shown.splitlines()) == 1
    assert shown.count("several") == 6


def test_what_is_wider_than_the_terminal_is_printed_whole(terminal) -> None:
    assert LONG_PATH in terminal(lambda: output.print_table(["path", "n"], [[LONG_PATH, 1]], fold=()))


def test_a_pipe_cuts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    value = "x" * (2 * output.PIPE_WIDTH)
    output.print_table(["name", "value"], [["a", value]], fold=())
    assert value in capsys.readouterr().out


def test_gather_says_how_long_it_takes(lamarck, monkeypatch) -> None:
    monkeypatch.setattr("lamarckian_cli.bench.gather.measure_gather", lambda *_: GATHER)
    answer = lamarck("bench", "gather", "--json")
    assert answer.err == "lamarck: bench gather takes about 2 minutes\n"
    assert answer.out.startswith('{"results"')
    assert Plan().measurements == 18  # two games, three ways, three times


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluation.episodes=20"], "lamarck eval takes --episodes 20"),
        (["seed=3"], "lamarck eval takes --seed 3"),
        (["runs/y"], "'runs/y' follows the run"),
    ],
)
def test_eval_names_the_option_of_an_override(lamarck, arguments, message) -> None:
    answer = lamarck("eval", "runs/x", *arguments)
    assert (answer.status, answer.out) == (2, "")
    assert message in answer.err
    assert answer.err.count("\n") == 1
