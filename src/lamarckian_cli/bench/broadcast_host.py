"""What runs on the hosts of `lamarck bench broadcast`: a learner, node agents, actors that only read.

Driven by JSON lines (see `program`). The first one says who this is:

    {"role": "learner", "uri": ..., "keys": ...}    publishes weights at an address
    {"role": "agent", "uri": ..., "keys": ...}      relays them, and shares them on its machine
    {"role": "actor", "uri": ...}                   copies every version, and says when it had it

Times are this kernel's monotonic clock in seconds, which all hosts of namespaces share.
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from lamarckian_cli.bench.program import end_with_asker, questions, reply
from lamarckian_cli.launch.shared_folder import make_folder
from lamarckian_cli.transport.channel import Publisher, bind_weights, connect_weights
from lamarckian_cli.transport.codec import Message
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.relay import WeightsRelay

POLICY = "main"
JOIN_TIMEOUT_S = 30.0
_WAIT_S = 60.0


def weights_of(size_bytes: int) -> np.ndarray:
    """A vector of about that size, of random numbers as a trained network has them."""
    return np.random.default_rng(0).standard_normal(max(1, size_bytes // 4), dtype=np.float32)


def message_of(version: int, vector: np.ndarray) -> Message:
    return Message("weights", {"policy": POLICY, "version": version}, (vector,))


def serve_learner(given: Mapping[str, Any]) -> None:
    publisher = bind_weights(given["uri"], keys=keys_of(given))
    reply({"uri": publisher.uri})
    vectors: dict[int, np.ndarray] = {}  # made before they are timed, and never written to again
    for question in questions():
        size = question["bytes"]
        if size not in vectors:
            vectors[size] = weights_of(size)
        if "period_s" in question:
            reply({"published": publish_on_time(publisher, vectors[size], question)})
            continue
        before = publisher.sent_bytes
        if "version" in question:
            at = time.monotonic()
            publisher.publish(message_of(question["version"], vectors[size]))
            reply({"at": at, "sent_bytes": before})
        else:
            reply({"sent_bytes": before})


def publish_on_time(
    publisher: Publisher, vector: np.ndarray, question: Mapping[str, Any]
) -> list[tuple[int, float]]:
    """A version every `period_s` for `seconds`; each with its time."""
    published = []
    began = time.monotonic()
    for number in range(int(question["seconds"] / question["period_s"]) + 1):
        time.sleep(max(0.0, began + number * question["period_s"] - time.monotonic()))
        version = question["from_version"] + number
        published.append((version, time.monotonic()))
        publisher.publish(message_of(version, vector))
    return published


def serve_agent(given: Mapping[str, Any]) -> None:
    folder = make_folder()
    try:
        relay = WeightsRelay(
            given["uri"], f"shm://{folder}/weights", keys=keys_of(given), name=socket.gethostname()
        )
        reply({"uri": relay.uri, "shared_uri": relay.shared_uri})
        for question in questions():
            if "parent" in question:
                relay.hang(question["parent"])
            reply(relay.status())
        relay.close()
    finally:
        shutil.rmtree(folder)


def serve_actor(given: Mapping[str, Any]) -> None:
    """Takes over every version as `Policy.load` does: into an array of its own."""
    reader = connect_weights(given["uri"], timeout_s=JOIN_TIMEOUT_S)
    reply({"joined": True})
    end_with_asker()
    own = np.empty(0, np.float32)
    while True:
        for message in reader.wait(_WAIT_S):
            (vector,) = message.arrays
            if own.shape != vector.shape:
                own = np.empty_like(vector)
            np.copyto(own, vector)
            reply({"version": message.header["version"], "at": time.monotonic()})


def keys_of(given: Mapping[str, Any]) -> JobKeys:
    return JobKeys.from_dict(given["keys"])


def main() -> None:
    given = next(questions())
    roles = {"learner": serve_learner, "agent": serve_agent, "actor": serve_actor}
    roles[given["role"]](given)


if __name__ == "__main__":
    main()
