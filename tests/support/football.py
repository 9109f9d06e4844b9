"""Is the football engine here? Tests that need it skip with the reason and the command otherwise."""

from __future__ import annotations

import functools
import importlib
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

COMMAND = "make football"
SCRIPT = Path(__file__).parents[2] / "scripts" / "install_football.sh"
SYSTEM_PACKAGES_MISSING = 3


@functools.cache
def missing() -> str:
    """Empty if the engine can be used; else why not, and what to type.

    Empty as well where `make test` may install whatever the engine takes (CI as root): there a
    test that does without it would hide that it was not installed, so it runs and fails.
    """
    why = _why_not()
    if not why or (os.environ.get("CI") and os.geteuid() == 0 and shutil.which("apt-get")):
        return ""
    return f"{why}: {_command()}"


def _why_not() -> str:
    try:
        version = metadata.version("gfootball")
        engine = importlib.import_module("gfootball_engine")
    except (ImportError, OSError) as error:  # not installed, or system libraries of its are missing
        return f"the football engine is not here ({error})"
    return "" if hasattr(engine.GameEnv, "observe") else f"gfootball {version} is not the one that we build"


def _command() -> str:
    """What an administrator must run first, where system packages are missing."""
    check = ["bash", str(SCRIPT), "--check", sys.executable]
    done = subprocess.run(check, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != SYSTEM_PACKAGES_MISSING:
        return COMMAND
    return f"{done.stderr.strip().splitlines()[-1].strip().removeprefix('football:').strip()} && {COMMAND}"
