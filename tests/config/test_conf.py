"""Every file under conf/: its keys are read by a class, every field has a documented key."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import football
import pytest
import yaml

from lamarckian_cli.config import compose
from lamarckian_cli.config.build import TARGET, keys_of, locate
from lamarckian_cli.config.catalogue import description, groups, groups_of, keys
from lamarckian_cli.config.folders import conf_dir
from lamarckian_cli.errors import ConfigError, MissingPackage
from lamarckian_cli.launch.settings import Budget, Cluster, Evaluation, Players, Run
from lamarckian_cli.launch.wiring import KEYS, build_job

FILES = sorted(conf_dir().rglob("*.yaml"))
SETTINGS = {"budget": Budget, "cluster": Cluster, "evaluation": Evaluation, "players": Players, "run": Run}
OPTIONS = [(o.group, o.name) for options in groups_of("train").values() for o in options]
NEEDED = {
    "gym": "env.id=CartPole-v1",
    "atari": "env.id=ALE/Breakout-v5",
    "pettingzoo": "env.target=pettingzoo.classic.rps_v2",
}


def composed(*overrides: str) -> dict[str, Any]:
    """A composed configuration without the parts that only a running job can resolve."""
    return compose.plain(compose.compose([*overrides, "run.dir=x"]))


def overrides_for(group: str, name: str) -> list[str]:
    given = [] if group == "tuned" else [f"{group}={name}"]
    if group == "tuned" and name != "none":
        env, _, algo = name.rpartition("_")
        given = [f"env={env}", f"algo={algo}"]
    if group == "env" and name in NEEDED:
        given.append(NEEDED[name])
    return [*given, "opponent=x"] if name == "frozen" else given


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(conf_dir())))
def test_begins_with_a_description_and_comments_its_keys(path: Path) -> None:
    assert description(path)
    if path.relative_to(conf_dir()).parts[0] in ("tuned", "experiment"):
        return  # these set keys that are documented where they are declared
    redefines = "defaults:" in path.read_text() and path.name not in ("config.yaml", "evolve.yaml")
    for key in keys(path):
        assert key.comment or key.name == TARGET or redefines or not key.value, f"{path}: {key.name}"


@pytest.mark.parametrize(("group", "name"), OPTIONS)
def test_composes_into_a_job(group: str, name: str) -> None:
    config = compose.compose([*overrides_for(group, name), "run.dir=x"])
    try:
        job = build_job(config)
    except MissingPackage as error:
        if "gfootball" not in str(error) or not football.missing():
            raise
        pytest.skip(str(error))
    except ConfigError as error:
        raise AssertionError(f"{group}={name}: {error}") from error
    assert set(job.config) <= set(KEYS)


@pytest.mark.parametrize("group", ["algo", "env", "model"])
def test_components_and_their_files_have_the_same_keys(group: str) -> None:
    for option in groups()[group]:
        values = composed(*overrides_for(group, option.name))[group]
        assert set(values) - {TARGET} == set(keys_of(locate(values, group))), option.path


@pytest.mark.parametrize("group", sorted(SETTINGS))
def test_settings_and_their_files_have_the_same_keys(group: str) -> None:
    assert set(composed()[group]) == set(keys_of(SETTINGS[group]))


@pytest.mark.parametrize("algo", ["ppo", "impala"])
def test_yaml_repeats_the_defaults_of_the_dataclass(algo: str) -> None:
    config = compose.compose([f"algo={algo}", "tuned=none", "run.dir="])
    config.run.dir = "x"
    job = build_job(config)
    assert job.algo == type(job.algo)()
    assert job.model == type(job.model)()
    for name, cls in SETTINGS.items():
        assert getattr(job, name) == dataclasses.replace(cls(), **({"dir": "x"} if name == "run" else {}))


@pytest.mark.parametrize(
    ("experiment", "policy", "critic"),
    [
        ("paper/pendulum", (256, 128), (128, 64)),
        ("paper/pong_image", (256,), ()),
        ("paper/pong_vector", (256, 128), ()),
    ],
)
def test_table_iii(experiment: str, policy: tuple[int, ...], critic: tuple[int, ...]) -> None:
    job = build_job(compose.compose([f"experiment={experiment}", "run.dir=x"]))
    algo = job.algo
    assert (algo.discount, algo.clip, algo.lr, algo.batch_size, algo.reuse) == (0.99, 0.2, 0.01, 8192, 1)
    assert (algo.policy_weight, algo.value_weight, algo.entropy_weight) == (1, 0.5, 0.01)
    assert algo.minibatch_size is None
    assert algo.normalize_advantages
    assert (job.model.policy, job.model.critic, job.model.shared) == (policy, critic, True)
    assert job.model.activation == "leaky_relu"
    assert job.model.conv == ((32, 4, 2),) * 4


def test_a_composed_job_names_its_run_folder() -> None:
    assert Path(build_job(compose.compose(["env=cartpole"])).run.dir).name.startswith("cartpole-ppo-")


def test_no_key_is_given_twice_in_a_file() -> None:
    class Strict(yaml.SafeLoader):
        pass

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
        names = [loader.construct_object(key) for key, _ in node.value]
        assert len(names) == len(set(names)), names
        return dict(zip(names, (loader.construct_object(v, deep=True) for _, v in node.value), strict=True))

    Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    for path in FILES:
        yaml.load(path.read_text(), Strict)
