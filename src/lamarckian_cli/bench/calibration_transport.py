"""What a message and a byte cost the processes of a job, measured on their own channels.

Messages go the way of unrolls: from an actor over a local socket to a node agent, which passes
them on in bundles over an encrypted one to the learner (ourselves). Weights go back from us to a
subscriber. Each end is a process of its own, and counts its processor time, threads included:

    python -m lamarckian_cli.bench.calibration_transport    # JSON lines: an order in, seconds out
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lamarckian_cli.bench.simulation_network import Handling, Transport
from lamarckian_cli.errors import RunError
from lamarckian_cli.launch.process import keep_memory
from lamarckian_cli.transport.channel import (
    Receiver,
    bind_gather,
    bind_weights,
    connect_gather,
    connect_weights,
)
from lamarckian_cli.transport.codec import Message
from lamarckian_cli.transport.forward import UnrollForwarder
from lamarckian_cli.transport.keys import JobKeys

SIZES = ((4_096, 1500), (1 << 20, 150))  # bytes, and how many messages; the line through both is the cost
ARRAYS = 11  # a message: as many as unrolls of one input and one head have
AT_ONCE = 16  # messages that may wait, so that the agent finds some to bundle
WAIT_S = 30.0


def measure_transport() -> Transport:
    """Measure all four ends; takes seconds. Raises RunError where one of them ends."""
    keep_memory()
    keys = JobKeys.make()
    receiver = bind_gather("tcp://127.0.0.1:0", keys=keys, capacity=AT_ONCE)
    others: list[_Other] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            order = {"uri": f"ipc://{Path(folder).resolve()}/unrolls", "keys": keys.for_clients().to_dict()}
            agent = _Other({"role": "agent", "learner": receiver.uri, **order}, others)
            actor = _Other({"role": "actor", **order}, others)
            handlings = _gathering(receiver, agent, actor)
            return Transport(**handlings, publish=_publishing(keys, order, others))
        finally:
            for other in others:
                other.close()
            receiver.close()


def _gathering(receiver: Receiver, agent: _Other, actor: _Other) -> dict[str, Handling]:
    seconds: dict[str, list[float]] = {"actor": [], "agent": [], "learner": []}
    for size, count in SIZES:
        before = agent.ask(None)
        actor.tell([size, count])
        seconds["learner"].append(_cpu_s(partial(_receive, receiver, count)))
        seconds["actor"].append(actor.answer())
        seconds["agent"].append(agent.ask(None) - before)
    return {name: _fitted(values) for name, values in seconds.items()}


def _publishing(keys: JobKeys, order: dict[str, Any], others: list[_Other]) -> Handling:
    publisher = bind_weights("tcp://127.0.0.1:0", keys=keys)
    try:
        subscriber = _Other({**order, "role": "subscriber", "uri": publisher.uri}, others)
        versions = itertools.count(1)

        def publish(size: int, count: int) -> None:
            for _ in range(count):
                header = {"policy": "main", "version": next(versions)}
                publisher.publish(Message("weights", header, (np.zeros(size // 4, np.float32),)))
                subscriber.ask(None)

        return _fitted([_cpu_s(partial(publish, size, count)) for size, count in SIZES])
    finally:
        publisher.close()


def _receive(receiver: Receiver, count: int) -> None:
    for _ in range(count):
        if receiver.receive(WAIT_S) is None:
            raise RunError(f"a message did not arrive within {WAIT_S:g} s while transport was measured")


def _fitted(seconds: Sequence[float]) -> Handling:
    """The line through two points: small messages and large ones."""
    (small, small_count), (large, large_count) = SIZES
    small_s, large_s = seconds[0] / small_count, seconds[1] / large_count
    byte_s = max(0.0, (large_s - small_s) / (large - small))
    return Handling(message_s=max(0.0, small_s - byte_s * small), byte_s=byte_s)


def _cpu_s(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


class _Other:
    """One of the other processes: it is given its order, and is ready when this returns."""

    def __init__(self, order: dict[str, Any], others: list[_Other]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lamarckian_cli.bench.calibration_transport"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        others.append(self)
        self.ask(order)

    def ask(self, question: Any) -> float:
        self.tell(question)
        return self.answer()

    def tell(self, what: Any) -> None:
        assert self._process.stdin is not None
        print(json.dumps(what), file=self._process.stdin, flush=True)

    def answer(self) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RunError(f"a process that measures transport ended with status {self._process.wait()}")
        return float(json.loads(line))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


# ------------------------------------------------------------------ in the other processes


def main() -> None:
    """Play the role that the first line orders, and answer every further one."""
    keep_memory()
    order = json.loads(sys.stdin.readline())
    keys = JobKeys.from_dict(order["keys"])
    roles = {"actor": _be_actor, "agent": _be_agent, "subscriber": _be_subscriber}
    work = roles[order["role"]](order, keys)
    _say(0.0)
    for line in sys.stdin:
        _say(work(json.loads(line)))


def _be_actor(order: dict[str, Any], keys: JobKeys) -> Callable[[Any], float]:
    """Asked [size, count], sends so many messages; its processor seconds for them."""
    sender = connect_gather(order["uri"], capacity=AT_ONCE, name="calibration")

    def send(size: int, count: int) -> None:
        for _ in range(count):
            arrays = tuple(np.zeros(size // ARRAYS, np.uint8) for _ in range(ARRAYS))
            if not sender.send(Message("calibration", {}, arrays), WAIT_S):
                raise RunError(f"a message did not leave within {WAIT_S:g} s while transport was measured")

    return lambda asked: _cpu_s(partial(send, *asked))


def _be_agent(order: dict[str, Any], keys: JobKeys) -> Callable[[Any], float]:
    """Asked anything, its processor seconds so far."""
    forwarder = UnrollForwarder(order["uri"], capacity=AT_ONCE)
    forwarder.start(order["learner"], keys=keys, actors=1, name="calibration", timeout_s=WAIT_S)
    return lambda _: time.process_time()


def _be_subscriber(order: dict[str, Any], keys: JobKeys) -> Callable[[Any], float]:
    """Asked anything, answers once the next version is here."""
    weights = connect_weights(order["uri"], keys=keys, name="calibration")

    def wait(_: Any) -> float:
        if not weights.wait(WAIT_S):
            raise RunError(f"no weights within {WAIT_S:g} s while transport was measured")
        return 0.0

    return wait


def _say(seconds: float) -> None:
    print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main()
