"""Programs of a measurement, driven by JSON lines: questions on standard input, answers on standard output.

Pipes lead into a host of namespaces as well as to a neighbour, so they carry control alone;
what is measured goes over the project's own channels.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from lamarckian_cli.errors import RunError

_READ_BYTES = 1 << 16


class Program:
    """The asking side."""

    def __init__(
        self, module: str, name: str, *, popen: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
    ) -> None:
        """Start `python -m module`, by another `popen` on another host; `name` is for messages."""
        self.name = name
        self._process = popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C in a terminal is not for it
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        self._rest = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, question: Any) -> None:
        """Hand over a line, without waiting; RunError if the program has ended."""
        try:
            self._in.write(json.dumps(question).encode() + b"\n")
        except BrokenPipeError as error:
            raise self._ended() from error

    def answer(self, timeout_s: float) -> Any:
        """The next line that it writes; RunError if it does not come in time."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            if not select.select([self._out], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise RunError(
                    f"{self.name} did not answer within {timeout_s:.0f} s; is the machine busy with "
                    "something else? Measure when it is idle, or measure less"
                )
            more = os.read(self._out.fileno(), _READ_BYTES)
            if not more:
                raise self._ended()
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def ask(self, question: Any, timeout_s: float) -> Any:
        self.tell(question)
        return self.answer(timeout_s)

    def close(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.communicate()

    def _ended(self) -> RunError:
        return RunError(f"{self.name} ended with status {self._process.wait()}")


def questions() -> Iterator[Any]:
    """In the program: what it is asked, until the asking side is gone."""
    for line in sys.stdin:
        yield json.loads(line)


def reply(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


def end_with_asker() -> None:
    """In a program that is asked nothing more: end it when the asking side is gone."""

    def watch() -> None:
        while os.read(0, _READ_BYTES):  # not through sys.stdin: its lock would outlive the interpreter
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
