"""A population in this process and thread: exact under a seed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Any

from lamarckian_cli.errors import LamarckError, MDPError
from lamarckian_cli.launch.assembly import build_learners, build_rollout, message_unrolls, trained_policies
from lamarckian_cli.launch.casting import cast_players
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.pool_keeper import make_keeper
from lamarckian_cli.launch.population.members import Members, Placing, Trained
from lamarckian_cli.launch.population.trainer import Plan, Progress
from lamarckian_cli.launch.process import keep_memory, limit_threads
from lamarckian_cli.learner.learner import Learner
from lamarckian_cli.seeding import derive_seed


class InprocTrainer:
    """A Trainer whose actor and learners are here."""

    def __init__(self, job: Job, plan: Plan, state: dict[str, Any] | None = None) -> None:
        """From an earlier one's `state()` where there is one."""
        self.job = job
        self.notes: list[str] = []
        keep_memory()
        limit_threads(1)
        mdp = job.env.make_mdp()
        cast = cast_players(job, mdp.describe())
        learners = build_learners(job, cast)
        self._keeper = make_keeper(job, learners)
        self._members = Members(learners, plan, self._keeper)
        self._rollout = build_rollout(job, mdp, cast, actor=0)
        self._policies = trained_policies(self._rollout)
        self._minimum = message_unrolls(job, cast)
        self._loop = asyncio.new_event_loop() if mdp.external else None
        self._placings = 0
        self._env_steps = 0
        if state is not None:
            self._members.restore(state["members"])
            self._env_steps, self._placings = int(state["env_steps"]), int(state["placings"])
            self._rollout.restart(derive_seed(job.seed, ("placings", self._placings)))
        self._keep_pool(*learners.values())

    def place(self, member: str, placing: Placing) -> None:
        self._members.place(member, placing)
        self._placings += 1
        self._policies[member].load(self._members.learners[member].weights())
        self._keep_pool()

    def give_up(self, member: str, error: str) -> None:
        self._members.fail(member, error)

    def advance(self, timeout_s: float) -> list[Trained]:
        members, until = self._members, time.monotonic() + timeout_s
        while not members.finished and len(members.free()) < len(members.learners):
            self._sample()
            for name in members.learners:
                while members.ready(name):
                    self._learn(name)
            if time.monotonic() >= until:
                break
        return members.take_finished()

    def keep(self, individuals: Collection[int]) -> None:
        self._members.keep(individuals)

    def kept(self, individual: int) -> dict[str, Any]:
        return self._members.kept(individual)

    def report(self) -> Progress:
        return Progress(
            env_steps=self._env_steps,
            dropped_env_steps=self._members.dropped_env_steps,
            actors=1,
        )

    def state(self) -> dict[str, Any]:
        return {"members": self._members.state(), "env_steps": self._env_steps, "placings": self._placings}

    def close(self) -> None:
        self._rollout.close()
        if self._loop is not None:
            self._loop.close()

    # -------------------------------------------------------------- parts

    def _sample(self) -> None:
        if self._loop is None:
            self._rollout.step()
        else:
            self._loop.run_until_complete(self._rollout.step_outside())
        for unrolls in self._rollout.take(self._minimum):
            self._members.put(unrolls)
        self._members.add_results(self._rollout.pop_results())

    def _learn(self, name: str) -> None:
        learner = self._members.learners[name]
        try:
            learner.update()
        except MDPError:
            raise  # the game is to blame, and it is everybody's
        except LamarckError as error:
            self._members.fail(name, str(error))
            return
        self._env_steps += self.job.algo.batch_size
        self._policies[name].load(learner.weights())
        self._keep_pool(learner)
        self._members.learned(name)

    def _keep_pool(self, *learners: Learner) -> None:
        if self._keeper is not None:
            self._keeper.follow(learners, self._rollout.opponents)
