"""Where the configuration groups are: ours, then those that the user adds.

Ours lie in `conf/` at the root of a source checkout and inside the package in a wheel. A
user adds folders by `--config-dir`, and by LAMARCK_CONFIG_PATH: folders, or packages as
`pkg://my_package.conf`, separated as in PATH. An option that exists twice is read from ours;
added groups and options stand beside them.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from lamarckian_cli.errors import ConfigError

VARIABLE = "LAMARCK_CONFIG_PATH"


def conf_dir() -> Path:
    """The folder of our own groups."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "conf", package.parent.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return folder
    raise ConfigError(
        f"the configuration files of lamarck are missing beside {package}; install the package again"
    )


def added_entries() -> list[str]:
    """What LAMARCK_CONFIG_PATH names: absolute folders, and `pkg://` packages as they are."""
    # A colon separates, except the one in `pkg://`.
    entries = [
        e for e in re.split(rf"{re.escape(os.pathsep)}(?!//)", os.environ.get(VARIABLE, "")) if e.strip()
    ]
    result = []
    for entry in entries:
        if entry.startswith("pkg://"):
            result.append(entry)
            continue
        result.append(str(_existing(Path(entry), VARIABLE)))
    return result


def all_folders(config_dir: Path | None = None) -> list[Path]:
    """Every folder that is searched, ours first."""
    folders = [conf_dir()]
    if config_dir is not None:
        folders.append(_existing(config_dir, "--config-dir"))
    for entry in added_entries():
        folder = _package_folder(entry) if entry.startswith("pkg://") else Path(entry)
        if folder is not None:
            folders.append(folder)
    return folders


def config_dir_of(arguments: Sequence[str]) -> Path | None:
    """The folder given by `--config-dir`, in any of the ways to write it."""
    for i, word in enumerate(arguments):
        if word in ("--config-dir", "-cd") and i + 1 < len(arguments):
            return Path(arguments[i + 1])
        if word.startswith("--config-dir="):
            return Path(word.partition("=")[2])
    return None


def expand_home(words: Sequence[str]) -> list[str]:
    """Put the home folder in place of `~` in `key=~/...`, which a shell leaves to the program."""
    home = str(Path.home())
    return [
        re.sub(r"""^([^=~]+=['"]?)~(?=/|['"]?$)""", lambda match: match[1] + home, word) for word in words
    ]


def open_user_code(config_dir: Path | None = None, remembered: Sequence[Path] = ()) -> None:
    """Let `_target_` name classes in the current folder and beside the user's configuration.

    The folders that a run has `remembered` go before these. All are put last on the path, so
    nothing there can hide an installed package; PYTHONPATH carries them to the processes that
    we start.
    """
    folders = [*(folder for folder in remembered if folder.is_dir()), Path.cwd()]
    if config_dir is not None:
        folders += [config_dir.resolve(), config_dir.resolve().parent]
    known = {str(Path(p).resolve()) for p in sys.path if p}
    added = [str(f) for f in folders if str(f) not in known]
    sys.path.extend(added)
    before = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    os.environ["PYTHONPATH"] = os.pathsep.join([*before, *(f for f in map(str, folders) if f not in before)])


def user_code() -> list[Path]:
    """The folders that the user's classes may come from, as PYTHONPATH has them by now."""
    named = (Path(p).resolve() for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)
    return list(dict.fromkeys(named))


def _existing(folder: Path, origin: str) -> Path:
    if not folder.is_dir():
        raise ConfigError(f"{origin} names {str(folder)!r}; there is no such folder")
    return folder.resolve()


def _package_folder(entry: str) -> Path | None:
    name = entry.removeprefix("pkg://").replace("/", ".")
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(f"{VARIABLE} names {entry!r}; there is no package {name} here")
    return Path(next(iter(spec.submodule_search_locations)))
