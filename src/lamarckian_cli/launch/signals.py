"""Ctrl-C, SIGTERM and SIGHUP: they end a command at once, and a job when it has saved what it learned."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

AGAIN_S = 0.01
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_S = 15.0  # for a job to end by itself, from the first signal or the last sign of life on
LOOK_S = 0.1

hanging = threading.Event()
"""A library's call hangs in this process: its exit handlers would too, so it has to end by os._exit."""

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
        self._watched = self._patient = False
        self._heard_at = 0.0  # the last sign of life

    @property
    def interrupted(self) -> bool:
        return self.event.is_set()

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """The first signal asks to stop; a second one while stopping interrupts at once.

        A SIGHUP that is ignored, as under nohup, stays so.
        """

        def ask(number: int, frame: FrameType | None) -> None:
            if self.event.is_set() and not self._put_off and not self._watched:
                raise KeyboardInterrupt
            self.event.set()

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        if _asked.is_set():
            raise KeyboardInterrupt
        taken = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, ask) for number in taken}
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

    @contextlib.contextmanager
    def watched(self, leave: Callable[[bool], None]) -> Iterator[None]:
        """What is inside may hang in a library, where Python calls no handlers: a thread ends it then.

        That calls `leave`, which is to end the process: with True at the second signal, and with
        False GRACE_S after the first, where nothing gave a sign of life meanwhile.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        asked = int(self.event.is_set())
        self._watched, self._heard_at = True, time.monotonic()
        before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        watcher = threading.Thread(target=self._watch, args=(ours, asked, leave), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            theirs.close()
            watcher.join()
            ours.close()
            self._watched = False

    def heard(self) -> None:
        """What is being ended gave a sign of life."""
        self._heard_at = time.monotonic()

    @contextlib.contextmanager
    def patient(self) -> Iterator[None]:
        """After a first signal what is inside may take as long as it does: disks can be slow."""
        self._patient = True
        try:
            yield
        finally:
            self.heard()
            self._patient = False

    def _watch(self, signals: socket.socket, asked: int, leave: Callable[[bool], None]) -> None:
        """Count the signals as the system delivers them, whatever the main thread does."""
        while True:
            if select.select([signals], [], [], LOOK_S)[0]:
                numbers = signals.recv(64)
                if not numbers:
                    return  # the block has ended
                came = sum(number in ENDING for number in numbers)
                if came and not asked:
                    self.heard()
                    self.event.set()
                asked += came
            late = not self._patient and time.monotonic() - self._heard_at > GRACE_S
            if asked > 1 or (asked and late):
                leave(asked > 1)
