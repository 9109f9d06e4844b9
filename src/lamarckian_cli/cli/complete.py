"""Completion of a whole `lamarck` line: commands, and for those that Hydra composes groups, options, keys.

`eval "$(lamarck train -sc install=bash)"` in the shell's start file switches it on; zsh and
fish likewise. Typer's `--install-completion` completes the commands and their options alone.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Sequence

from lamarckian_cli.errors import ConfigError, LamarckError

_BASH = """\
_lamarck_complete() {
    local line="${COMP_LINE:0:$COMP_POINT}"
    local word="${line##* }"
    local choices
    choices=$(COMP_LINE="$line" lamarck train -sc query=bash 2>/dev/null)
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
    # The shell replaces only what follows the last break, and = may be one.
    if [[ "$word" == *=* && "$COMP_WORDBREAKS" == *=* ]]; then
        local before="${word%"${word##*=}"}"
        COMPREPLY=("${COMPREPLY[@]#"$before"}")
    fi
}
complete -o nospace -o default -F _lamarck_complete lamarck
"""
_ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n" + _BASH
_FISH = """\
complete -c lamarck -f -a '(env COMP_LINE=(commandline -cp) lamarck train -sc query=fish)'
"""
_INSTALL = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_UNINSTALL = {
    "bash": "complete -r lamarck; unset -f _lamarck_complete\n",
    "zsh": "compdef -d lamarck; unset -f _lamarck_complete\n",
    "fish": "complete -c lamarck -e\n",
}
FLAGS = ("-sc", "--shell-completion")
COMPOSED = {"train": "config", "evolve": "evolve"}
"""The commands that Hydra composes a configuration for, and their primary files."""


def shell_completion(arguments: Sequence[str], commands: Sequence[str]) -> None:
    """Answer `-sc install=SHELL`, `uninstall=SHELL` and `query=SHELL`; `commands` are lamarck's own."""
    words = [word for word in arguments if word not in FLAGS]
    what, _, shell = (words[0] if len(words) == 1 else "").partition("=")
    if what not in ("install", "uninstall", "query") or shell not in _INSTALL:
        raise ConfigError(
            f"-sc is followed by {' '.join(words)!r}; give install=, uninstall= or query= "
            f"with one of {', '.join(_INSTALL)}"
        )
    if what == "query":
        matches = complete(os.environ.get("COMP_LINE", ""), commands)
        print((" " if shell != "fish" else "\n").join(matches))
        return
    print((_INSTALL if what == "install" else _UNINSTALL)[shell], end="")


def complete(line: str, commands: Sequence[str]) -> list[str]:
    """What the last word of `line`, which begins with the program, can become."""
    words = line.split()
    if line.endswith(" ") or not words:
        words.append("")
    if len(words) <= 2:
        return sorted(c for c in commands if c.startswith(words[-1]))
    if words[1] not in COMPOSED:
        return []
    return _overrides(" ".join(["lamarck", *words[2:]]), COMPOSED[words[1]])


def _overrides(line: str, config_name: str) -> list[str]:
    """Hydra's own answer; it reads the line from the environment and prints."""
    from unittest import mock

    from lamarckian_cli.config.catalogue import option_names
    from lamarckian_cli.config.compose import run_hydra
    from lamarckian_cli.config.folders import config_dir_of

    last = line.rpartition(" ")[2]
    group, equals, _ = last.partition("=")
    options = option_names(group, config_dir_of(line.split())) if equals else []
    if options:  # Hydra would leave out those in folders, such as experiment=paper/pendulum
        return [f"{group}={option}" for option in options if f"{group}={option}".startswith(last)]
    answer = io.StringIO()
    try:
        with mock.patch.dict(os.environ, {"COMP_LINE": line}), contextlib.redirect_stdout(answer):
            run_hydra(_no_task, ["-sc", "query=bash"], program="lamarck", config_name=config_name)
    except (LamarckError, SystemExit):
        return []  # a half-written line is no error
    wants_hydra = last.startswith("h")
    matches = answer.getvalue().split()
    return sorted(m for m in matches if m.startswith(last) and (wants_hydra or not m.startswith("hydra")))


def _no_task(config: object) -> None:
    """Completion composes, and runs nothing."""
