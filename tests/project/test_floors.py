"""Who may import whom: the floors of the package, read from the imports themselves."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "lamarckian_cli"
SOURCE = ROOT / "src" / PACKAGE

# Imports go down only, and rooms on one floor do not import each other.
FLOORS: dict[int, set[str]] = {
    5: {"cli"},
    4: {"bench"},
    3: {"config", "launch"},
    2: {"evolution", "learner", "actor"},
    1: {"mdp", "transport", "model", "selfplay", "problems"},
    0: {"ec", "estimators", "records", "errors", "seeding", "metrics"},
}
# Beyond that: who may read a neighbour on the same floor.
NEIGHBOURS: dict[str, set[str]] = {
    "launch": {"config"},
    # The four single files of floor 0 are the ground that everything stands on.
    "ec": {"errors", "records", "seeding"},
    "estimators": {"errors", "records"},
    "records": {"errors"},
    "seeding": {"errors"},
    "metrics": {"errors", "records"},
}
# Which room, or file, may import a third party.
ONLY_IN: dict[str, tuple[str, ...]] = {
    "zmq": ("transport/",),
    "ray": ("launch/", "bench/"),
    "typer": ("cli/",),
    "hydra": ("config/", "launch/wiring.py"),
}
# What some rooms import beside the standard library and the package, and nothing more.
NOTHING_BUT: dict[str, set[str]] = {"ec": {"moocore", "numpy"}}
# What some rooms may not import where it costs every start of the program.
NOT_AT_MODULE_LEVEL: dict[str, set[str]] = {"cli": {"torch", "ray"}}
# Unpickling runs whatever code the sender likes.
NOWHERE = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill"}


class Import(NamedTuple):
    path: str  # below the package, with slashes
    line: int
    module: str  # absolute, such as `lamarckian_cli.mdp.pong`
    at_module_level: bool

    @property
    def room(self) -> str:
        return room_of(self.path.removesuffix(".py").replace("/", "."))

    @property
    def target(self) -> str:
        """The room that is imported; empty for a third party."""
        top, _, rest = self.module.partition(".")
        return room_of(rest) if top == PACKAGE and rest else ""


def test_the_package_keeps_its_floors() -> None:
    found = [fault for path in sorted(SOURCE.rglob("*.py")) for fault in faults(imports_of(path, SOURCE))]
    assert not found, "\n".join(["imports that the floors do not allow:", *found])


def test_every_module_has_a_floor() -> None:
    known = set().union(*FLOORS.values())
    rooms = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or any(path.glob("*.py"))}
    strangers = rooms - known - {"__init__", "__main__", "py"}
    assert not strangers, f"no floor in the table for: {', '.join(sorted(strangers))}"


@pytest.mark.parametrize(
    ("path", "source", "rule"),
    [
        ("ec/sort.py", "import torch", "nothing but moocore, numpy"),
        ("ec/sort.py", "from lamarckian_cli.mdp import match", "imports go down only"),
        ("ec/sort.py", "from ..estimators import gae", "do not import each other"),
        ("actor/rollout.py", "from lamarckian_cli import learner", "do not import each other"),
        ("model/net.py", "def f():\n    from ..launch.wiring import build", "imports go down only"),
        ("config/schema.py", "from lamarckian_cli.launch import job", "do not import each other"),
        ("actor/agent.py", "import zmq.asyncio", "zmq is imported in transport/ alone"),
        ("launch/job.py", "from hydra.utils import instantiate", "config/, launch/wiring.py alone"),
        ("learner/loop.py", "import ray", "launch/, bench/ alone"),
        ("mdp/cli.py", "import typer", "typer is imported in cli/ alone"),
        ("cli/main.py", "if True:\n    import torch", "inside a function"),
        ("launch/save.py", "def f():\n    import pickle", "nobody imports pickle"),
        ("__init__.py", "from .cli.main import run", "holds no imports of rooms"),
    ],
)
def test_a_breach_is_found_and_named(path: str, source: str, rule: str, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text(source, encoding="utf-8")
    [fault] = faults(imports_of(tmp_path / path, tmp_path))
    assert rule in fault
    assert f"{path}:{source.count(chr(10)) + 1}:" in fault


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("launch/wiring.py", "import hydra, ray\nfrom ..config import schema"),
        ("cli/train.py", "def f():\n    import torch\n    from ..launch import job"),
        ("cli/train.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("cli/train.py", "import typer\nfrom . import main"),
        (
            "ec/sort.py",
            "import math\nimport moocore, numpy\nfrom ..errors import LamarckError\nfrom .pareto import rank",
        ),
        ("transport/zmq_channel.py", "import zmq\nfrom lamarckian_cli.transport.codec import encode"),
        ("learner/loop.py", "from lamarckian_cli import estimators, records\nfrom ..model import net"),
        ("__init__.py", "from lamarckian_cli.errors import LamarckError"),
    ],
)
def test_what_is_allowed_passes(path: str, source: str, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text(source, encoding="utf-8")
    assert list(faults(imports_of(tmp_path / path, tmp_path))) == []


# --- the rules ------------------------------------------------------------------------


def faults(imports: Iterator[Import]) -> Iterator[str]:
    """A sentence for each import that breaks a rule: where, what, which rule."""
    for found in imports:
        for rule in broken_rules(found):
            yield f"  src/{PACKAGE}/{found.path}:{found.line}: imports {found.module}, but {rule}"


def broken_rules(found: Import) -> Iterator[str]:
    top = found.module.partition(".")[0]
    if top == PACKAGE:
        yield from broken_floors(found.room, found.target)
        return
    if top in NOWHERE:
        yield f"nobody imports {top}: data goes by msgpack and NumPy arrays"
    if top in ONLY_IN and not found.path.startswith(ONLY_IN[top]):
        yield f"{top} is imported in {', '.join(ONLY_IN[top])} alone"
    allowed = NOTHING_BUT.get(found.room)
    if allowed is not None and top not in allowed | sys.stdlib_module_names:
        yield f"{found.room}/ imports nothing but {', '.join(sorted(allowed))} and the standard library"
    if found.at_module_level and top in NOT_AT_MODULE_LEVEL.get(found.room, ()):
        yield f"{found.room}/ imports {top} only inside a function, for every start would pay for it"


def broken_floors(room: str, target: str) -> Iterator[str]:
    if target in ("", room):
        return
    if room in ("__init__", "__main__"):  # of the package itself
        if floor_of(target) != 0 and room == "__init__":
            yield f"{PACKAGE}/__init__.py holds no imports of rooms above floor 0"
    elif floor_of(target) > floor_of(room):
        yield f"imports go down only: {room} is on floor {floor_of(room)}, {target} on {floor_of(target)}"
    elif floor_of(target) == floor_of(room) and target not in NEIGHBOURS.get(room, ()):
        yield f"rooms on one floor do not import each other: {room} and {target} are on {floor_of(room)}"


def floor_of(room: str) -> int:
    """A module that the table does not know fails the test of the table; here it stands on the ground."""
    return next((floor for floor, rooms in FLOORS.items() if room in rooms), 0)


def room_of(dotted: str) -> str:
    return dotted.partition(".")[0]


# --- reading imports ------------------------------------------------------------------


def imports_of(path: Path, root: Path) -> Iterator[Import]:
    """Every import in the file, also inside functions; those for the type checker alone count as inside."""
    below = path.relative_to(root)
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    here = [PACKAGE, *below.parent.parts]
    for node, at_module_level in walk(tree, at_module_level=True):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = absolute_names(node, here)
        else:
            continue
        for module in modules:
            yield Import(below.as_posix(), node.lineno, module, at_module_level)


def walk(node: ast.AST, *, at_module_level: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        yield child, at_module_level
        lazy = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or for_types_only(child)
        yield from walk(child, at_module_level=at_module_level and not lazy)


def for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def absolute_names(node: ast.ImportFrom, here: list[str]) -> list[str]:
    """`from .. import a, b` names two modules, `from ..a import b` one."""
    base = here[: len(here) - node.level + 1] if node.level else []
    module = ".".join([*base, *(node.module.split(".") if node.module else [])])
    if module == PACKAGE:
        return [f"{PACKAGE}.{alias.name}" for alias in node.names]
    return [module]
