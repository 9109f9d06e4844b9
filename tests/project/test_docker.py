"""The images' recipe and the install script, as far as they can be checked without an engine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
DOCKERFILE = DOCKER / "Dockerfile"
INSTALL = DOCKER / "install.sh"


def linter(name: str) -> str:
    """The program beside this interpreter, or on PATH; the test is skipped without it."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: make setup-dev")
    return found


@pytest.mark.parametrize(("name", "path"), [("hadolint", DOCKERFILE), ("shellcheck", INSTALL)])
def test_linters_have_nothing_to_say(name: str, path: Path) -> None:
    done = subprocess.run([linter(name), str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_copied_exists_and_is_let_through() -> None:
    let_through = {
        line[1:] for line in (DOCKER / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    copied = set()
    for line in DOCKERFILE.read_text().splitlines():
        if line.startswith("COPY ") and "--from" not in line:
            copied |= set(line.split()[1:-1])
    assert copied == let_through
    assert all((ROOT / path).exists() for path in copied)
    # All that the package is built from: its readme and license by name, its sources and conf/.
    named = set(
        re.findall(r'(?:readme = |license-files = \[)"([^"]+)"', (ROOT / "pyproject.toml").read_text())
    )
    assert named | {"pyproject.toml", "src", "conf"} <= copied


def test_targets_and_arguments_of_the_readme_exist() -> None:
    recipe = DOCKERFILE.read_text()
    commands = re.findall(r"^docker build .*$", (DOCKER / "README.md").read_text(), flags=re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        for target in re.findall(r"--target (\w+)", command):
            assert re.search(rf" AS {target}$", recipe, flags=re.MULTILINE)
        for argument in re.findall(r"--build-arg (\w+)=", command):
            assert re.search(rf"^ARG {argument}\b", recipe, flags=re.MULTILINE)
    assert re.search(r"^USER 1000$", recipe, flags=re.MULTILINE)  # as the manifests' fsGroup


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        ([], {}, "no folder is given"),
        (["new"], {"PYTHON": "./no/python"}, "PYTHON is ./no/python, which does not run"),
        (["new"], {"TORCH_INDEX": "cpu"}, "TORCH_INDEX is cpu, which is not a URL"),
        (["full"], {}, "full exists and is not a virtual environment"),
        (["file"], {}, "file exists and is not a virtual environment"),
    ],
)
def test_the_install_script_refuses_before_it_makes_anything(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], said: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    (tmp_path / "file").touch()
    done = subprocess.run(
        ["bash", str(INSTALL), *arguments],
        cwd=tmp_path,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"full", "file"}
