"""Ctrl-C and SIGTERM: they end a command at once, and a job when it has saved what it learned."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

AGAIN_S = 0.01

_asked = threading.Event()


def interrupt(number: int, frame: FrameType | None) -> None:
    """The handler until a job has its own: raises KeyboardInterrupt, now or in a moment.

    Not now where the import system is at work, in whose callbacks exceptions are lost. It also
    remembers: a library that is being imported may swallow what is raised.
    """
    _asked.set()
    if frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
    else:
        raise KeyboardInterrupt


class Stop:
    """Whether a signal asked to stop."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._put_off = False

    @property
    def interrupted(self) -> bool:
        return self.event.is_set()

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM asks to stop; a second one while stopping interrupts at once."""

        def ask(number: int, frame: FrameType | None) -> None:
            if self.event.is_set() and not self._put_off:
                raise KeyboardInterrupt
            self.event.set()

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        if _asked.is_set():
            raise KeyboardInterrupt
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def put_off(self) -> Iterator[None]:
        """No signal interrupts what is inside: it is short, and must not be left half done."""
        self._put_off = True
        try:
            yield
        finally:
            self._put_off = False
