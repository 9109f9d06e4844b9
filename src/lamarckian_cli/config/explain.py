"""What Hydra and OmegaConf raise, said in one line: the key, its value and the remedy."""

from __future__ import annotations

import re
from typing import Any

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import (
    InterpolationKeyError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)
from yaml import MarkedYAMLError

from lamarckian_cli.config.build import suggestion, unknown_key


def explain(error: Exception) -> str:
    """One clear message for an error of Hydra, OmegaConf or the YAML reader."""
    if isinstance(error, OverrideParseException):
        return (
            f"{error.override!r} cannot be read as an override; write key=value, such as algo.lr=1e-3, and quote "
            "values with spaces, commas or brackets: 'model.policy=[256,128]'"
        )
    if isinstance(error, MissingConfigException):
        return _missing_option(error)
    if isinstance(error, MarkedYAMLError):
        return _yaml(error)
    for cause in _causes(error):
        if isinstance(cause, OmegaConfBaseException):
            return _omegaconf(cause, str(error))
    return _composition(str(error))


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__
    return found


def _missing_option(error: MissingConfigException) -> str:
    path = error.missing_cfg_file or "?"
    group, _, option = path.rpartition("/")
    options = [str(o) for o in error.options or ()]
    if not group or "primary config" in str(error):
        return f"there is no configuration file {path}.yaml; leave --config-name out, or add --config-dir FOLDER"
    # `experiment=paper/x` is a missing option of `experiment`, not a group of that name.
    head, _, rest = path.partition("/")
    if not options and rest.count("/"):
        group, option = head, rest
    hint = suggestion(option, options)
    listed = ", ".join(options) if options else "none; add a folder with --config-dir"
    return f"{group} is {option!r}; there is no such option{hint} (available: {listed})"


def _yaml(error: MarkedYAMLError) -> str:
    mark = error.problem_mark
    where = f"{mark.name}, line {mark.line + 1}" if mark is not None else "a configuration file"
    return f"{where} is not valid YAML: {error.problem or error.context}"


def _omegaconf(error: OmegaConfBaseException, message: str) -> str:
    key = str(error.full_key or error.key or "")
    parent: Any = error.parent_node
    if isinstance(error, MissingMandatoryValue):
        return f"{key} is not given, and has no default; add {key}=..."
    if isinstance(error, InterpolationKeyError | InterpolationResolutionError):
        return f"{key} refers to something that cannot be resolved: {_first_line(error)}"
    if isinstance(parent, DictConfig) and not parent._is_none() and key:
        group, _, name = key.rpartition(".")
        return str(unknown_key(group, name, (str(k) for k in parent)))
    return _composition(message)


def _composition(message: str) -> str:
    ambiguous = re.match(r"Ambiguous value for argument '([^']*)'", message)
    if ambiguous:
        key, _, value = ambiguous[1].partition("=")
        return f"{key} is {value!r}: several values; write '{key}=[{value}]' for a list, or add -m to run one job each"
    group = re.match(r"Could not override '([^']*)'\.\s*\nNo match in the defaults list", message)
    if group:
        return f"{group[1]} is no group of the configuration; `lamarck train --help` lists them"
    delete = re.match(r"Could not delete(?: from config)?\.? ?(.*)", message)
    if delete:
        return f"there is nothing to delete: {delete[1]}"
    config_dir = re.match(r"Additional config directory '(.*)' not found", message)
    if config_dir:
        return f"--config-dir is {config_dir[1]!r}; there is no such folder"
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return "; ".join(lines) or "the configuration cannot be composed"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
