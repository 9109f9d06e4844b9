"""Every problem under conf/problem keeps the Evaluator interface, and its file says what its class does."""

from __future__ import annotations

from typing import Any

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from lamarckian_cli.config.build import TARGET, build, keys_of, locate
from lamarckian_cli.config.catalogue import keys, option_names
from lamarckian_cli.config.folders import conf_dir
from lamarckian_cli.errors import ConfigError
from lamarckian_cli.problems.check import check_evaluator
from lamarckian_cli.problems.evaluator import Evaluator

# Trainings need the groups of a training, and have tests of their own (tests/launch/population).
OPTIONS = [option for option in option_names("problem") if option != "training"]
FUNCTION = {"function": "math.fsum", "low": 0, "high": 1, "dim": 4}
QUICK = {"waiting": {"mean_s": 0.0}, "function": FUNCTION}


def node(option: str, *overrides: str) -> dict[str, Any]:
    """The values of one file, with what it takes from others."""
    try:
        with hydra.initialize_config_dir(config_dir=str(conf_dir()), version_base="1.3"):
            config = hydra.compose(f"problem/{option}", overrides=list(overrides))
        values = OmegaConf.to_container(config.problem, resolve=True)
    finally:
        GlobalHydra.instance().clear()
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def test_all_that_are_promised_are_there() -> None:
    promised = {f"zdt{i}" for i in range(1, 7)} | {f"dtlz{i}" for i in range(1, 8)}
    promised |= {"sphere", "ellipsoid", "rosenbrock", "rastrigin", "ackley", "griewank", "schwefel"}
    promised |= {"bnh", "osy", "tnk", "knapsack", "tsp", "pbt_toy", "arm", "function", "waiting"}
    assert promised <= set(OPTIONS)


@pytest.mark.parametrize("option", OPTIONS)
def test_keeps_the_interface(option: str) -> None:
    evaluator = build({**node(option), **QUICK.get(option, {})}, "problem")
    assert isinstance(evaluator, Evaluator)
    report = check_evaluator(evaluator)
    assert report.failed == 0


@pytest.mark.parametrize(
    ("option", "changes"),
    [
        *((f"dtlz{i}", {"objectives": m}) for i in range(1, 8) for m in (2, 4, 5, 10)),
        ("dtlz2", {"dim": 5}),
        ("knapsack", {"objectives": 2, "items": 20}),
        ("knapsack", {"copies": 5, "items": 15}),
        ("tsp", {"layout": "circle", "cities": 7}),
        ("tsp", {"cities": 6}),
        ("projection", {"function": "rastrigin", "dim": 7}),
        ("sphere", {"low": 1.0, "high": 2.0}),
        ("zdt5", {"strings": 1}),
    ],
)
def test_keeps_the_interface_with_other_keys(option: str, changes: dict[str, Any]) -> None:
    check_evaluator(build({**node(option), **changes}, "problem"))


@pytest.mark.parametrize("option", OPTIONS)
def test_file_and_class_have_the_same_keys_and_defaults(option: str) -> None:
    values = node(option)
    cls = locate(values, "problem")
    assert set(values) - {TARGET} == set(keys_of(cls))
    needed = FUNCTION if option == "function" else {n: values[n] for n in ("inner",) if n in values}
    usual = {name: value for name, value in values.items() if name not in (TARGET, *needed)}
    built = build({TARGET: values[TARGET], **needed, **usual}, "problem")
    bare = build({TARGET: values[TARGET], **needed}, "problem")
    assert repr(built.describe()) == repr(bare.describe())
    plain = {name: v for name, v in vars(bare).items() if isinstance(v, int | float | str | dict | None)}
    assert {name: v for name, v in vars(built).items() if name in plain} == plain


@pytest.mark.parametrize("option", OPTIONS)
def test_every_key_has_a_comment(option: str) -> None:
    for key in keys(conf_dir() / "problem" / f"{option}.yaml"):
        assert key.comment or key.name == TARGET, key.name


@pytest.mark.parametrize(
    ("option", "changes", "message"),
    [
        ("zdt1", {"dim": 1}, r"problem\.dim is 1; it must be at least 2"),
        ("zdt5", {"strings": 0}, r"problem\.strings is 0"),
        ("dtlz2", {"objectives": 1}, r"problem\.objectives is 1; it must be at least 2"),
        (
            "dtlz2",
            {"objectives": 5, "dim": 4},
            r"problem\.dim is 4; it must be at least problem.objectives, 5",
        ),
        ("dtlz2", {"k": 4}, r"problem\.k is not a known key"),
        ("rosenbrock", {"dim": 1}, r"problem\.dim is 1; it must be at least 2"),
        ("sphere", {"dim": 0}, r"problem\.dim is 0; it must be at least 1"),
        ("sphere", {"low": 5}, r"problem\.low is 5\.0; it must be below problem\.high, 5"),
        ("knapsack", {"items": 0}, r"problem\.items is 0"),
        ("knapsack", {"copies": 0}, r"problem\.copies is 0"),
        ("knapsack", {"objectives": 3}, r"problem\.objectives is 3; it must be 1 or 2"),
        ("tsp", {"cities": 2}, r"problem\.cities is 2; it must be at least 3"),
        ("tsp", {"layout": "square"}, r"problem\.layout is 'square'; it must be one of random, circle"),
        ("pbt_toy", {"steps": 0}, r"problem\.steps is 0"),
        ("pbt_toy", {"lr": 0.7}, r"problem\.lr is 0\.7"),
        ("arm", {"joints": 1}, r"problem\.joints is 1"),
        ("projection", {"dim": 1}, r"problem\.dim is 1"),
        ("waiting", {"mean_s": -1}, r"problem\.mean_s is -1\.0"),
        ("waiting", {"sigma": -1}, r"problem\.sigma is -1\.0"),
        ("waiting", {"kills": 2}, r"problem\.kills is 2\.0; it must lie in \[0, 1\]"),
        ("waiting", {"raises": 0.6, "hangs": 0.6}, r"problem\.raises is 0\.6; .* it is 1\.2, above 1"),
        ("waiting", {"inner": 3}, r"problem\.inner is 3; it must be a Evaluator"),
    ],
)
def test_a_bad_value_is_refused_by_its_key(option: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build({**node(option), **changes}, "problem")
