"""Calls to processes over Ray: with deadlines, cut short by a stop, and with errors that a user can read.

What Ray raises leaves here as a LamarckError.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

from lamarckian_cli import errors
from lamarckian_cli.errors import LamarckError, RunError
from lamarckian_cli.launch.in_thread import InThread, Silent

LOOK_S = 0.2  # how often a wait looks whether it was asked to stop
ANSWER_S = 5.0  # within which a process that is well answers, once the job is to stop
RESUME_HINT = "; where there is a checkpoint, go on with resume=FOLDER"


class Interrupted(Exception):
    """A signal asked to stop while something was waited for."""


class Lost(RunError):
    """The learner's process is gone, or its machine."""


def ray() -> Any:
    """The package; it takes a second to import."""
    import ray

    return ray


class Calls:
    """Control calls that wait, up to a deadline, and look meanwhile whether the user wants to stop."""

    def __init__(
        self, stopped: threading.Event, timeout_s: float, heard: Callable[[], None] | None = None
    ) -> None:
        """`heard` is called at each sign of life of whoever is waited for after a stop."""
        self._stopped, self._timeout_s, self._heard = stopped, timeout_s, heard
        self.running = False  # from then on a stop does not cut a call short
        self.ping: Callable[[], Any] | None = None  # a call that gives a learner's `update_under_way`
        self.take_s = 30.0  # what an answer may take beyond the update under way, once the job is to stop
        self.silent = False  # somebody did not answer in time

    def result(self, reference: Any, doing: str) -> Any:
        """What a call gives. Raises Interrupted, and LamarckErrors that say what was being done.

        After a stop, whoever still answers is waited for, and Silent raised of who does not.
        """
        given_up = threading.Event()
        waiting = InThread(lambda: _value_once_there(reference, doing, given_up))
        try:
            self._wait(waiting, doing)
        except BaseException as error:
            self.silent |= isinstance(error, Silent)
            given_up.set()
            waiting.ended(2 * LOOK_S)  # not to shut Ray down under it
            raise
        return waiting.result()

    def _wait(self, waiting: InThread, doing: str) -> None:
        pulse: _Pulse | None = None
        while not waiting.ended(LOOK_S):
            if self._stopped.is_set():
                if not self.running:
                    raise Interrupted
                if self.ping is not None:
                    pulse = pulse or _Pulse(self.ping, self.take_s)
                    if pulse.check(doing) and self._heard is not None:
                        self._heard()
            if time.monotonic() - waiting.began > self._timeout_s:
                raise Silent(
                    f"{doing} took more than {self._timeout_s:g} s; is the machine busy, or its cores taken "
                    "by another job? Raise cluster.start_timeout_s"
                )


class _Pulse:
    """Tells a process that needs its time from one that is stopped, and from a Ray that carries nothing."""

    def __init__(self, ping: Callable[[], Any], take_s: float) -> None:
        self._ping, self._take_s = ping, take_s
        self._busy_at = time.monotonic()
        self._first: int | None = None  # update that was under way
        self._asked = self._ask()

    def check(self, doing: str) -> bool:
        """Whether there was an answer since the last time; Silent where that takes too long."""
        now = time.monotonic()
        if not self._asked.ended(0):
            if now - self._asked.began > ANSWER_S:
                raise Silent(f"the learner does not answer ({doing})")
            return False
        update = self._asked.result()
        self._first = update if self._first is None else self._first
        if update and update == self._first:  # after it, the answer is due
            self._busy_at = now
        elif now - self._busy_at > self._take_s:
            raise Silent(f"Ray brings no answer of the learner's within {self._take_s:g} s ({doing})")
        self._asked = self._ask()
        return True

    def _ask(self) -> InThread:
        def ask() -> int:
            package = ray()
            try:
                return int(package.get(self._ping(), timeout=2 * ANSWER_S))
            except package.exceptions.RayError:
                return 0  # which the call that is waited for tells better

        return InThread(ask)


def _value_once_there(reference: Any, doing: str, given_up: threading.Event) -> Any:
    while not ray().wait([reference], timeout=LOOK_S)[0]:
        if given_up.is_set():
            return None
    return value(reference, doing)


def value(reference: Any, doing: str) -> Any:
    """What a call that has ended gave, or the LamarckError that it raised."""
    try:
        return ray().get(reference)
    except ray().exceptions.RayTaskError as error:
        raise cause(error, doing) from error
    except ray().exceptions.RayError as error:
        raise Lost(
            f"the learner's process, or its machine, was lost while {doing} ({why_lost(error)}){RESUME_HINT}"
        ) from error


def cause(error: Any, doing: str) -> LamarckError:
    """What a host raised, as the user should read it."""
    inner = getattr(error, "cause", None) or error
    for cls in type(inner).__mro__:
        if cls.__module__ == errors.__name__ and cls is not LamarckError:
            made: LamarckError = getattr(errors, cls.__name__)(str(getattr(inner, "cause", inner)))
            return made
    if isinstance(inner, LamarckError):
        return LamarckError(str(inner))
    return RunError(f"{doing} failed: {type(inner).__name__}: {first_line(inner)}")


def why_lost(error: Exception) -> str:
    """Why a process is gone, of what Ray tells on many lines, the first of which says nothing."""
    told = " ".join(str(error).split())
    known = re.search(
        r"The actor (is dead|died) because .*?(?= Some common causes| The actor never ran|$)", told
    )
    return (known.group() if known else first_line(error)).rstrip(".")


def first_line(error: object) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
