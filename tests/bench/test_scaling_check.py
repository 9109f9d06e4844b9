"""`lamarck bench scaling --check`: its document, and that what is measured adds up."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from typer.testing import CliRunner

from lamarckian_cli.bench import scaling_check
from lamarckian_cli.bench.hosts import available
from lamarckian_cli.bench.scaling_check import COMPARED, Check, check_scaling, compared
from lamarckian_cli.bench.scaling_process import Training, WaitingGame
from lamarckian_cli.cli.bench import app
from lamarckian_cli.errors import ClusterError, ConfigError
from lamarckian_cli.mdp.check import check_mdp

SMALL = Check(
    hosts=(2,),
    mbit_per_s=100.0,
    training=Training(step_s=0.01, update_s=0.02, batch_size=64, layers=(32,)),
    warm_up_s=1.0,
    seconds=3.0,
)


@pytest.mark.skipif(bool(available()), reason=f"no hosts can be made here: {available()}")
@pytest.mark.usefixtures("no_children_left")
@pytest.mark.slow
def test_a_small_check_measures_what_was_sampled_and_compares_it() -> None:
    told: list[tuple[str, float]] = []
    document = check_scaling(SMALL, progress=lambda *what: told.append(what))
    json.dumps(document)
    assert document["kind"] == "scaling"
    assert [(r["layout"], r["machines"], r["cores"]) for r in document["results"]] == [
        ("flat", 2, 4),
        ("tree", 2, 4),
    ]
    for result in document["results"]:
        assert set(result["check"]) == set(COMPARED)
        for name, figure in result["check"].items():
            assert set(figure) == {"predicted", "measured", "ratio", "within"}
            assert figure["measured"] == result[name] > 0
        # What is not learned from lies with actors that are ahead, in the queues, or was cut off in the end.
        ahead = 16 * (1 + SMALL.training.queue_batches) + 4 + 2 * 16
        assert 0 <= result["waiting_unrolls"] <= ahead
        assert result["learned_unrolls"] >= result["batches"] * 16
        assert 0 < result["cpu_use"] <= result["cpu_load"] * 1.1
        assert result["calibrated"]
    (inputs,) = document["inputs"]["workloads"].values()
    assert inputs["fitted"] == []
    assert 0.2 < inputs["costs"]["step_rate"] * 0.01 <= 1
    assert told[-1][0] == "2 hosts, tree"


def test_a_waiting_game_is_a_game_that_waits() -> None:
    game = WaitingGame(step_s=0.001)
    check_mdp(WaitingGame(step_s=0.0, length=20))
    began = time.monotonic()
    (controller,) = game.reset((0,), 0).controllers
    with pytest.raises(StopIteration):
        controller.act((0,)).send(None)
    assert time.monotonic() - began >= game.step_s


def test_without_hosts_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling_check, "available", lambda: "it takes root")
    with pytest.raises(ClusterError, match=r"--check needs hosts of namespaces.*: it takes root"):
        check_scaling(SMALL)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--simulate is false; give --simulate, or --check"),
        (["--check", "--simulate"], "--simulate is true; --check has hosts and a workload of its own"),
        (["--check", "--cores", "10"], "--cores is '10'; --check has"),
    ],
)
def test_one_of_both_is_asked_for(arguments: list[str], words: str) -> None:
    error = CliRunner().invoke(app, ["scaling", *arguments]).exception
    assert isinstance(error, ConfigError)
    assert words in str(error)


@pytest.mark.parametrize(("measured", "within"), [(81.0, True), (119.0, True), (79.0, False), (121.0, False)])
def test_a_fifth_off_is_within(measured: float, within: bool) -> None:
    assert compared(100.0, measured) == {
        "predicted": 100.0,
        "measured": measured,
        "ratio": measured / 100,
        "within": within,
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hosts": ()}, r"--hosts is \[\]; give at least one"),
        ({"hosts": (0,)}, "--hosts is 0; each must be from 1"),
        ({"seed": -1}, "--seed is -1"),
    ],
)
def test_a_check_that_cannot_be_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Check(**change)
