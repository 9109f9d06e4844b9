"""An actor of a job as a process that Ray places: it plays, and sends what it recorded.

Nothing here imports torch: an actor whose seats see no images never loads it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any

from lamarckian_cli.actor.rollout import Rollout
from lamarckian_cli.errors import LamarckError
from lamarckian_cli.launch.assembly import build_rollout, cast_players, message_unrolls, trained_policies
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.process import keep_memory, limit_threads
from lamarckian_cli.transport.channel import connect_gather, connect_weights
from lamarckian_cli.transport.packing import pack_unrolls, unpack_weights

WAIT_S = 0.2  # how long a wait lasts before it is looked whether to stop
CAPACITY = 1  # messages under way: more would only grow stale


class ActorHost:
    """Runs matches and sends their unrolls, with the newest weights."""

    def __init__(self, job: Job, number: int, sockets: str) -> None:
        self.job = job
        self.number = number
        self._sockets = sockets
        self._stop = threading.Event()

    def pid(self) -> int:
        return os.getpid()

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> dict[str, Any]:
        """Sample until `stop`; what went wrong meanwhile in games, counted. Raises what ends it."""
        keep_memory()
        mdp = self.job.env.make_mdp()
        cast = cast_players(self.job, mdp.describe())
        rollout = build_rollout(self.job, mdp, cast, actor=self.number)
        limit_threads(1)
        timeout_s = self.job.cluster.start_timeout_s
        name = f"actor {self.number}"
        weights = connect_weights(f"ipc://{self._sockets}/weights", name=name, timeout_s=timeout_s)
        sender = connect_gather(
            f"ipc://{self._sockets}/unrolls", capacity=CAPACITY, name=name, timeout_s=timeout_s
        )
        loop = asyncio.new_event_loop() if mdp.external else None
        try:
            self._sample(rollout, weights, sender, message_unrolls(self.job, cast), loop)
        except LamarckError:
            if not self._stop.is_set():  # the learner left first
                raise
        finally:
            rollout.close()
            sender.close()
            weights.close()
            if loop is not None:
                loop.close()
        return {"failures": rollout.failures, "first_failure": rollout.first_failure}

    def _sample(
        self,
        rollout: Rollout,
        weights: Any,
        sender: Any,
        minimum: int,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        policies = trained_policies(rollout)
        missing = set(policies)
        deadline = time.monotonic() + self.job.cluster.start_timeout_s
        while missing and not self._stop.is_set():
            for message in weights.wait(min(WAIT_S, max(0.0, deadline - time.monotonic()))):
                update = unpack_weights(message)
                policies[update.policy].load(update)
                missing.discard(update.policy)
            if time.monotonic() > deadline:
                raise LamarckError(f"actor {self.number} got no weights from the learner in time")
        while not self._stop.is_set():
            for message in weights.latest():
                update = unpack_weights(message)
                policies[update.policy].load(update)
            if loop is None:
                rollout.step()
            else:
                loop.run_until_complete(rollout.step_outside(WAIT_S))
            for unrolls in rollout.take(minimum):
                message = pack_unrolls(unrolls, rollout.pop_results())
                while not sender.send(message, WAIT_S) and not self._stop.is_set():
                    pass
