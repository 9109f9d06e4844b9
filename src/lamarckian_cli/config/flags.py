"""Hydra's own flags, checked before Hydra sees them: it would answer with pages of usage."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lamarckian_cli.config.build import suggestion
from lamarckian_cli.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag. `takes`: what follows it, or nothing; `choices`: all that may follow it."""

    long: str
    short: str
    help: str
    takes: str = ""
    choices: tuple[str, ...] = ()
    optional: bool = False  # what follows may be left out
    alone: bool = False  # cannot go with another flag of this kind


INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
FLAGS = (
    Flag("--multirun", "-m", "One job for each combination of values, such as seed=0,1,2", alone=True),
    Flag(
        "--cfg",
        "-c",
        "Print the composed configuration and stop",
        "WHAT",
        ("job", "hydra", "all"),
        alone=True,
    ),
    Flag("--package", "-p", "Print this part of it alone", "KEY"),
    Flag("--resolve", "", "Print it with every reference resolved"),
    Flag("--info", "-i", "Print where the configuration comes from", "WHAT", INFO, optional=True, alone=True),
    Flag("--config-dir", "-cd", "A folder with groups and options of your own", "DIR"),
    Flag("--config-name", "-cn", "Another primary file", "NAME"),
    Flag("--config-path", "-cp", "Another folder in place of ours", "DIR"),
    Flag("--run", "-r", "One job; this is the default", alone=True),
    Flag("--shell-completion", "-sc", "Completion of groups and keys: install=bash", alone=True),
    Flag("--hydra-help", "", "Hydra's own help"),
)
_BY_NAME = {name: flag for flag in FLAGS for name in (flag.long, flag.short) if name}


def check_flags(arguments: Sequence[str], program: str = "lamarck train") -> tuple[list[str], list[str]]:
    """Overrides, and flags with what follows them, told apart.

    Raises a ConfigError for a flag that is unknown, lacks its value, or cannot go with another.
    """
    given: list[Flag] = []
    overrides: list[str] = []
    flags: list[str] = []
    position = 0
    while position < len(arguments):
        word = arguments[position]
        position += 1
        if not word.startswith("-") or re.match(r"-[\d.]", word):
            overrides.append(word)
            continue
        name, equals, value = word.partition("=")
        flag = _BY_NAME.get(name)
        if flag is None:
            raise ConfigError(f"{name} is no option of {program}{suggestion(name, _BY_NAME)}; see --help")
        given.append(flag)
        flags.append(word)
        if not flag.takes:
            continue
        follows = arguments[position] if position < len(arguments) else ""
        if not equals and not (flag.optional and follows not in flag.choices):
            value = follows
            flags.append(follows)
            position += 1
        _check_value(flag, value)
    _check_together(given)
    return overrides, flags


def _check_value(flag: Flag, value: str) -> None:
    if not value and flag.optional:
        return
    if not value or value.startswith("-"):
        choices = f", one of {', '.join(flag.choices)}" if flag.choices else ""
        raise ConfigError(f"{flag.long} needs {flag.takes} after it{choices}")
    if flag.choices and value not in flag.choices:
        raise ConfigError(f"{flag.long} is {value!r}; choose one of {', '.join(flag.choices)}")


def _check_together(given: Sequence[Flag]) -> None:
    alone = list(dict.fromkeys(flag.long for flag in given if flag.alone))
    if len(alone) > 1:
        raise ConfigError(f"{' and '.join(alone)} cannot go together; leave one out")
    names = {flag.long for flag in given}
    if "--resolve" in names and "--cfg" not in names:
        raise ConfigError("--resolve goes with --cfg alone; add --cfg job")
