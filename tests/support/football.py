"""Is the football engine here? Tests that need it skip with the reason and the command otherwise."""

from __future__ import annotations

import importlib
from importlib import metadata

COMMAND = "make football"


def missing() -> str:
    """Empty if the engine can be used; else why not, and what to type."""
    try:
        version = metadata.version("gfootball")
        engine = importlib.import_module("gfootball_engine")
    except (ImportError, OSError) as error:  # not installed, or system libraries of its are missing
        return f"the football engine is not here ({error}): {COMMAND}"
    if not hasattr(engine.GameEnv, "observe"):
        return f"gfootball {version} is not the one that we build: {COMMAND}"
    return ""
