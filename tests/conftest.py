"""Fixtures that every test may use."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

# Test machines are small and run several processes at a time: one thread each is the fastest.
# Set before NumPy or torch is imported; a caller's own choice stays.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

END_TIMEOUT_S = 5.0


@pytest.fixture(autouse=True)
def one_torch_thread() -> None:
    """One thread for torch, in tests that have imported it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Where a run folder may be made: it does not exist yet."""
    return tmp_path / "run"


@pytest.fixture
def no_children_left() -> Iterator[None]:
    """Fail a test that leaves a process running which it started; such processes are ended.

    Use it where processes are started: `@pytest.mark.usefixtures("no_children_left")`.
    """
    before = set(children())
    yield
    left = [process for process in children() if process not in before]
    _, left = psutil.wait_procs(left, timeout=END_TIMEOUT_S)  # those on their way out may go
    if not left:
        return
    described = [describe(process) for process in left]
    for process in left:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(left, timeout=END_TIMEOUT_S)
    pytest.fail("processes left running: " + "; ".join(described))


def children() -> list[psutil.Process]:
    """Of this process, at any depth, but those that are dead or serve the interpreter itself."""
    return [process for process in psutil.Process().children(recursive=True) if not is_helper(process)]


def is_helper(process: psutil.Process) -> bool:
    """multiprocessing's resource tracker lives as long as the interpreter that started it."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return True
        return any("resource_tracker" in word for word in process.cmdline())
    except psutil.NoSuchProcess:
        return True


def describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:120]}"
    except psutil.NoSuchProcess:
        return str(process.pid)
