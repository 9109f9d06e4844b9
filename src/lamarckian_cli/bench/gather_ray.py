"""The unrolls of `lamarck bench gather` by Ray's actor calls, as one would do it without a transport."""

from __future__ import annotations

import time
from typing import Any

from lamarckian_cli.bench.gather_process import Sample, Tally, sending_s
from lamarckian_cli.launch import ray_calls

IN_FLIGHT = 2  # calls of an actor: one is taken while the next one is written
START_TIMEOUT_S = 120.0
TIMEOUT_S = 60.0


class RayGather:
    """A learner and so many actors."""

    what = "ray-calls"

    def __init__(self, ray: Any, actors: int) -> None:
        self._ray = ray
        self._learner = ray.remote(Learner).options(num_cpus=0).remote()
        made = ray.remote(Actor).options(num_cpus=0)
        self._actors = [made.remote(self._learner) for _ in range(actors)]
        ray.get([actor.ready.remote() for actor in self._actors], timeout=START_TIMEOUT_S)

    def rate(self, sample: Sample, seconds: float) -> float:
        """Messages per second that the learner takes."""
        timeout_s = sending_s(seconds) + TIMEOUT_S
        self._ray.get(self._learner.begin.remote(), timeout=timeout_s)
        runs = [actor.run.remote(sample.as_dict(), seconds) for actor in self._actors]
        self._ray.get(runs, timeout=timeout_s)
        return float(self._ray.get(self._learner.rate.remote(seconds), timeout=timeout_s))


class Learner:
    """Looks at the shapes of what it is called with, and no further."""

    def __init__(self) -> None:
        self._tally = Tally()
        self.shapes: list[tuple[int, ...]] = []

    def begin(self) -> None:
        self._tally = Tally()

    def take(self, header: dict[str, Any], arrays: tuple[Any, ...]) -> None:
        self.shapes = [array.shape for array in arrays]
        self._tally.add()

    def rate(self, seconds: float) -> float:
        return self._tally.rate(seconds)


class Actor:
    """Calls the learner again and again with the same arrays."""

    def __init__(self, learner: Any) -> None:
        self._learner = learner

    def ready(self) -> None:
        """Answered when it runs."""

    def run(self, sample: dict[str, Any], seconds: float) -> None:
        ray = ray_calls.ray()
        message = Sample(**sample).load()
        until = time.monotonic() + sending_s(seconds)
        under_way: list[Any] = []
        while time.monotonic() < until:
            under_way.append(self._learner.take.remote(message.header, message.arrays))
            if len(under_way) == IN_FLIGHT:
                _, under_way = ray.wait(under_way, num_returns=1, timeout=TIMEOUT_S)
        ray.get(under_way, timeout=TIMEOUT_S)
