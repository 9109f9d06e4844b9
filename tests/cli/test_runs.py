"""How `eval`, `play`, `runs` and `bench` call down, and what they print."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REPORT = {
    "episodes": 20,
    "return_mean": 1.5,
    "return_std": float("nan"),
    "return_min": -1.0,
    "return_max": 12345.6,
    "win_rate": 0.9,
    "results": {"score_self": {"mean": 20.0, "quantiles": {"0.5": 21.0}}, "plain": 3.0},
}
RUN = {
    "name": "pong-ppo-1",
    "path": "runs/pong-ppo-1",
    "state": "finished",
    "env_steps": 1_000_000,
    "best_return": None,
    "last_return": 0.5,
    "seconds": 12.0,
    "algo": "ppo",
    "env": "pong",
    "when": "2030-01-01 00:00:00",
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Stands in for what the commands call, and keeps how."""
    made: list[tuple[Any, ...]] = []

    def stand_in(module: str, function: str, answer: Any) -> None:
        def call(*positional: Any, **named: Any) -> Any:
            made.append((function, *positional, named))
            return answer

        stand = ModuleType(module)
        setattr(stand, function, call)
        monkeypatch.setitem(sys.modules, module, stand)

    stand_in("lamarckian_cli.launch.evaluate", "evaluate", REPORT)
    stand_in("lamarckian_cli.launch.play", "play", None)
    stand_in("lamarckian_cli.launch.runs", "list_runs", [RUN])
    stand_in(
        "lamarckian_cli.bench.sampling",
        "measure_sampling",
        {"kind": "sampling", "machine": {}, "results": [{"env": "pong", "env_steps_per_s": 55_000.0}]},
    )
    return made


def test_eval(lamarck, calls) -> None:
    table = lamarck("eval", "runs/x", "-n", "20", "--seed", "7", "--checkpoint", "best")
    assert calls == [
        ("evaluate", Path("runs/x"), {"episodes": 20, "seed": 7, "checkpoint": "best", "policy": None})
    ]
    assert "score_self" in table.out
    assert "90.0% won" in table.out
    document = json.loads(lamarck("eval", "runs/x", "--json").out)
    assert document["return_mean"] == 1.5
    assert document["return_std"] is None  # JSON has no nan
    assert calls[-1][-1]["episodes"] is None  # the run's own number


def test_play(lamarck, calls) -> None:
    assert lamarck("play", "runs/x", "--video", "out.mp4").status == 0
    ((name, run, named),) = calls
    assert (name, run) == ("play", Path("runs/x"))
    assert named == {"video": Path("out.mp4"), "fps": None, "seed": 0, "checkpoint": "latest", "policy": None}


def test_runs(lamarck, calls) -> None:
    table = lamarck("runs")
    assert calls == [("list_runs", Path("runs"), {})]
    assert "finished" in table.out
    assert json.loads(lamarck("runs", "elsewhere", "--json").out) == [RUN]
    assert calls[-1][1] == Path("elsewhere")


def test_bench_sampling(lamarck, calls) -> None:
    document = json.loads(lamarck("bench", "sampling", "env=pong", "--seconds", "5", "--json").out)
    assert document["kind"] == "sampling"
    assert calls == [("measure_sampling", ["env=pong"], {"seconds": 5.0})]
    assert "55,000" in lamarck("bench", "sampling").out
