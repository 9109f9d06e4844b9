"""The groups of the configuration with their options and keys, read from the YAML files' comments.

The first comment line of a file describes the option; the comment lines above a key
describe the key. Reads text alone, so help and lists answer at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lamarckian_cli.config.folders import all_folders

GROUPS = {
    "algo": "algorithms",
    "env": "environments",
    "model": "models",
    "cluster": "clusters",
    "players": "players",
    "selfplay": "self-play",
    "problem": "problems",
    "experiment": "experiments",
    "tuned": "tuned values",
    "evo": "strategies of evolution",
}
OF_EVOLUTION = ("evo", "problem", "cluster")
"""Groups that `lamarck evolve` composes; `lamarck train` composes all but the first two."""

_KEY = re.compile(r"^(?P<indent> *)(?P<name>[A-Za-z_]\w*):(?: +(?P<value>.*?))?\s*$")


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a group."""

    group: str
    name: str
    description: str
    path: Path


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a file, with its path inside the file, its value as written and its comment."""

    name: str
    value: str
    comment: str


def groups(config_dir: Path | None = None) -> dict[str, list[Option]]:
    """Every group with its options, the known groups first, then those that the user added."""
    found: dict[str, dict[str, Option]] = {}
    for folder in all_folders(config_dir):
        for option in _options(folder):
            found.setdefault(option.group, {}).setdefault(option.name, option)
    names = [g for g in GROUPS if g in found] + sorted(g for g in found if g not in GROUPS)
    return {group: sorted(found[group].values(), key=lambda o: o.name) for group in names}


def groups_of(command: str, config_dir: Path | None = None) -> dict[str, list[Option]]:
    """The groups that `lamarck train`, or evolve, composes, and those that the user added."""
    found = groups(config_dir)
    if command == "evolve":
        return {name: found[name] for name in found if name in OF_EVOLUTION or name not in GROUPS}
    return {name: options for name, options in found.items() if name not in OF_EVOLUTION[:2]}


def option_names(group: str, config_dir: Path | None = None) -> list[str]:
    """The options of one group."""
    return [option.name for option in groups(config_dir).get(group, [])]


def description(path: Path) -> str:
    """The first line of comment that is not a directive to Hydra."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            if line.strip():
                break
            continue
        text = line.lstrip("#").strip()
        if text and not text.startswith("@"):
            return text
    return ""


def keys(path: Path) -> Iterator[Key]:
    """The keys of a file in their order, with the comment above each; `defaults` and `hydra` apart."""
    comment: list[str] = []
    above: list[tuple[int, str]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.lstrip().startswith("#"):
            comment.append(line.strip().lstrip("#").strip())
            continue
        match = _KEY.match(line)
        if match is None:
            if not line.strip():
                comment = []
            continue
        indent = len(match["indent"])
        above = [(i, n) for i, n in above if i < indent] + [(indent, match["name"])]
        name = ".".join(n for _, n in above)
        if above[0][1] not in ("defaults", "hydra"):
            yield Key(name, match["value"] or "", " ".join(comment))
        comment = []


def _options(folder: Path) -> Iterator[Option]:
    for path in sorted([*folder.rglob("*.yaml"), *folder.rglob("*.yml")]):
        parts = path.relative_to(folder).with_suffix("").parts
        # `base/` holds what options share, and is not an option itself.
        if len(parts) < 2 or "base" in parts[:-1] or parts[0] == "hydra":
            continue
        yield Option(parts[0], "/".join(parts[1:]), description(path), path)
