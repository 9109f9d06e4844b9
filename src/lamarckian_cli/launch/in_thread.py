"""Calls into Ray that may hang, each in a thread of its own and with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from lamarckian_cli.errors import ClusterError


class Silent(ClusterError):
    """No answer in time: a process or a machine is stopped, cut off, or very busy."""


class InThread:
    """A call into Ray in a thread of its own: some never return while Ray's head or raylet is stopped."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.began = time.monotonic()
        self._call = call
        self._value: Any = None
        self._error: BaseException | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def ended(self, timeout_s: float) -> bool:
        """Whether it ends within that time."""
        return self._ended.wait(timeout_s)

    def result(self) -> Any:
        """What the call gave or raised, once it has ended."""
        if self._error is not None:
            raise self._error
        return self._value

    def _run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:  # raised where the result is asked for
            self._error = error
        finally:
            self._ended.set()


def within(timeout_s: float, call: Callable[[], Any], doing: str) -> Any:
    """What a call into Ray gives; Silent where it does not return in time."""
    under_way = InThread(call)
    if not under_way.ended(timeout_s):
        raise Silent(f"Ray did not answer within {timeout_s:g} s while {doing}")
    return under_way.result()
