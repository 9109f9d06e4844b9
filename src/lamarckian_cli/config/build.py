"""From a node of the configuration to an object, strictly: `_target_` names the class.

A node's keys are the fields of a dataclass, or the parameters of a constructor. Every key
is checked against its annotation (see `values.py`), so a class is never handed a value that
its author did not expect, and the message names the key as it is written on the command line.
Ranges are the class's own business: it raises a ConfigError itself. Hydra is not needed
here, so actors build their MDP with this too.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import inspect
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from lamarckian_cli.config.values import convert, shown
from lamarckian_cli.errors import ConfigError, LamarckError, MissingPackage, pip_install

T = TypeVar("T")
TARGET = "_target_"


@dataclasses.dataclass(frozen=True, slots=True)
class _Parameter:
    """One key that a class takes."""

    annotation: Any
    required: bool


def build(node: Mapping[str, Any], key: str) -> Any:
    """The object that `node` describes by `_target_` and its keys; `key` is where it stands."""
    cls = locate(node, key)
    return build_as(cls, {name: value for name, value in node.items() if name != TARGET}, key)


def build_as(cls: type[T], values: Mapping[str, Any], key: str) -> T:
    """A `cls` made of `values`, each checked against the annotation of its parameter."""
    arguments = _bind(cls, values, key)
    try:
        return cls(**arguments)
    except LamarckError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key} ({cls.__name__}) cannot be made: {error}") from error
    except SystemExit as stop:
        raise ConfigError(
            f"{key} ({cls.__name__}) cannot be made: it calls sys.exit({stop.code!r}); "
            "let it raise an exception that says why"
        ) from stop


def check(node: Mapping[str, Any], key: str) -> type:
    """The class of `node`, after its keys have been checked; nothing is made."""
    cls = locate(node, key)
    _bind(cls, {name: value for name, value in node.items() if name != TARGET}, key)
    return cls


def locate(node: Mapping[str, Any], key: str) -> type:
    """Import the class that `node._target_` names."""
    path = node.get(TARGET) if isinstance(node, Mapping) else None
    if not isinstance(path, str) or not path.strip():
        raise ConfigError(
            f"{key}.{TARGET} is {shown(path)}; it must name a class, such as my_package.games.MyGame"
        )
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise ConfigError(
            f"{key}.{TARGET} is {path!r}; write module and class, such as my_package.games.{path}"
        )
    cls = getattr(_import(module_name, path, key), name, None)
    if not isinstance(cls, type):
        found = "no class of that name" if cls is None else f"{name} there is not a class"
        module = importlib.import_module(module_name)
        classes = [
            n for n, value in vars(module).items() if isinstance(value, type) and not n.startswith("_")
        ]
        hint = suggestion(name, classes)
        raise ConfigError(f"{key}.{TARGET} is {path!r}; module {module_name} has {found}{hint}")
    return cls


def keys_of(cls: type) -> tuple[str, ...]:
    """The keys that a node of this class may have."""
    return tuple(_parameters(cls)[0])


def suggestion(word: str, known: Iterable[str], prefix: str = "") -> str:
    """`; did you mean ...?` where a known word is close, else nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def unknown_key(key: str, name: str, known: Iterable[str]) -> ConfigError:
    """The message for a key that nothing reads; `key` is its group, or empty at the top."""
    names = list(known)
    prefix = f"{key}." if key else ""
    where = key or "the configuration"
    listed = f"{where} has: {', '.join(names)}" if names else f"{where} has no keys"
    return ConfigError(f"{prefix}{name} is not a known key{suggestion(name, names, prefix)} ({listed})")


def _import(module_name: str, path: str, key: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except SyntaxError as error:
        raise ConfigError(
            f"{key}.{TARGET} is {path!r}; {error.filename}, line {error.lineno}: {error.msg}"
        ) from error
    except SystemExit as stop:
        raise ConfigError(
            f"{key}.{TARGET} is {path!r}; module {module_name} calls sys.exit({stop.code!r}) when it is "
            'imported: put that under if __name__ == "__main__"'
        ) from stop
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name == missing or module_name.startswith(missing + "."):
            raise ConfigError(
                f"{key}.{TARGET} is {path!r}; there is no module {missing} here. Install its package, or put "
                "its folder into PYTHONPATH, or start from the folder that has it"
            ) from error
        raise MissingPackage(
            f"{key}.{TARGET} is {path!r}; it needs the package {missing}, which is not installed: "
            f"{pip_install(missing.partition('.')[0])}"
        ) from error


def _bind(cls: type, values: Mapping[str, Any], key: str) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{key} is {shown(values)}; it must be a group of keys: {', '.join(keys_of(cls))}")
    parameters, open_ended = _parameters(cls)
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        parameter = parameters.get(name)
        if parameter is None:
            if not open_ended:
                raise unknown_key(key, str(name), parameters)
            parameter = _Parameter(Any, required=False)
        arguments[name] = convert(_built(value, f"{key}.{name}"), parameter.annotation, f"{key}.{name}")
    for name, parameter in parameters.items():
        if parameter.required and name not in arguments:
            raise ConfigError(f"{key}.{name} is not given; {cls.__name__} needs it: add {key}.{name}=...")
    return arguments


def _built(value: Any, key: str) -> Any:
    """Nodes inside nodes: a mapping with its own `_target_` becomes an object first."""
    if isinstance(value, Mapping) and TARGET in value:
        return build(value, key)
    return value


def _parameters(cls: type) -> tuple[dict[str, _Parameter], bool]:
    """What the class takes by name, and whether it takes any other key besides."""
    if dataclasses.is_dataclass(cls):
        hints = _hints(cls)
        fields = [f for f in dataclasses.fields(cls) if f.init]
        return {f.name: _Parameter(hints.get(f.name, Any), _is_required(f)) for f in fields}, False
    if cls.__init__ is object.__init__:  # type: ignore[misc]
        return {}, False
    hints = _hints(cls.__init__)  # type: ignore[misc]
    kinds = inspect.Parameter
    signature = list(inspect.signature(cls).parameters.values())
    named = {
        p.name: _Parameter(hints.get(p.name, Any), p.default is kinds.empty)
        for p in signature
        if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
    }
    return named, any(p.kind is kinds.VAR_KEYWORD for p in signature)


def _is_required(f: dataclasses.Field[Any]) -> bool:
    return f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING


def _hints(owner: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(owner)
    except NameError:
        # An annotation imported under TYPE_CHECKING alone: its author has other checks.
        return {}
