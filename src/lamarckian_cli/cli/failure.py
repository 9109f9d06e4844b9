"""How an error is told: one line on standard error, and the exit status that goes with it."""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
import traceback

from lamarckian_cli.errors import LamarckError

FAULT = 1
USAGE_ERROR = 2
NOT_A_USERS = ("site-packages", "lamarckian_cli", sysconfig.get_path("stdlib"), "<frozen")  # parts of paths


def report(error: Exception, before: str = "") -> int:
    """Print the error with `before` in front; the exit status. LAMARCK_TRACEBACK=1 raises it as it is."""
    if os.environ.get("LAMARCK_TRACEBACK") == "1":
        raise error
    complain(f"{before}{told(error)}")
    return USAGE_ERROR if isinstance(error, LamarckError) or is_users(error) else FAULT


def complain(text: str) -> None:
    """A line on standard error; where even that cannot be written, the exit status has to do."""
    with contextlib.suppress(OSError):
        print(f"lamarck: {text}", file=sys.stderr)


def told(error: Exception) -> str:
    """The error in one line; what no part of the program expected with its place."""
    if isinstance(error, LamarckError):
        return str(error)
    place = "" if (frame := _frame(error)) is None else f" ({frame.filename}, line {frame.lineno})"
    what = " ".join(f"{type(error).__name__}: {error}".split()) + place
    if is_users(error):
        return f"{what}; LAMARCK_TRACEBACK=1 shows the traceback"
    return (
        f"{what}; this is a fault of the program, or a game gave it what it should not (check_mdp() tells): "
        "LAMARCK_TRACEBACK=1 shows the traceback"
    )


def is_users(error: Exception) -> bool:
    """Whether a game's own code raised it, or the machine ran out of something."""
    return bool(_users_frames(error)) or isinstance(error, MemoryError | OverflowError | OSError)


def _users_frames(error: Exception) -> list[traceback.FrameSummary]:
    # The first frame is the script that started us; libraries and the package itself are no user's.
    frames = traceback.extract_tb(error.__traceback__)[1:]
    return [f for f in frames if not any(part in f.filename for part in NOT_A_USERS)]


def _frame(error: Exception) -> traceback.FrameSummary | None:
    frames = _users_frames(error) or traceback.extract_tb(error.__traceback__)
    return frames[-1] if frames else None
