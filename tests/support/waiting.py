"""Waiting for what another process or thread does, which cannot call us."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def wait_until(holds: Callable[[], object], timeout_s: float = 120.0) -> None:
    """Poll a condition up to a deadline; an AssertionError past it."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < deadline, f"it did not become true in {timeout_s:g} s"
        pause.wait(0.02)
