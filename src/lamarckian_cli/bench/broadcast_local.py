"""The last step of a broadcast, inside one machine: from one process to its actors, in three ways.

    shared-memory       written once, read in place: what node agents do
    zmq-per-actor       a ZeroMQ subscriber in every actor, over Unix sockets
    ray-object-store    `ray.put` here, and an actor call with the reference, which does `ray.get`

Each time runs until the last actor has copied the vector into an array of its own. The ways
take turns in blocks of versions, since a shared machine changes from second to second.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any, Protocol

import numpy as np
import psutil

from lamarckian_cli.bench.broadcast_cluster import PROGRAM, arrivals
from lamarckian_cli.bench.broadcast_host import message_of, weights_of
from lamarckian_cli.bench.local_machine import guarded_folder, local_ray
from lamarckian_cli.bench.program import Program
from lamarckian_cli.launch import ray_calls
from lamarckian_cli.transport.channel import bind_weights

VERSIONS = 10  # of a block
TIMEOUT_S = 60.0
START_TIMEOUT_S = 120.0


class Way(Protocol):
    """One way from this process to its actors."""

    layout: str

    @property
    def sent_bytes(self) -> int | None:
        """Through sockets, so far; None where that is another's to know."""

    def send(self, vector: np.ndarray) -> float:
        """Seconds until the last actor has a new version."""

    def processes(self) -> list[psutil.Process]:
        """All that work for it, this one left out."""


def measure_local(
    payloads_bytes: Sequence[int], *, actors: int, repeat: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """A result for each way and size, with `repeat` blocks of versions behind it."""
    results = []
    say(f"inside this machine: starting {3 * actors} actors")
    with ways_of(actors) as ways:
        for size in payloads_bytes:
            vector = weights_of(size)
            blocks: dict[str, list[dict[str, Any]]] = {way.layout: [] for way in ways}
            for number in range(repeat):
                for way in ways:
                    say(f"inside this machine, {size / 1e6:g} MB, {way.layout}, {number + 1} of {repeat}")
                    blocks[way.layout].append(_block(way, vector))
            results += [_result(layout, size, actors, of_way) for layout, of_way in blocks.items()]
    return results


@contextlib.contextmanager
def ways_of(actors: int) -> Iterator[list[Way]]:
    """All three, with so many actors each."""
    with guarded_folder() as folder, ExitStack() as stack:
        uris = {"shared-memory": f"shm://{folder}/shared", "zmq-per-actor": f"ipc://{folder}/zmq"}
        ways: list[Way] = [
            stack.enter_context(closing(ChannelWay(layout, uri, actors))) for layout, uri in uris.items()
        ]
        before = set(_children())
        ray = stack.enter_context(local_ray())
        way = RayWay(ray, actors)
        way.belonging = [process for process in _children() if process not in before]
        yield [*ways, way]


class ChannelWay:
    """A weights channel of ours, with every actor connected to it."""

    def __init__(self, layout: str, uri: str, actors: int) -> None:
        self.layout = layout
        self._version = 0
        self._publisher = bind_weights(uri)
        self._actors: list[Program] = []
        try:
            for number in range(actors):
                self._actors.append(Program(PROGRAM, f"actor {number} of {layout}"))
                self._actors[-1].tell({"role": "actor", "uri": self._publisher.uri})
            for actor in self._actors:
                actor.answer(START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    @property
    def sent_bytes(self) -> int | None:
        return self._publisher.sent_bytes

    def send(self, vector: np.ndarray) -> float:
        self._version += 1
        message = message_of(self._version, vector)
        began = time.monotonic()
        self._publisher.publish(message)
        last = [list(arrivals(actor, self._version, TIMEOUT_S))[-1] for actor in self._actors]
        return max(at for _, at in last) - began

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(actor.pid) for actor in self._actors]

    def close(self) -> None:
        for actor in self._actors:
            actor.close()
        self._publisher.close()


class StoreReader:
    """An actor of Ray."""

    def __init__(self) -> None:
        self._own = np.empty(0, np.float32)

    def take(self, references: list[Any]) -> float:
        """The reference comes in a list, so that Ray does not look it up before the call."""
        vector = ray_calls.ray().get(references[0])
        if self._own.shape != vector.shape:
            self._own = np.empty_like(vector)
        np.copyto(self._own, vector)
        return time.monotonic()


class RayWay:
    """Ray's object store, with so many actors that are called; `belonging` are all processes of Ray."""

    layout = "ray-object-store"
    sent_bytes: int | None = None

    def __init__(self, ray: Any, actors: int) -> None:
        self._ray = ray
        self.belonging: list[psutil.Process] = []
        made = ray.remote(StoreReader).options(num_cpus=0)
        self._actors = [made.remote() for _ in range(actors)]
        self._send_all(np.zeros(1, np.float32), START_TIMEOUT_S)

    def send(self, vector: np.ndarray) -> float:
        began = time.monotonic()
        return self._send_all(vector, TIMEOUT_S) - began

    def processes(self) -> list[psutil.Process]:
        return self.belonging

    def _send_all(self, vector: np.ndarray, timeout_s: float) -> float:
        reference = self._ray.put(vector)
        calls = [actor.take.remote([reference]) for actor in self._actors]
        return max(self._ray.get(calls, timeout=timeout_s))


def _block(way: Way, vector: np.ndarray) -> dict[str, Any]:
    """Some versions in a row, after one that is not counted."""
    way.send(vector)
    processes = [psutil.Process(), *way.processes()]
    cpu_s, sent = _cpu_s(processes), way.sent_bytes
    seconds = [way.send(vector) for _ in range(VERSIONS)]
    spent_s = sum(after - cpu_s[process] for process, after in _cpu_s(processes).items())
    return {
        "seconds": seconds,
        "cpu_s": spent_s / VERSIONS,
        "egress_bytes": None if sent is None else ((way.sent_bytes or 0) - sent) // VERSIONS,
    }


def _children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _cpu_s(processes: Sequence[psutil.Process]) -> dict[psutil.Process, float]:
    """Of those that are there: Ray ends workers that have nothing to do."""
    spent = {}
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent[process] = times.user + times.system
    return spent


def _result(layout: str, size: int, actors: int, blocks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "layout": layout,
        "hosts": 1,
        "actors": actors,
        "payload_bytes": size,
        "last_host_s": statistics.median(s for block in blocks for s in block["seconds"]),
        "egress_bytes": blocks[-1]["egress_bytes"],
        "cpu_s_per_version": statistics.mean(block["cpu_s"] for block in blocks),
        "predicted_s": None,
    }
