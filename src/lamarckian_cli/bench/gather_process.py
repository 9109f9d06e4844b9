"""The processes of `lamarck bench gather`: actors that only send, a node agent, a learner that only takes.

Driven by JSON lines (see `program`). The first one says who this is; then actors and learner
are asked, as often as wanted, to work for some seconds:

    {"role": "learner", "uri": ..., "keys": ... or null}
    {"role": "agent", "uri": ..., "learner": ..., "keys": ..., "actors": ...}
    {"role": "actor", "uri": ...}
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lamarckian_cli.bench.program import questions, reply
from lamarckian_cli.errors import TransportError
from lamarckian_cli.launch.casting import cast_players
from lamarckian_cli.launch.process import keep_memory
from lamarckian_cli.launch.wiring import job_of
from lamarckian_cli.records import SeatSpec
from lamarckian_cli.transport.channel import Receiver, bind_gather, connect_gather
from lamarckian_cli.transport.codec import LIMITS, Message, decode, encode
from lamarckian_cli.transport.forward import UnrollForwarder
from lamarckian_cli.transport.gather import MOST_SENDERS
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.packing import unpack_unrolls

JOIN_TIMEOUT_S = 60.0
CAPACITY = 1  # as in a training
WARM_UP_S = 0.5
DRAIN_TIMEOUT_S = 60.0  # for what is under way when nobody sends any more
_WAIT_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A message of unrolls in a file, as every actor sends it."""

    overrides: tuple[str, ...]  # of the job that it comes from
    path: str
    sizes: tuple[int, ...]  # bytes of its frames
    unrolls: int
    length: int  # env steps of each

    @classmethod
    def store(
        cls, message: Message, path: str, *, overrides: Sequence[str], unrolls: int, length: int
    ) -> Sample:
        frames = [bytes(frame) for frame in encode(message)]
        Path(path).write_bytes(b"".join(frames))
        sizes = tuple(map(len, frames))
        return cls(overrides=tuple(overrides), path=path, sizes=sizes, unrolls=unrolls, length=length)

    def load(self) -> Message:
        whole = memoryview(Path(self.path).read_bytes())
        starts = [sum(self.sizes[:number]) for number in range(len(self.sizes))]
        return decode(
            [whole[start : start + size] for start, size in zip(starts, self.sizes, strict=True)], LIMITS
        )

    @property
    def message_bytes(self) -> int:
        return sum(self.sizes)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Tally:
    """Messages as they are taken, and their rate once it is steady. One thread adds, another may wait."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._added = threading.Condition()

    def add(self) -> None:
        with self._added:
            self._times.append(time.monotonic())
            self._added.notify_all()

    def await_count(self, count: int, timeout_s: float) -> int:
        """Until so many were taken, or the time is over: how many were."""
        with self._added:
            self._added.wait_for(lambda: len(self._times) >= count, timeout_s)
            return len(self._times)

    def rate(self, seconds: float) -> float:
        """Messages per second over so long after a warm-up; 0 where there were too few."""
        if not self._times:
            return 0.0
        since = self._times[0] + WARM_UP_S
        late = [at for at in self._times if at >= since]
        window = late[: sum(at <= since + seconds for at in late) + 1]
        return (len(window) - 1) / (window[-1] - window[0]) if len(window) > 1 else 0.0


def sending_s(seconds: float) -> float:
    """How long actors send, so that all of them do while the rate is taken."""
    return seconds + 2 * WARM_UP_S


def serve_learner(given: Mapping[str, Any]) -> None:
    keys = None if given["keys"] is None else JobKeys.from_dict(given["keys"])
    receiver = bind_gather(given["uri"], keys=keys, capacity=CAPACITY, senders=MOST_SENDERS)
    intake = Intake(receiver)
    reply({"uri": receiver.uri})
    for question in questions():
        if "sample" in question:
            intake.begin(Sample(**question["sample"]))
            reply({"ready": True})
        else:
            taken = intake.tally.await_count(question["sent"], DRAIN_TIMEOUT_S)
            reply({"taken": taken, "rate": intake.tally.rate(question["seconds"]), "error": intake.error})
    receiver.close()


class Intake:
    """Takes messages in a thread, and unpacks and checks them as a learner does."""

    def __init__(self, receiver: Receiver) -> None:
        self.tally = Tally()
        self.error = ""
        self._receiver = receiver
        self._seats: dict[str, SeatSpec] = {}
        self._length = 0
        threading.Thread(target=self._run, daemon=True).start()

    def begin(self, sample: Sample) -> None:
        """Expect such messages from now on, and count from nothing. Nobody sends meanwhile."""
        job = job_of(sample.overrides)
        self._seats = cast_players(job, job.env.make_mdp().describe()).trained
        self._length = sample.length
        self.tally = Tally()

    def _run(self) -> None:
        try:
            while True:
                message = self._receiver.receive(_WAIT_S)
                if message is not None:
                    unpack_unrolls(message, self._seats, self._length)
                    self.tally.add()
        except TransportError as error:
            self.error = str(error)


def serve_agent(given: Mapping[str, Any]) -> None:
    forwarder = UnrollForwarder(given["uri"], capacity=CAPACITY)
    keys = JobKeys.from_dict(given["keys"])
    forwarder.start(
        given["learner"], keys=keys, actors=given["actors"], name="node agent", timeout_s=JOIN_TIMEOUT_S
    )
    reply({"uri": forwarder.uri})
    for _ in questions():
        reply(forwarder.status())
    forwarder.close()


def serve_actor(given: Mapping[str, Any]) -> None:
    sender = connect_gather(given["uri"], capacity=CAPACITY, timeout_s=JOIN_TIMEOUT_S)
    reply({"joined": True})
    for question in questions():
        message = Sample(**question["sample"]).load()
        until, sent = time.monotonic() + sending_s(question["seconds"]), 0
        while time.monotonic() < until:
            sent += sender.send(message, _WAIT_S)
        reply({"sent": sent})
    sender.close()


def main() -> None:
    given = next(questions())
    keep_memory()
    roles = {"learner": serve_learner, "agent": serve_agent, "actor": serve_actor}
    roles[given["role"]](given)


if __name__ == "__main__":
    main()
