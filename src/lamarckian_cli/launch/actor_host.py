"""An actor of a job as a process that Ray places: it plays, and sends what it recorded.

Nothing here imports torch: an actor whose seats see no images never loads it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any

from lamarckian_cli.actor.opponents import Opponents
from lamarckian_cli.actor.policy import Policy
from lamarckian_cli.actor.rollout import Rollout
from lamarckian_cli.errors import LamarckError
from lamarckian_cli.launch.assembly import build_rollout, message_unrolls, trained_policies
from lamarckian_cli.launch.casting import cast_players
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.process import keep_memory, limit_threads
from lamarckian_cli.transport.channel import connect_gather, connect_weights
from lamarckian_cli.transport.codec import Message
from lamarckian_cli.transport.packing import PAIRINGS, pack_unrolls, unpack_pairings, unpack_weights

WAIT_S = 0.2  # how long a wait lasts before it is looked whether to stop
PATIENCE_S = 1.0  # how long an actor that is ahead of the learner waits for new weights, at least
BEHIND_LEARNER = 4  # niceness: where cores are short the learner goes first, so its data is fresher
CAPACITY = 1  # messages under way: more would only grow stale


class ActorHost:
    """Runs matches and sends their unrolls, with the newest weights."""

    def __init__(
        self, job: Job, number: int, channels: dict[str, str], actors: int, spread: int | None = None
    ) -> None:
        """`channels` are those of this machine, weights and unrolls; `actors` share in a batch.

        A population's members were dealt out among `spread` actors; None: among as many.
        """
        self.job = job
        self.number = number
        self._channels = channels
        self._actors = actors
        self._spread = actors if spread is None else spread
        self._stop = threading.Event()
        self._arrived_at, self._between_s = time.monotonic(), 0.0  # of the newest weights
        self._policies: dict[str, Policy] = {}  # those that train
        self._opponents: Opponents | None = None  # of self-play
        self._versions: dict[str, int] = {}  # policy -> of its newest weights
        self._slack = 1.0  # how many shares it fills, where others are missing, ...
        self._slack_at = 0.0  # ... and since when
        self._sent: dict[str, float] = {}  # policy -> unrolls sent and not learned from, as far as known

    def pid(self) -> int:
        return os.getpid()

    def share_among(self, actors: int) -> None:
        """So many actors fill a batch from now on."""
        self._actors, self._slack = actors, 1.0

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> dict[str, Any]:
        """Sample until `stop`; what went wrong meanwhile in games, counted. Raises what ends it."""
        keep_memory()
        mdp = self.job.env.make_mdp()
        cast = cast_players(self.job, mdp.describe())
        rollout = build_rollout(self.job, mdp, cast, actor=self.number, actors=self._spread)
        limit_threads(1)
        os.nice(BEHIND_LEARNER)
        timeout_s = self.job.cluster.start_timeout_s
        name = f"actor {self.number}"
        weights = connect_weights(self._channels["weights"], name=name, timeout_s=timeout_s)
        sender = connect_gather(self._channels["unrolls"], capacity=CAPACITY, name=name, timeout_s=timeout_s)
        loop = asyncio.new_event_loop() if mdp.external else None
        try:
            self._sample(rollout, weights, sender, message_unrolls(self.job, cast, self._spread), loop)
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
        self._policies = trained_policies(rollout)
        self._opponents = rollout.opponents
        self._await_first(weights)
        batches_ahead = 1 + self.job.cluster.queue_batches
        while not self._stop.is_set():
            self._load(weights.latest())
            # A game outside this process does not wait for anyone, so it is not held back; nor is a
            # population, of which somebody may only play to be judged.
            if loop is not None:
                loop.run_until_complete(rollout.step_outside(WAIT_S))
            elif self.job.members or max(self._sent.values()) < self._share() * batches_ahead:
                rollout.step()
            elif not self._load(weights.wait(self._patience_s())):
                self._stand_in()
            for unrolls in rollout.take(minimum):
                self._sent[unrolls.policy] += len(unrolls.reward)
                message = pack_unrolls(unrolls, rollout.pop_results())
                while not sender.send(message, WAIT_S) and not self._stop.is_set():
                    pass

    def _patience_s(self) -> float:
        """Where weights come slowly, as over a slow link, it is twice as long as the last ones took."""
        return max(PATIENCE_S, 2 * self._between_s)

    def _share(self) -> float:
        """Unrolls of this actor in a batch."""
        return self.job.algo.unrolls_per_batch / self._actors * self._slack

    def _stand_in(self) -> None:
        """No weights came in time: another actor's share is missing, so fill twice as much from now on."""
        self._sent = dict.fromkeys(self._sent, 0.0)
        self._slack, self._slack_at = min(2 * self._slack, self._actors), time.monotonic()

    def _stand_back(self) -> None:
        """Whoever was missing may be there again, once that has not been needed for a while."""
        if self._slack > 1 and time.monotonic() - self._slack_at > self.job.cluster.silence_s:
            self._slack, self._slack_at = max(1.0, self._slack / 2), time.monotonic()

    def _await_first(self, weights: Any) -> None:
        deadline = time.monotonic() + self.job.cluster.start_timeout_s
        while not (self._is_complete() or self._stop.is_set()):
            self._load(weights.wait(min(WAIT_S, max(0.0, deadline - time.monotonic()))))
            if time.monotonic() > deadline:
                raise LamarckError(f"actor {self.number} got no weights from the learner in time")

    def _is_complete(self) -> bool:
        """Whether weights came for all who play."""
        return len(self._sent) == len(self._policies) and (self._opponents is None or self._opponents.ready)

    def _load(self, messages: list[Message]) -> bool:
        """Take over new weights; whether there were any."""
        if messages:
            now = time.monotonic()
            self._between_s, self._arrived_at = now - self._arrived_at, now
            self._stand_back()
        for message in messages:
            if message.kind == PAIRINGS:
                assert self._opponents is not None
                self._opponents.pair(unpack_pairings(message))
                continue
            update = unpack_weights(message)
            if self._opponents is not None and update.policy in self._opponents.names:
                self._opponents.load(update)
                continue
            policy = self._policies.get(update.policy)
            if policy is None:
                continue  # a member whose matches others play
            newer = update.version - self._versions.get(update.policy, update.version)
            learned = newer / self.job.algo.optimizer_steps_per_batch
            left = self._sent.get(update.policy, 0.0) - learned * self._share()
            self._sent[update.policy] = max(0.0, left)
            self._versions[update.policy] = update.version
            policy.load(update)
        return bool(messages)
