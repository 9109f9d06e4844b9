"""A user's function by its dotted path, such as my_module.f; every fault is a message of one line."""

from __future__ import annotations

import difflib
import importlib
import types
from collections.abc import Callable
from typing import Any

from lamarckian_cli.errors import ConfigError, MissingPackage, pip_install

KEY = "problem.function"


def locate_function(path: str) -> Callable[..., Any]:
    """Import what `path` names; raises ConfigError, or MissingPackage for a package that its module needs."""
    module_name, _, name = path.rpartition(".")
    if not module_name or not name:
        raise ConfigError(f"{KEY} is {path!r}; write module and function, such as my_module.f")
    module = _import(module_name, path)
    found = getattr(module, name, None)
    if found is None:
        callables = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        close = difflib.get_close_matches(name, callables, n=1, cutoff=0.6)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ConfigError(f"{KEY} is {path!r}; module {module_name} has no function of that name{hint}")
    if not callable(found):
        raise ConfigError(f"{KEY} is {path!r}; that is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def _import(module_name: str, path: str) -> types.ModuleType:
    try:
        return importlib.import_module(module_name)
    except SyntaxError as error:
        raise ConfigError(f"{KEY} is {path!r}; {error.filename}, line {error.lineno}: {error.msg}") from error
    except SystemExit as stop:
        raise ConfigError(
            f"{KEY} is {path!r}; module {module_name} calls sys.exit({stop.code!r}) when it is imported: "
            'put that under if __name__ == "__main__"'
        ) from stop
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(missing + "."):
            raise ConfigError(
                f"{KEY} is {path!r}; there is no module {missing} here. Put its folder into PYTHONPATH, "
                "or start from the folder that has it"
            ) from error
        raise MissingPackage(
            f"{KEY} is {path!r}; it needs the package {missing}, which is not installed: "
            f"{pip_install(missing.partition('.')[0])}"
        ) from error
    except Exception as error:
        raise ConfigError(
            f"{KEY} is {path!r}; importing {module_name} raised {type(error).__name__}: {error}"
        ) from error
