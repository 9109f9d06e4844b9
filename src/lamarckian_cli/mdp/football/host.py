"""Serves several football matches, each in an engine of its own: inside a child process, or not.

`python -m lamarckian_cli.mdp.football.host SOCKET_FD` is what `process.py` starts. Every
request is one frame and has one reply, in the same order:

    request: u32 length of what follows, u8 what, u16 slot, bytes
    reply:   u32 length of what follows, u8 status, bytes
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from typing import Any

from lamarckian_cli.errors import ConfigError, MissingPackage
from lamarckian_cli.mdp.football.engine import Game, Painter

REQUEST, REPLY = struct.Struct("<IBH"), struct.Struct("<IB")
RESET, STEP, SAVE, LOAD, FRAME = range(5)
DONE, WRONG, FAILED, MISSING = range(4)  # of a reply; the last three bring a message
FRAME_WIDTH, FRAME_HEIGHT = 640, 360
ORPHAN_CHECK_S = 2.0


class Host:
    """The matches of one process; `handle` answers one request."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._games: dict[int, Game] = {}
        self._painter: Painter | None = None

    def handle(self, what: int, slot: int, payload: bytes) -> tuple[int, bytes]:
        """Status and bytes of the reply; never raises but for what ends a process."""
        try:
            return DONE, self._answer(what, slot, payload)
        except ConfigError as error:
            return WRONG, str(error).encode()
        except MissingPackage as error:
            return MISSING, str(error).encode()
        except Exception as error:
            return FAILED, f"{type(error).__name__}: {error}".encode()

    def _answer(self, what: int, slot: int, payload: bytes) -> bytes:
        if what == STEP:
            return self._games[slot].step(payload)
        if what == RESET:
            if slot not in self._games:
                self._games[slot] = Game(**self._settings)
            seed, agents, driven = json.loads(payload)
            return self._games[slot].reset(seed, tuple(agents), [(side, number) for side, number in driven])
        if what == SAVE:
            return self._games[slot].save()
        if what == LOAD:
            return self._games[slot].load(payload)
        if self._painter is None:
            os.environ.pop("DISPLAY", None)  # else it would open a window
            self._painter = Painter(FRAME_WIDTH, FRAME_HEIGHT)
        return self._painter.draw(self._games[slot])


def serve(connection: socket.socket) -> None:
    """Answer until the other end is closed. The first frame is the JSON of `Host`'s settings.

    Requests that came together are answered together, which saves a switch of processes for each.
    """
    host: Host | None = None
    received = bytearray()
    while chunk := connection.recv(1 << 16):
        received += chunk
        answers: list[bytes] = []
        while len(received) >= 4 and len(received) >= (end := 4 + int.from_bytes(received[:4], "little")):
            request = bytes(received[:end])
            del received[:end]
            if host is None:
                host = Host(json.loads(request[4:]))
                continue
            _, what, slot = REQUEST.unpack_from(request)
            status, answer = host.handle(what, slot, request[REQUEST.size :])
            answers += REPLY.pack(len(answer) + 1, status), answer
        if answers:
            connection.sendall(b"".join(answers))


def _end_with(parent: int) -> None:
    """A step that hangs would never read that the other end is gone."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_CHECK_S)
    os._exit(1)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started us
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        try:
            serve(connection)
        except (BrokenPipeError, ConnectionResetError):
            pass
    os._exit(0)  # the engine's own way out takes its time and sometimes crashes


if __name__ == "__main__":
    main()
