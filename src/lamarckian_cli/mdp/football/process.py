"""Engines in child processes: what ends or hangs the engine does not take the actor along.

The engine answers a segmentation fault or an assertion of its own by ending its process, so
it does not run in the actor's. One child serves many matches, each in an engine of its own
(some 60 MB), and one child for each actor is the default, for these reasons:

- Actors are what scales: one a core. The actor sends the actions of all its matches and then
  waits for the replies, so actor and child take turns on that core, and neither is idle
  while the other has work to do; a forward pass takes a few percent of the engine's time.
  Where there are fewer actors than cores, `engines` has them step in parallel.
- An exchange over the socket costs 20 to 50 us of both processes; a step of the engine 1.5
  ms (an exercise) to 6 ms (eleven a side). So the requests of all matches go in one message
  and their replies come in one; shared memory would save only the copy of 2 kB.
- Replies are waited for in the order in which they were asked for, with the scheduler's
  virtual clock standing still, so batches do not depend on who was faster: a seed gives the
  same numbers.

`LocalEngine` has the same methods and steps in the actor itself: for debuggers and profilers.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any, Protocol

from lamarckian_cli.errors import ConfigError, MissingPackage
from lamarckian_cli.mdp.football.host import DONE, MISSING, REPLY, REQUEST, WRONG, Host

NOTE_LIMIT = 600  # characters of what a process that ended had printed
END_S = 2.0


class EngineFailure(RuntimeError):
    """The engine crashed, hangs or reported an error: the match is given up, others go on.

    Not a LamarckError, because those end a training; a game that fails ten times in a row
    ends it as well, with the first of these messages.
    """


class Engine(Protocol):
    """Where matches are played: requests have one reply each, which is fetched by its ticket."""

    dead: bool

    def send(self, what: int, slot: int, payload: bytes) -> int:
        """Ask, at the next flush; the ticket of the reply. Raises EngineFailure."""

    def flush(self) -> None:
        """Hand over what was asked. Never raises: a failure is dead, and `receive` tells why."""

    def receive(self, ticket: int) -> bytes:
        """The reply. Raises EngineFailure, and ConfigError for what the scenario cannot be asked for."""

    def forget(self, ticket: int) -> None:
        """Nobody will fetch this one."""

    def close(self) -> None:
        """End it."""


class LocalEngine:
    """The engine in this process; what ends it ends us."""

    dead = False

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._host = Host(dict(settings))
        self._replies: dict[int, tuple[int, bytes]] = {}
        self._sent = 0

    def send(self, what: int, slot: int, payload: bytes) -> int:
        self._sent += 1
        self._replies[self._sent] = self._host.handle(what, slot, payload)
        return self._sent

    def flush(self) -> None:
        """All was answered when it was sent."""

    def receive(self, ticket: int) -> bytes:
        return _checked(*self._replies.pop(ticket))

    def forget(self, ticket: int) -> None:
        self._replies.pop(ticket, None)

    def close(self) -> None:
        """Engines go with their last reference."""


class EngineProcess:
    """A child process; once dead it stays so, and another one is started for the next match."""

    def __init__(self, settings: Mapping[str, Any], *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._sent = self._received = 0
        self._arrived: dict[int, tuple[int, bytes]] = {}
        self._forgotten: set[int] = set()
        self.dead = False
        self._why = ""
        ours, theirs = socket.socketpair()
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as the process
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "lamarckian_cli.mdp.football.host", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._printed,
                stderr=self._printed,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)},
            )
        ours.settimeout(timeout_s)
        self._socket = ours
        self._reader = ours.makefile("rb", buffering=1 << 16)
        text = json.dumps(dict(settings)).encode()
        self._requests = [len(text).to_bytes(4, "little"), text]  # that are to be sent

    def send(self, what: int, slot: int, payload: bytes) -> int:
        if self.dead:
            raise EngineFailure(self._why)
        self._requests += REQUEST.pack(len(payload) + 3, what, slot), payload
        self._sent += 1
        return self._sent

    def flush(self) -> None:
        requests, self._requests = self._requests, []
        if not requests or self.dead:
            return
        try:
            self._socket.sendall(b"".join(requests))
        except TimeoutError:
            self._fail(f"took no request for {self._timeout_s:g} s (env.timeout_s)")
        except OSError:
            self._fail("ended")

    def receive(self, ticket: int) -> bytes:
        self.flush()
        while ticket not in self._arrived:
            if self.dead:
                raise EngineFailure(self._why)
            self._read()
        return _checked(*self._arrived.pop(ticket))

    def forget(self, ticket: int) -> None:
        if self._arrived.pop(ticket, None) is None and ticket > self._received:
            self._forgotten.add(ticket)

    def close(self) -> None:
        if not self.dead:
            self._end("the football engine's process was closed")

    def _read(self) -> None:
        """Take in the next reply, whoever it is for."""
        try:
            head = self._reader.read(REPLY.size)
            if len(head) == REPLY.size:
                length, status = REPLY.unpack(head)
                body = self._reader.read(length - 1)
                if len(body) == length - 1:
                    self._received += 1
                    if self._received in self._forgotten:
                        self._forgotten.remove(self._received)
                    else:
                        self._arrived[self._received] = (status, body)
                    return
        except TimeoutError:
            self._fail(f"did not answer for {self._timeout_s:g} s (env.timeout_s)")
            return
        except OSError:  # reset by it
            pass
        self._fail("ended")

    def _fail(self, what: str) -> None:
        """Be dead, and know why: how it ended and what it printed last."""
        status = ""
        if what == "ended":
            try:
                code = self.process.wait(END_S)
                status = f", killed by signal {-code}" if code < 0 else f" with exit status {code}"
            except subprocess.TimeoutExpired:
                pass
        self._printed.seek(0)
        printed = " ".join(self._printed.read().decode(errors="replace").split())[-NOTE_LIMIT:]
        note = f"; it printed: {printed}" if printed else ""
        self._end(f"the football engine's process {self.process.pid} {what}{status}{note}")

    def _end(self, why: str) -> None:
        self.dead, self._why = True, why
        self._socket.close()
        self._reader.close()
        self.process.kill()
        self.process.wait()
        self._printed.close()


def _checked(status: int, answer: bytes) -> bytes:
    if status == DONE:
        return answer
    text = answer.decode()
    raise (ConfigError if status == WRONG else MissingPackage if status == MISSING else EngineFailure)(text)
