"""The strict builder: keys, types, classes, and the messages."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from lamarckian_cli.config.build import build, build_as, check, keys_of
from lamarckian_cli.config.values import convert
from lamarckian_cli.errors import ConfigError, MissingPackage, require


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Inner:
    x: int = 0


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner = field(default_factory=Inner)
    sizes: tuple[int, ...] = ()
    derived: int = field(default=0, init=False)


class Plain:
    def __init__(self, size: int, *, label: str | None = None) -> None:
        require(size >= 1, "env.size", size, "it must be at least 1")
        self.size, self.label = size, label


class Open:
    def __init__(self, **options: Any) -> None:
        self.options = options


class Fussy:
    def __init__(self, size: int) -> None:
        raise ValueError("size and moon disagree")


class Bare:
    pass


HERE = "lamarckian_test_things"


@pytest.fixture(autouse=True)
def things(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classes above under an importable name."""
    import sys
    from types import ModuleType

    module = ModuleType(HERE)
    for cls in (Colour, Inner, Outer, Plain, Open, Fussy, Bare):
        setattr(module, cls.__name__, cls)
    module.not_a_class = 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, HERE, module)


def node(cls: str, /, **values: Any) -> dict[str, Any]:
    return {"_target_": f"{HERE}.{cls}", **values}


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (1, float, 1.0),
        (1e6, int, 1_000_000),
        (None, int | None, None),
        ([1, 2], tuple[int, ...], (1, 2)),
        ([[1, 2.0]], tuple[tuple[int, float], ...], ((1, 2.0),)),
        ([1], list[float], [1.0]),
        ([1], Sequence[int], (1,)),
        ({"a": 1}, dict[str, float], {"a": 1.0}),
        ({"a": [1]}, Mapping[str, Any] | None, {"a": [1]}),
        ("x/y", Path, Path("x/y")),
        ("red", Colour, Colour.RED),
        ("a", Literal["a", "b"], "a"),
        (1, int | float, 1),
        (1.5, int | float, 1.5),
        ("text", int | str, "text"),
        ({"x": 2}, Inner, Inner(2)),
        (object, Any, object),
    ],
)
def test_values_that_fit(value: Any, annotation: Any, expected: Any) -> None:
    result = convert(value, annotation, "k")
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("value", "annotation", "said"),
    [
        ("fast", float, "k is 'fast'; it must be a finite number"),
        (True, float, "k is true; it must be a finite number"),
        (float("nan"), float, "it must be a finite number"),
        (float("inf"), float, "it must be a finite number"),
        (True, int, "k is true; it must be a whole number"),
        (1.5, int | None, "k is 1.5; it must be a whole number, or null"),
        (1, bool, "k is 1; it must be true or false"),
        (1, str, "k is 1; it must be text"),
        (None, str, "k is null; it must be text"),
        ("abc", tuple[str, ...], "it must be a list, each text"),
        ([1, "x"], tuple[int, ...], "k[1] is 'x'; it must be a whole number"),
        ([1], tuple[int, int], "it must be a list of 2: a whole number, a whole number"),
        ([], dict[str, int], "it must be a group of keys"),
        ({"a": "x"}, dict[str, int], "k.a is 'x'; it must be a whole number"),
        ("green", Colour, "it must be one of red, blue"),
        ("c", Literal["a", "b"], "it must be one of a, b"),
        ({"y": 1}, Inner, "k.y is not a known key"),
    ],
)
def test_values_that_do_not(value: Any, annotation: Any, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        convert(value, annotation, "k")
    assert said in str(error.value)


def test_builds_dataclasses_classes_and_what_is_inside_them() -> None:
    assert build(node("Outer", name="n", inner={"x": 1}, sizes=[1]), "env") == Outer("n", Inner(1), (1,))
    assert build(node("Outer", name="n", inner=node("Inner", x=1)), "env").inner == Inner(1)
    assert build(node("Plain", size=2, label=None), "env").size == 2
    assert build(node("Open", anything=[1]), "env").options == {"anything": [1]}
    assert isinstance(build(node("Bare"), "env"), Bare)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            node("Outer", name="n", sizs=[1]),
            "env.sizs is not a known key; did you mean env.sizes? (env has: ",
        ),
        (node("Outer", name="n", derived=1), "env.derived is not a known key"),
        (node("Outer"), "env.name is not given; Outer needs it: add env.name=..."),
        (node("Outer", name="n", inner={"x": "a"}), "env.inner.x is 'a'; it must be a whole number"),
        (node("Plain", size=0), "env.size is 0; it must be at least 1"),
        (node("Plain", size="x"), "env.size is 'x'; it must be a whole number"),
        (node("Fussy", size=1), "env (Fussy) cannot be made: size and moon disagree"),
        (node("Bare", x=1), "env.x is not a known key (env has no keys)"),
        (node("Outr"), "has no class of that name; did you mean Outer?"),
        (node("not_a_class"), "not_a_class there is not a class"),
        ({}, "env._target_ is null; it must name a class"),
        ({"_target_": "nowhere.at.all.Game"}, "there is no module nowhere here"),
        ({"_target_": "Game"}, "write module and class"),
    ],
)
def test_messages(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        build(spec, "env")
    assert said in str(error.value)


def test_a_missing_dependency_of_the_users_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needs_more.py").write_text("import not_installed_anywhere\nclass Game: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingPackage, match="needs the package not_installed_anywhere"):
        build({"_target_": "needs_more.Game"}, "env")


def test_check_makes_nothing() -> None:
    assert check(node("Fussy", size=1), "env") is Fussy
    with pytest.raises(ConfigError):
        check(node("Fussy", size="x"), "env")


def test_build_as_and_keys() -> None:
    assert build_as(Inner, {"x": 3}, "model") == Inner(3)
    assert keys_of(Outer) == ("name", "inner", "sizes")
    with pytest.raises(ConfigError, match="model is 3; it must be a group of keys: x"):
        build_as(Inner, 3, "model")  # type: ignore[arg-type]
