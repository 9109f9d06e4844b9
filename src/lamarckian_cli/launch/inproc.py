"""`cluster=inproc`: actor and learner in this process and thread, exact under a seed.

Checkpoints are part of the schedule: at each one, running matches and unfinished unrolls are
given up and begun anew from a seed of that checkpoint, whether or not the run is ever
interrupted. So a run that was killed goes on from its checkpoint exactly as an unbroken one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator
from typing import Any

from lamarckian_cli.launch.assembly import build_learners, build_rollout, message_unrolls, trained_policies
from lamarckian_cli.launch.casting import cast_players
from lamarckian_cli.launch.counters import Counters
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.pool_keeper import make_keeper
from lamarckian_cli.launch.process import keep_memory, limit_threads
from lamarckian_cli.learner.learner import Learner
from lamarckian_cli.seeding import derive_seed


class InprocTraining:
    """Iterate `updates()`; after each one, counters, checkpoints and reports can be read."""

    def __init__(self, job: Job, stopped: threading.Event | None = None) -> None:
        self.job = job
        self._stopped = stopped or threading.Event()
        keep_memory()
        limit_threads(1)
        self.mdp = job.env.make_mdp()
        self.spec = self.mdp.describe()
        self.cast = cast_players(job, self.spec)
        self.learners: dict[str, Learner] = build_learners(job, self.cast)
        self.rollout = build_rollout(job, self.mdp, self.cast, actor=0)
        self.keeper = make_keeper(job, self.learners)
        self.counters = Counters(list(self.learners), job.evaluation.window)
        self.reports: dict[str, dict[str, float]] = {}  # policy -> of its newest update
        self._policies = trained_policies(self.rollout)
        self._minimum = message_unrolls(job, self.cast)
        self._epoch = 0  # of the schedule of checkpoints

    def updates(self) -> Generator[None]:
        """Sample and learn until `stopped` is set; yields after each update."""
        loop = asyncio.new_event_loop() if self.mdp.external else None
        for name, policy in self._policies.items():
            policy.load(self.learners[name].weights())
        if self.keeper is not None:
            self.keeper.follow(self.learners.values(), self.rollout.opponents)
        try:
            while not self._stopped.is_set():
                self._sample(loop)
                for name, learner in self.learners.items():
                    while learner.ready():
                        self._learn(name)
                        yield
        finally:
            self.rollout.close()
            if loop is not None:
                loop.close()

    def checkpoint_due(self) -> bool:
        return self._epoch_now() > self._epoch

    def checkpoint(self) -> dict[str, Any]:
        """The state to save; sampling begins anew from here."""
        self._epoch = self._epoch_now()
        self._restart()
        return self.state()

    def state(self) -> dict[str, Any]:
        return {
            "learners": {name: learner.state() for name, learner in self.learners.items()},
            "counters": self.counters.state(),
            **({} if self.keeper is None else {"selfplay": self.keeper.state()}),
        }

    def restore(self, state: dict[str, Any]) -> None:
        for name, learner in self.learners.items():
            learner.restore(state["learners"][name])
        self.counters.restore(state["counters"])
        if self.keeper is not None and "selfplay" in state:  # the best of an evolution brings no pool
            self.keeper.restore(state["selfplay"])
        self._epoch = self._epoch_now()
        self._restart()

    def close(self) -> None:
        self.rollout.close()

    def _epoch_now(self) -> int:
        return self.counters.env_steps // self.job.run.checkpoint_every_env_steps

    def _restart(self) -> None:
        for learner in self.learners.values():
            learner.queue.clear()
        self.rollout.restart(derive_seed(self.job.seed, ("env steps", self.counters.env_steps)))

    def _sample(self, loop: asyncio.AbstractEventLoop | None) -> None:
        if loop is None:
            self.rollout.step()
        else:
            loop.run_until_complete(self.rollout.step_outside())
        for unrolls in self.rollout.take(self._minimum):
            self.learners[unrolls.policy].put(unrolls)

    def _learn(self, name: str) -> None:
        learner = self.learners[name]
        began = time.perf_counter()
        report = self.reports[name] = learner.update()
        report["update_s"] = time.perf_counter() - began
        self._policies[name].load(learner.weights())
        steps = self.job.algo.batch_size
        self.counters.add_batch(steps, steps * self.spec.frames_per_step, report)
        results = self.rollout.pop_results()
        self.counters.add_results(results)
        if self.keeper is not None:
            self.keeper.add_results(results)
            self.keeper.follow([learner], self.rollout.opponents)
