"""What `make setup` says and refuses before it installs anything."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CUDA = ["filelock", 'nvidia-cublas==13.1; platform_system == "Linux" and platform_machine == "x86_64"']


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Just enough of a clone to start `make setup` in; its pip must not be reached."""
    folder = tmp_path / "a clone"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    return folder


def make_setup(checkout: Path, *variables: str) -> str:
    """What it said, having refused with status 2 and left no .venv."""
    command = ["make", "setup", *variables]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, done.stdout + done.stderr
    assert not (checkout / ".venv").exists()
    assert "Traceback" not in done.stderr
    return done.stderr


def fake_python(folder: Path, version: str, *, venv: bool) -> Path:
    """An interpreter of another version, as far as setup.sh asks."""
    path = folder / f"python{version}"
    answer = f'case "$2" in *ensurepip*) exit {int(not venv)} ;; *) echo {version} ;; esac'
    path.write_text(f"#!/bin/sh\n{answer}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("version", ["3.10", "3.14", "2.7"])
def test_a_python_out_of_range_is_refused(version: str, checkout: Path, tmp_path: Path) -> None:
    said = make_setup(checkout, f"PYTHON={fake_python(tmp_path, version, venv=True)}")
    assert f"is Python {version}; 3.11 to 3.13 is needed" in said
    assert "make setup PYTHON=" in said


def test_a_python_without_venv_names_the_package(checkout: Path, tmp_path: Path) -> None:
    said = make_setup(checkout, f"PYTHON={fake_python(tmp_path, '3.12', venv=False)}")
    assert "is Python 3.12 without the venv module" in said
    if shutil.which("apt-get"):
        assert "sudo apt install python3.12-venv" in said


def test_a_python_that_is_not_there_is_refused(checkout: Path) -> None:
    assert "PYTHON is ./no/such/python, which does not run" in make_setup(checkout, "PYTHON=./no/such/python")


def test_an_index_that_is_no_url_is_refused(checkout: Path) -> None:
    assert "TORCH_INDEX is cpu, which is not a URL" in make_setup(checkout, "TORCH_INDEX=cpu")


def test_a_folder_in_the_way_is_left_alone(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "notes.txt").write_text("mine", encoding="utf-8")
    command = ["make", "setup", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert ".venv exists and is not a virtual environment" in done.stderr
    assert [path.name for path in (checkout / ".venv").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("requires", "build"),
    [(CUDA, "CUDA"), (["filelock"], "CPU"), ([CUDA[1].replace("x86_64", "arm")], "CPU")],
)
def test_the_size_is_announced_for_the_build_that_pip_takes(requires: list[str], build: str) -> None:
    sys_path = [str(ROOT / "scripts")]
    code = f"import sys; sys.path[:0] = {sys_path}; import torch_build as t; "
    code += f"print(t.announcement(dict(version='2.13.0', requires_dist={requires}), 'x86_64'))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert f"torch 2.13.0, a {build} build" in said
    assert " GB to download" in said
    assert ("TORCH_INDEX=" in said) == (build == "CUDA")


def test_on_a_log_pip_is_a_few_lines(tmp_path: Path) -> None:
    lines = ["Collecting torch", "  Downloading torch-2.13.0-cp311-cp311-linux.whl (190.1 MB)"]
    lines += [f"Progress {done * 1_000_000} of 190000000" for done in range(0, 190, 10)]
    lines += ["Requirement already satisfied: six", "ERROR: something failed"]
    command = [sys.executable, str(ROOT / "scripts" / "pip_progress.py"), str(tmp_path / "log")]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["  downloading torch 2.13.0 (190 MB)"]
    assert (tmp_path / "log").read_text(encoding="utf-8").splitlines() == [*lines[:2], lines[-1]]
