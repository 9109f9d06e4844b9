"""A population over Ray and ZeroMQ: its learners in one process, its matches on any number of machines."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from lamarckian_cli.launch.distributed import DistributedTraining
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.population.members import Placing, Trained
from lamarckian_cli.launch.population.trainer import Plan, Progress
from lamarckian_cli.launch.signals import Stop

LOOK_EVERY_S = 1.0  # how often actors and machines are looked after


class DistributedTrainer(DistributedTraining):
    """A Trainer whose processes Ray places. `start` brings them up."""

    HOST = "population.host:PopulationHost"

    def __init__(self, job: Job, plan: Plan, stop: Stop) -> None:
        super().__init__(job, stop.event, stop.heard)
        self._plan = plan
        self._looked_at = 0.0
        self._last = Progress(env_steps=0, dropped_env_steps=0, actors=0)

    def place(self, member: str, placing: Placing) -> None:
        self._ask("place", "placing an individual", member, placing)

    def give_up(self, member: str, error: str) -> None:
        self._ask("give_up", "giving an individual up", member, error)

    def advance(self, timeout_s: float) -> list[Trained]:
        if time.monotonic() - self._looked_at >= LOOK_EVERY_S:
            self._look()
        done: list[Trained] = self._ask("finished", "training a population", timeout_s)
        return done

    def keep(self, individuals: Collection[int]) -> None:
        self._ask("keep", "training a population", list(individuals))

    def kept(self, individual: int) -> dict[str, Any]:
        state: dict[str, Any] = self._ask("kept", "reading an individual's weights", individual)
        return state

    def report(self) -> Progress:
        """How the training stood when it was last looked at."""
        return self._last

    def close(self) -> None:
        self.stop()

    # -------------------------------------------------------------- parts

    def _host_arguments(self) -> tuple[Any, ...]:
        return (self._plan,)

    def _look(self) -> None:
        progress = self.progress()
        self._looked_at = time.monotonic()
        self._last = Progress(
            env_steps=progress["env_steps"],
            dropped_env_steps=progress["dropped_env_steps"],
            actors=progress["actors"],
        )

    def _ask(self, method: str, doing: str, *arguments: Any) -> Any:
        return self._calls.result(self._learner.call.remote(method, *arguments), doing)
