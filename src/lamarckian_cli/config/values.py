"""One value of the configuration against the annotation of the parameter that takes it.

Kinder than Python where people type numbers: 1 is a fine `float`, and 1e6 a fine `int`.
Stricter where Python is lax: true is no number, and text is no list.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lamarckian_cli.errors import ConfigError

_UNIONS = (typing.Union, types.UnionType)
_SEQUENCES = (list, tuple, collections.abc.Sequence, collections.abc.Iterable)
_MAPPINGS = (dict, collections.abc.Mapping)


def convert(value: Any, annotation: Any, key: str) -> Any:
    """`value` as `annotation` asks for it, or a ConfigError that says what `key` must be."""
    origin = typing.get_origin(annotation) or annotation
    if annotation is Any or isinstance(annotation, typing.TypeVar):
        return value
    if origin in _UNIONS:
        return _convert_union(value, annotation, key)
    if origin is typing.Literal:
        choices = typing.get_args(annotation)
        return value if value in choices else _fail(value, annotation, key)
    if origin in _SEQUENCES:
        return _convert_sequence(value, annotation, origin, key)
    if origin in _MAPPINGS:
        return _convert_mapping(value, annotation, key)
    if origin in _SCALARS:
        return _SCALARS[origin](value, annotation, key)
    if isinstance(origin, type):
        return _convert_class(value, origin, annotation, key)
    return value


def describe(annotation: Any) -> str:
    """What an annotation accepts, in words: `a number, or null`."""
    origin = typing.get_origin(annotation) or annotation
    arguments = typing.get_args(annotation)
    if origin in _UNIONS:
        words = [describe(a) for a in arguments if a is not type(None)]
        return " or ".join(words) + (", or null" if type(None) in arguments else "")
    if origin is typing.Literal:
        return "one of " + ", ".join(str(a) for a in arguments)
    if origin in _SEQUENCES:
        inner = [a for a in arguments if a is not Ellipsis]
        if origin is tuple and inner and Ellipsis not in arguments:
            return f"a list of {len(inner)}: " + ", ".join(describe(a) for a in inner)
        return f"a list, each {describe(inner[0])}" if inner else "a list"
    if origin in _MAPPINGS:
        return "a group of keys, such as {key: value}"
    if isinstance(origin, type) and issubclass(origin, enum.Enum):
        return "one of " + ", ".join(member.name.lower() for member in origin)
    return _WORDS.get(origin, f"a {getattr(origin, '__name__', origin)}")


def shown(value: Any) -> str:
    """A value as YAML has it: null, true, [1, 2]."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)


def _fail(value: Any, annotation: Any, key: str) -> typing.NoReturn:
    raise ConfigError(f"{key} is {shown(value)}; it must be {describe(annotation)}")


def _convert_union(value: Any, annotation: Any, key: str) -> Any:
    arguments = typing.get_args(annotation)
    if value is None:
        return None if type(None) in arguments else _fail(value, annotation, key)
    # The type that the value already has goes before one that it could be converted to.
    exact = [a for a in arguments if isinstance(a, type) and type(value) is a]
    for option in [*exact, *(a for a in arguments if a is not type(None))]:
        try:
            return convert(value, option, key)
        except ConfigError:
            continue
    _fail(value, annotation, key)


def _convert_sequence(value: Any, annotation: Any, origin: Any, key: str) -> Any:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        _fail(value, annotation, key)
    arguments = typing.get_args(annotation)
    fixed = origin is tuple and arguments and Ellipsis not in arguments
    if fixed and len(arguments) != len(value):
        _fail(value, annotation, key)
    each = arguments if fixed else (arguments[0] if arguments else Any,) * len(value)
    items = [convert(item, a, f"{key}[{i}]") for i, (item, a) in enumerate(zip(value, each, strict=True))]
    return items if origin is list else tuple(items)


def _convert_mapping(value: Any, annotation: Any, key: str) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        _fail(value, annotation, key)
    arguments = typing.get_args(annotation)
    inner = arguments[1] if arguments else Any
    return {name: convert(item, inner, f"{key}.{name}") for name, item in value.items()}


def _convert_class(value: Any, cls: type, annotation: Any, key: str) -> Any:
    if isinstance(value, cls):
        return value
    if issubclass(cls, enum.Enum) and isinstance(value, str):
        for member in cls:
            if value.lower() in (member.name.lower(), str(member.value).lower()):
                return member
    if dataclasses.is_dataclass(cls) and isinstance(value, Mapping):
        # Imported here because building and converting call each other.
        from lamarckian_cli.config.build import build_as

        return build_as(cls, value, key)
    if getattr(cls, "_is_protocol", False):
        return value  # a protocol's checks are its own
    _fail(value, annotation, key)


def _number(value: Any, annotation: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        _fail(value, annotation, key)
    return float(value)


def _whole_number(value: Any, annotation: Any, key: str) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        _fail(value, annotation, key)
    return value


def _truth(value: Any, annotation: Any, key: str) -> bool:
    return value if isinstance(value, bool) else _fail(value, annotation, key)


def _text(value: Any, annotation: Any, key: str) -> str:
    return value if isinstance(value, str) else _fail(value, annotation, key)


def _path(value: Any, annotation: Any, key: str) -> Path:
    return Path(_text(value, annotation, key))


def _nothing(value: Any, annotation: Any, key: str) -> None:
    return None if value is None else _fail(value, annotation, key)


_SCALARS: dict[Any, Callable[[Any, Any, str], Any]] = {
    float: _number,
    int: _whole_number,
    bool: _truth,
    str: _text,
    Path: _path,
    type(None): _nothing,
}
_WORDS = {
    float: "a finite number",
    int: "a whole number",
    bool: "true or false",
    str: "text",
    Path: "a path",
    type(None): "null",
}
