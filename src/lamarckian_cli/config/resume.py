"""`lamarck train resume=RUN`, and `evolve`: the configuration of a run, with the few keys that may change.

A resumed run continues as if it had not stopped, so what defines it stays: only how long it
goes on, where it runs and how often it saves can be given anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from yaml import YAMLError

from lamarckian_cli.config.build import unknown_key
from lamarckian_cli.config.compose import prepare, readable_errors
from lamarckian_cli.errors import ConfigError, RunError

GROUPS = ("budget", "cluster")
EXAMPLES = {"budget": "budget.env_steps=5000000", "cluster": "cluster.kind=local cluster.actors=2"}


@dataclass(frozen=True)
class Resuming:
    """One command that goes on with runs."""

    command: str
    mark: str  # a group that only the runs of this command have
    keys: tuple[str, ...]  # that may change, beside those of GROUPS

    @property
    def allowed(self) -> str:
        return ", ".join([*(f"{group}.*" for group in GROUPS), *self.keys])


TRAINING = Resuming(
    "train",
    "algo",
    (
        "run.checkpoint_every_s",
        "run.checkpoint_every_env_steps",
        "run.keep_checkpoints",
        "run.log_every_s",
    ),
)
EVOLUTION = Resuming(
    "evolve",
    "evo",
    (
        "evo.evaluations",
        "evo.target",
        "evo.deadline_s",
        "evo.retries",
        "run.checkpoint_every_s",
        "run.keep_checkpoints",
        "run.log_every_s",
        "run.plots",
    ),
)


def resume_target(arguments: Sequence[str]) -> Path | None:
    """What `resume=RUN` names, or None where a new run is meant."""
    for word in reversed(arguments):
        name, equals, value = word.lstrip("+").partition("=")
        if equals and name == "resume":
            value = value.strip("'\"")
            if not value:
                raise ConfigError("resume is empty; give the folder of a run, its name in runs/, or last")
            return Path(value) if value.lower() not in ("null", "none") else None
    return None


def resumed_config(
    folder: Path, arguments: Sequence[str], resuming: Resuming = TRAINING
) -> tuple[DictConfig, str | None]:
    """The run's configuration with the overrides applied; and its text if `--cfg job` asks for it."""
    words, show = _without_flags(arguments)
    config = _load(folder)
    for other in (TRAINING, EVOLUTION):
        if other.mark in config and resuming.mark not in config:
            raise RunError(
                f"resume is {str(folder)!r}, which lamarck {other.command} made; "
                f"go on with lamarck {other.command} resume={folder}"
            )
    with readable_errors():
        overrides = OverridesParser.create().parse_overrides(words)
    for override in overrides:
        _apply(config, override, folder, resuming)
    config.run.dir = str(folder)
    config.resume = str(folder)
    prepare(None)
    return config, OmegaConf.to_yaml(config) if show else None


def _without_flags(arguments: Sequence[str]) -> tuple[list[str], bool]:
    words = [w for w in arguments if not w.lstrip("+").startswith("resume=")]
    show = False
    for flag in ("--cfg=job", "-c=job"):
        if flag in words:
            words.remove(flag)
            show = True
    for flag in ("--cfg", "-c"):
        if flag in words:
            at = words.index(flag)
            del words[at : at + 2]
            show = True
    for word in words:
        if word in ("-m", "--multirun"):
            raise ConfigError(f"{word} cannot go with resume=...; resume one run at a time")
        if word.startswith("-"):
            raise ConfigError(f"{word} cannot go with resume=...; only overrides and --cfg job can")
    return words, show


def _load(folder: Path) -> DictConfig:
    path = folder / "config.yaml"
    if not path.is_file():
        raise RunError(f"resume is {str(folder)!r}; there is no config.yaml in it: give the folder of a run")
    try:
        config = OmegaConf.load(path)
    except (YAMLError, OSError, UnicodeDecodeError) as error:
        raise RunError(f"resume is {str(folder)!r}; its config.yaml cannot be read: {error}") from error
    if not isinstance(config, DictConfig) or "run" not in config:
        raise RunError(f"resume is {str(folder)!r}; its config.yaml is not one of a run")
    return config


def _apply(config: DictConfig, override: Override, folder: Path, resuming: Resuming) -> None:
    key = override.get_key_element().lstrip("+~")
    group, _, name = key.partition(".")
    if key in GROUPS:
        raise ConfigError(
            f"{key} is given as a whole, which cannot change when a run is resumed; give the values that are "
            f"to be others, such as {EXAMPLES[key]} (`lamarck train --help` lists them)"
        )
    if not (group in GROUPS and name) and key not in resuming.keys:
        raise ConfigError(
            f"{key} cannot change when a run is resumed (resume={folder}); these can: {resuming.allowed}. "
            "Leave it out, or start a new run"
        )
    if override.is_delete() or override.is_sweep_override():
        raise ConfigError(f"{override.input_line!r} cannot go with resume=...; give {key} one value")
    if not override.is_add() and OmegaConf.select(config, group) is not None and name not in config[group]:
        raise unknown_key(group, name, (str(k) for k in config[group]))
    OmegaConf.update(config, key, override.value(), force_add=True)
