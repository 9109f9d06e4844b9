"""What `lamarck evolve` composes: every strategy and problem, and the keys that classes read."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from lamarckian_cli.config import compose
from lamarckian_cli.config.build import TARGET, keys_of, locate
from lamarckian_cli.config.catalogue import GROUPS, OF_EVOLUTION, groups, groups_of, keys
from lamarckian_cli.config.folders import conf_dir
from lamarckian_cli.launch.evolution.settings import Budget, Run, Workflow
from lamarckian_cli.launch.evolution.wiring import WORKFLOW, job_of

NEEDED = {"function": ["problem.function=math.fsum", "problem.dim=3", "problem.low=0", "problem.high=1"]}


def composed(*overrides: str) -> dict[str, Any]:
    config = compose.compose([*overrides, "run.dir=x"], config_name=compose.EVOLVE)
    return compose.plain(config)


@pytest.mark.parametrize("option", groups()["evo"], ids=lambda o: o.name)
def test_every_strategy_composes_and_its_file_has_its_keys(option) -> None:
    overrides = [f"evo={option.name}", "run.dir=x"]
    job = job_of(overrides)
    node = composed(*overrides)["evo"]
    own = set(node) - set(WORKFLOW) - {TARGET}
    assert own == set(keys_of(type(job.strategy)))
    # YAML repeats the defaults, so that a class in Python and a command are the same.
    assert job.strategy == type(job.strategy)()


@pytest.mark.parametrize("option", groups()["problem"], ids=lambda o: o.name)
def test_every_problem_is_made_and_its_file_has_its_keys(option) -> None:
    overrides = [f"problem={option.name}", *NEEDED.get(option.name, []), "run.dir=x"]
    evaluator = job_of(overrides).problem.make()
    node = composed(*overrides)["problem"]
    assert set(node) - {TARGET} <= set(keys_of(locate(node, "problem")))
    assert evaluator.describe().objectives


def test_settings_and_the_file_have_the_same_keys_and_defaults() -> None:
    values = composed()
    job = job_of(["run.dir=x"])
    assert {k for k in values["evo"] if k in WORKFLOW} == {f.name for f in dataclasses.fields(Workflow)}
    assert job.workflow == Workflow()
    assert (set(values["budget"]), job.budget) == (set(keys_of(Budget)), Budget())
    assert (set(values["run"]), job.run) == (set(keys_of(Run)), Run(dir="x"))


def test_every_key_has_a_comment() -> None:
    bare = [key.name for key in keys(conf_dir() / "evolve.yaml") if key.value and not key.comment]
    assert not bare


def test_no_group_of_the_one_command_is_offered_for_the_other() -> None:
    train, evolve = set(groups_of("train")), set(groups_of("evolve"))
    assert set(OF_EVOLUTION) <= evolve
    assert train & evolve == {"cluster"}
    assert train | evolve == set(groups()) <= set(GROUPS)


def test_groups_of_ones_own_are_offered_for_both(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.yaml").write_text("# Mine.\nx: 1\n")
    assert "mine" in groups_of("train", tmp_path)
    assert "mine" in groups_of("evolve", tmp_path)
