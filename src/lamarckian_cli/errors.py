"""Every error that a user can meet. The message names what, its value, and the remedy.

    LamarckError
    ├── ConfigError         a key, a value or a combination that cannot work
    ├── MissingPackage      something optional is not installed; the message has the command
    ├── RunError            a run folder or checkpoint that cannot be used
    ├── MDPError            a game that breaks the interface, crashed or hangs
    ├── EvaluatorError      an evaluator that breaks the interface
    ├── TransportError      a peer that is not there, bytes that are not ours
    └── ClusterError        the machines at hand cannot carry the job

The command line prints the message alone and exits with status 2.
"""

import shlex
import sys
from pathlib import Path


class LamarckError(Exception):
    """Base of all of them: a clear message, no traceback for the user."""


class ConfigError(LamarckError):
    """A configuration that cannot work: names the key, its value and the remedy."""


class MissingPackage(LamarckError):
    """An optional package is missing: names it and the command that brings it."""


class RunError(LamarckError):
    """A run folder or a checkpoint that is missing, damaged, taken or not writable."""


class MDPError(LamarckError):
    """A game that breaks the MDP interface: names the seat, expected and actual values."""


class EvaluatorError(LamarckError):
    """An evaluator breaks its interface: names it, expected and actual values."""


class TransportError(LamarckError):
    """A channel that cannot be opened, a peer that does not answer, a message that lies."""


class ClusterError(LamarckError):
    """Ray or the machines cannot give what the job asks for: names both numbers."""


def require(condition: bool, key: str, value: object, remedy: str) -> None:
    """Raise a ConfigError `key is value; remedy` unless `condition` holds; the value as YAML writes it."""
    if not condition:
        shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
        raise ConfigError(f"{key} is {shown}; {remedy}")


def pip_install(packages: str) -> str:
    """The command that brings packages to this interpreter, as one would type it from the current folder."""
    pip = Path(sys.executable).with_name("pip")
    if not pip.exists():
        return f"{_typed(Path(sys.executable))} -m pip install {packages}"
    return f"{_typed(pip)} install {packages}"


def _typed(program: Path) -> str:
    here = Path.cwd()
    return shlex.quote(str(program.relative_to(here) if program.is_relative_to(here) else program))
