"""What Hydra and OmegaConf raise, said in one line: the key, its value and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep
from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import (
    InterpolationKeyError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)
from yaml import MarkedYAMLError

from lamarckian_cli.config.build import TARGET, suggestion, unknown_key
from lamarckian_cli.config.catalogue import GROUPS, option_names
from lamarckian_cli.config.flags import check_flags
from lamarckian_cli.config.folders import config_dir_of


def explain(error: Exception, arguments: Sequence[str] = ()) -> str:
    """One clear message for an error of Hydra, OmegaConf or the YAML reader; `arguments` were given."""
    if isinstance(error, OverrideParseException):
        return (
            f"{error.override!r} cannot be read as an override; write key=value, such as algo.lr=1e-3, "
            "and quote values with spaces, commas or brackets: 'model.policy=[256,128]'"
        )
    if isinstance(error, MissingConfigException):
        return _missing_option(error, arguments)
    if isinstance(error, MarkedYAMLError):
        return _yaml(error)
    for cause in _causes(error):
        if isinstance(cause, OmegaConfBaseException):
            return _omegaconf(cause, str(error), arguments)
    return _composition(str(error), arguments)


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__
    return found


def _missing_option(error: MissingConfigException, arguments: Sequence[str]) -> str:
    path = error.missing_cfg_file or "?"
    group, _, option = path.partition("/")
    if group == "hydra":
        group, _, option = path.rpartition("/")
        options = [str(o) for o in error.options or ()]
    else:
        options = option_names(group, config_dir_of(arguments))
    if not option or "primary config" in str(error):
        return (
            f"there is no configuration file {path}.yaml; leave --config-name out, or add --config-dir FOLDER"
        )
    listed = ", ".join(options) or "none; add a folder with --config-dir"
    return (
        f"{group} is {option!r}; there is no such option{suggestion(option, options)} (available: {listed})"
    )


def _yaml(error: MarkedYAMLError) -> str:
    mark = error.problem_mark
    where = f"{mark.name}, line {mark.line + 1}" if mark is not None else "a configuration file"
    return f"{where} is not valid YAML: {error.problem or error.context}"


def _omegaconf(error: OmegaConfBaseException, message: str, arguments: Sequence[str]) -> str:
    key = str(error.full_key or error.key or "")
    parent: Any = error.parent_node
    if isinstance(error, MissingMandatoryValue):
        return f"{key} is not given, and has no default; add {key}=..."
    if key == "hydra.run.dir" and "'None'" in str(error):
        return "run.dir is null; give a folder, or leave it out"
    if isinstance(error, InterpolationKeyError | InterpolationResolutionError):
        return f"{key} refers to something that cannot be resolved: {_first_line(error)}"
    if isinstance(parent, DictConfig) and not parent._is_none() and key:
        group, _, name = key.rpartition(".")
        known = [str(k) for k in parent if k not in ("hydra", TARGET)]
        trains = not group and "algo" in known
        inside = [f"{k}.{name}" for k in known if not group and name in _keys(parent[k])]
        if inside:
            return f"{name} is not a known key; did you mean {' or '.join(inside)}?"
        return str(unknown_key(group, name, [*known, "experiment", "tuned"] if trains else known))
    return _composition(message, arguments)


def _keys(node: Any) -> list[str]:
    return [str(key) for key in node] if isinstance(node, DictConfig) and not node._is_none() else []


def _composition(message: str, arguments: Sequence[str]) -> str:
    ambiguous = re.match(r"Ambiguous value for argument '([^']*)'", message)
    if ambiguous:
        key, _, value = ambiguous[1].partition("=")
        return (
            f"{key} is {value!r}: several values; write '{key}=[{value}]' for a list, "
            "or add -m to run one job each"
        )
    group = re.match(r"Could not override '([^']*)'\.\s+No match in the defaults list", message)
    if group:
        return f"{group[1]} is no group of this command; `lamarck list` names them"
    if "Config group override must be" in message:
        name, given = _no_option(arguments, lambda value: not isinstance(value, str | list))
        return f"{name} is {given}; give one of its options, or leave it out ({_available(name, arguments)})"
    if message.startswith("Error resolving interpolation '${env}_${algo}'"):
        name, given = _no_option(arguments, lambda value: not isinstance(value, str))
        return (
            f"{name} is {given}; it takes exactly one of its options ({_available(name, arguments)}), "
            "and -m runs one job for each of several"
        )
    delete = re.match(r"Could not delete(?: from config)?\.? ?(.*)", message)
    if delete:
        return f"there is nothing to delete: {delete[1]}"
    if "does not support sweep type" in message:
        return "the basic sweeper takes lists, choice(...) and range(...) alone; plugins bring more"
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return "; ".join(lines) or "the configuration cannot be composed"


def _no_option(arguments: Sequence[str], is_wrong: Callable[[Any], bool]) -> tuple[str, str]:
    """The group that Hydra complains of without naming it, and what was given for it."""
    overrides, _ = check_flags(arguments)
    for override in OverridesParser.create().parse_overrides(overrides):
        group, value = override.key_or_group, override.value()
        values = value.list if isinstance(value, ChoiceSweep) else [value]
        if group in GROUPS and any(map(is_wrong, values)):
            return group, "left out" if override.is_delete() else str(override.input_line).partition("=")[2]
    return "a group", "no option"


def _available(group: str, arguments: Sequence[str]) -> str:
    options = option_names(group, config_dir_of(arguments))
    return f"available: {', '.join(options) or 'none; add a folder with --config-dir'}"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
