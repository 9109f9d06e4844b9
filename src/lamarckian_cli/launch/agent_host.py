"""A node agent as a process that Ray places, one on each machine but the learner's.

It relays weights to the machine's actors and to the machines below it, and passes the actors'
unrolls on to the learner. Nothing here loads torch or a game.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from importlib import metadata
from typing import Any

from lamarckian_cli.launch.guardian import Guardian
from lamarckian_cli.launch.process import keep_memory
from lamarckian_cli.launch.shared_folder import make_folder
from lamarckian_cli.transport.forward import UnrollForwarder
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.relay import WeightsRelay


class AgentHost:
    """Called by the driver over Ray; data goes over the project's own channels."""

    def __init__(self, keys: dict[str, str], address: str, port: int) -> None:
        keep_memory()
        self._keys = JobKeys.from_dict(keys)
        self._folder = make_folder()
        self._guardian = Guardian(self._folder)  # removes the folder whatever ends this process
        self._relay = WeightsRelay(
            f"tcp://{address}:{port}",
            f"shm://{self._folder}/weights",
            keys=self._keys,
            name=socket.gethostname(),
        )
        self._forwarder = UnrollForwarder(f"ipc://{self._folder}/unrolls")

    def describe(self) -> dict[str, Any]:
        """Who this is and where it listens."""
        return {
            "pid": os.getpid(),
            "version": metadata.version("lamarckian-cli"),
            "time": time.time(),
            "weights": self._relay.uri,
            "channels": {"weights": self._relay.shared_uri, "unrolls": self._forwarder.uri},
            "shm_free_bytes": shutil.disk_usage(self._folder).free,
        }

    def join(self, learner: str, actors: int, timeout_s: float) -> None:
        """Begin to pass unrolls on; TransportError if the learner does not answer in time."""
        name = f"node agent of {socket.gethostname()}"
        self._forwarder.start(learner, keys=self._keys, actors=actors, name=name, timeout_s=timeout_s)

    def hang(self, parent: str) -> None:
        """Take weights from this address from now on."""
        self._relay.hang(parent)

    def status(self) -> dict[str, Any]:
        """How weights and unrolls are getting on, as plain values."""
        return {"weights": self._relay.status(), "unrolls": self._forwarder.status()}

    def stop(self) -> None:
        """Free channels and memory."""
        self._forwarder.close()
        self._relay.close()
        self._guardian.release()
