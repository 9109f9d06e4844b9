"""Ray played by hand, as far as node agents see it: machines can be slow, silent, unfit or gone at will.

hosts = {"m1": Host("m1"), "m2": Host("m2")}
play_ray(monkeypatch, hosts)
hosts["m2"].silent = True
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import metadata
from types import SimpleNamespace
from typing import Any

from lamarckian_cli.launch import ray_calls, ray_cluster

LEARNER = {"weights": "tcp://learner:1", "unrolls": "tcp://learner:2", "vector_bytes": 1_000_000}


class RayError(Exception):
    """Ray's own, by their names: importing Ray in a test would settle how later tests start it."""


class RayTaskError(RayError):
    pass


class RayActorError(RayError):
    pass


class RuntimeEnvSetupError(RayError):
    pass


class ActorUnavailableError(RayActorError):
    pass


class Clock:
    """Stands still until it is wound."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Host:
    """A machine's agent process, as Ray would let us talk to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.facts = {
            "version": metadata.version("lamarckian-cli"),
            "time": time.time(),
            "weights": f"tcp://{name}:1",
            "channels": {"weights": f"shm://{name}", "unrolls": f"ipc://{name}"},
            "shm_free_bytes": 1 << 30,
        }
        self.weights = {
            "parent": "",
            "joined": True,
            "error": "",
            "bytes_per_s": 1e7,
            "round_trip_s": 0.001,
            "sent_bytes": 10,
        }
        self.silent = self.dead = self.unavailable = self.killed = False
        self.broken: Exception | None = None
        self.call = SimpleNamespace(remote=self._called)

    def _called(self, method: str, *arguments: Any) -> Any:
        if method == "hang":
            (self.weights["parent"],) = arguments
        return SimpleNamespace(host=self, method=method)

    def answer(self, method: str) -> Any:
        if self.dead:
            raise RayActorError
        if self.broken is not None:
            raise self.broken
        if self.unavailable:
            raise ActorUnavailableError
        joined = bool(self.weights["joined"] and self.weights["parent"])  # none before it is hung
        return {"describe": self.facts, "status": {"weights": self.weights | {"joined": joined}}}.get(method)


def play_ray(monkeypatch: Any, hosts: Mapping[str, Host]) -> None:
    """From now on processes are put on `hosts`, by name, and asked there."""
    fake = SimpleNamespace(
        wait=lambda refs, timeout: ([r for r in refs if not r.host.silent], []),
        get=lambda ref: ref.host.answer(ref.method),
        kill=lambda handle: setattr(handle, "killed", True),
        exceptions=SimpleNamespace(
            RayError=RayError,
            RayActorError=RayActorError,
            ActorUnavailableError=ActorUnavailableError,
            RayTaskError=RayTaskError,
        ),
    )
    for module in (ray_calls, ray_cluster):
        monkeypatch.setattr(module, "ray", lambda: fake)
    monkeypatch.setattr(ray_cluster, "process_on", lambda machine, *_, **__: hosts[machine.name])
