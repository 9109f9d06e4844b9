"""What is shipped and what is pinned."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this checkout, built without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    command += ["--disable-pip-version-check", "--quiet", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_carries_every_configuration_file(wheel: zipfile.ZipFile) -> None:
    ours = {path.relative_to(ROOT).as_posix() for path in (ROOT / "conf").rglob("*.yaml")}
    assert ours, "conf/ holds no YAML"
    shipped = {name.removeprefix("lamarckian_cli/") for name in wheel.namelist() if "/conf/" in name}
    assert shipped >= ours


def test_the_wheel_carries_every_module_and_nothing_beside_the_package(wheel: zipfile.ZipFile) -> None:
    modules = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    names = set(wheel.namelist())
    assert names >= modules
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"lamarckian_cli"}


def test_the_wheel_carries_command_and_license(wheel: zipfile.ZipFile) -> None:
    texts = {
        name.rpartition("/")[2]: wheel.read(name).decode()
        for name in wheel.namelist()
        if ".dist-info/" in name
    }
    assert "lamarck = lamarckian_cli.cli.main:run" in texts["entry_points.txt"]
    assert texts["LICENSE"] == (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_constraints_pin_every_dependency_within_its_range() -> None:
    pins = dict(read_pins())
    missing, outside = [], []
    for requirement in declared():
        version = pins.get(canonicalize_name(requirement.name))
        if version is None:
            missing.append(requirement.name)
        elif version not in requirement.specifier:
            outside.append(f"{requirement} (pinned: {version})")
    assert not missing, f"constraints.txt has no pin for: {', '.join(missing)}"
    assert not outside, f"constraints.txt pins outside the range of: {', '.join(outside)}"


def test_constraints_pin_what_those_need_in_turn() -> None:
    pins = dict(read_pins())
    installed = closure(declared())
    missing = sorted(
        name for name in installed - pins.keys() if not name.startswith(("nvidia-", "cuda-", "triton"))
    )
    assert not missing, f"constraints.txt has no pin for: {', '.join(missing)}"


def test_constraints_are_in_order_and_choose_no_build_of_torch() -> None:
    names = [name for name, _ in read_pins()]
    assert len(names) == len(set(names))
    assert "+" not in dict(read_pins())["torch"]


def test_every_import_of_the_package_is_a_dependency() -> None:
    """Third parties imported at module level come with the base install."""
    base = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    owners = importlib.metadata.packages_distributions()
    strangers = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for top in imported_at_module_level(path):
            if top in sys.stdlib_module_names or top in ("__future__", "lamarckian_cli"):
                continue
            if not {canonicalize_name(owner) for owner in owners.get(top, [top])} & base:
                strangers.append(f"{path.relative_to(ROOT)} imports {top}")
    assert not strangers, "not in the base dependencies of pyproject.toml:\n" + "\n".join(strangers)


def test_tracked_text_names_no_folder_of_one_machine() -> None:
    folders = ("work", "farm", "root")
    pattern = re.compile(r"(?<![\w.$~}/-])/(?:" + "|".join(folders) + r")/\w")
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # an image, say
        lines = enumerate(text.splitlines(), start=1)
        found += [
            f"{path.relative_to(ROOT)}:{n}: {line.strip()}" for n, line in lines if pattern.search(line)
        ]
    assert not found, "paths that exist on one machine only:\n" + "\n".join(found)


def test_the_makefile_explains_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", text, flags=re.MULTILINE))
    explained = set(re.findall(r"^([a-z-]+):[^#\n]*## \w", text, flags=re.MULTILINE))
    assert targets == explained
    assert {"setup", "train", "test", "lint", "format", "typecheck", "clean"} <= targets


# --- reading --------------------------------------------------------------------------


def imported_at_module_level(path: Path) -> set[str]:
    """The top packages that a file imports by name; relative imports are its own."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8"), str(path)).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def read_pins() -> Iterator[tuple[str, str]]:
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        text = line.partition("#")[0].strip()
        if text:
            name, _, version = text.partition("==")
            assert version, f"constraints.txt: not a pin: {line}"
            yield canonicalize_name(name), version


def declared() -> list[Requirement]:
    """Of the base install and of every extra, but the project itself."""
    extras = PROJECT["optional-dependencies"].values()
    texts = [*PROJECT["dependencies"], *(text for group in extras for text in group)]
    return [r for r in map(Requirement, texts) if r.name != PROJECT["name"]]


def closure(requirements: list[Requirement]) -> set[str]:
    """The names of all that `requirements` bring, as far as they are installed here."""
    seen: set[tuple[str, str]] = set()
    names: set[str] = set()
    todo = [(r, extra) for r in requirements for extra in ("", *r.extras)]
    while todo:
        requirement, extra = todo.pop()
        name = str(canonicalize_name(requirement.name))
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            further = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        names.add(name)
        for needed in map(Requirement, further):
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                todo += [(needed, wanted) for wanted in ("", *needed.extras)]
    return names


def tracked_files() -> list[Path]:
    """As git lists them, with new ones that it does not ignore. Outside a checkout: all that we know."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, env=plain_environment())
    if done.returncode == 0:
        paths = [ROOT / os.fsdecode(name) for name in done.stdout.split(b"\0") if name]
    else:
        folders = ("src", "conf", "tests", "scripts", "docs", ".ci")
        paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
        paths += ROOT.glob("*.*")
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def plain_environment() -> dict[str, str]:
    """Without what a git hook sets, which would point git at another checkout."""
    return {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
