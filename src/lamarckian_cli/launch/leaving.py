"""Ending this process where its main thread may hang: the terminal and the run folder are left in order."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from lamarckian_cli.launch.signals import GRACE_S

INTERRUPTED = 130  # exit status: 128 + SIGINT


def leave(
    display: contextlib.AbstractContextManager[Any],
    give_up: Callable[[], None],
    unsaved: Callable[[], str],
    again: bool,
) -> NoReturn:
    """End the process with status 130; `again` is whether the user asked twice.

    `give_up` records how the run ended, `unsaved` says what was not saved. What else belongs to the
    job sees that this process is gone, and ends: a guardian's or Ray's task.
    """
    try:
        closing = threading.Thread(target=display.__exit__, args=(None, None, None), daemon=True)
        closing.start()  # gives the terminal back
        closing.join(1.0)
        give_up()
        with contextlib.suppress(OSError):
            if not again:
                warn(f"nothing has answered for {GRACE_S:g} s; {unsaved()}")
            warn("interrupted")
            sys.stdout.flush()
    finally:
        os._exit(INTERRUPTED)


def warn(text: str) -> None:
    """A line on standard error."""
    print(f"lamarck: {text}", file=sys.stderr, flush=True)
