"""A population's learners as one process that Ray places: unrolls of all members in, their weights out."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Collection
from typing import Any

from lamarckian_cli.errors import LamarckError, MDPError
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.learner_host import WAIT_S, LearnerHost
from lamarckian_cli.launch.population.members import Members, Placing, Trained
from lamarckian_cli.launch.population.trainer import Plan
from lamarckian_cli.learner.batch import Batch, to_batch
from lamarckian_cli.records import Unrolls


class PopulationHost(LearnerHost):
    """A LearnerHost whose learners are the members of a population, for one individual after another."""

    def __init__(
        self,
        job: Job,
        folder: str | None,
        threads: int,
        device: str,
        keys: dict[str, str] | None,
        address: str,
        plan: Plan,
    ) -> None:
        super().__init__(job, folder, threads, device, keys, address)
        self.members = Members(self.learners, plan, self.keeper)
        self._env_steps = 0
        self._members_lock = threading.Lock()  # over `members`; taken for moments only
        self._orders: queue.SimpleQueue[tuple[str, Placing | str]] = queue.SimpleQueue()
        self._done = threading.Event()

    # -------------------------------------------------------------- calls

    def place(self, member: str, placing: Placing) -> None:
        """Let an individual begin on a free member, before the next update."""
        self._orders.put((member, placing))

    def give_up(self, member: str, error: str) -> None:
        """End an individual's time without a result, before the next update."""
        self._orders.put((member, error))

    def finished(self, timeout_s: float) -> list[Trained]:
        """Who is done; waits for the first, but no longer than that. Raises what ended the learning."""
        self._done.wait(timeout_s)
        if self.error is not None:
            raise self.error
        with self._members_lock:
            self._done.clear()
            return self.members.take_finished()

    def keep(self, individuals: Collection[int]) -> None:
        with self._members_lock:
            self.members.keep(individuals)

    def kept(self, individual: int) -> dict[str, Any]:
        """What an individual came to; KeyError where it is not kept."""
        with self._members_lock:
            return self.members.kept(individual)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`; before `start`."""
        self._env_steps = int(state["env_steps"])
        self.members.restore(state["members"])

    def state(self) -> dict[str, Any]:
        with self._members_lock:
            return {"members": self.members.state(), "env_steps": self._env_steps}

    def progress(self) -> dict[str, Any]:
        with self._members_lock:
            dropped = self.members.dropped_env_steps
        return {**super().progress(), "env_steps": self._env_steps, "dropped_env_steps": dropped}

    # -------------------------------------------------------------- threads

    def _take_in(self, unrolls: Unrolls) -> bool:
        name = unrolls.policy
        with self._members_lock:
            while self._results:
                self.members.add_results(self._results.popleft())
            self.members.put(unrolls)
            batches = []
            while self.members.ready(name):
                batches.append(self.learners[name].take())
            self._tell()
        return all(self._hand_over(name, to_batch(batch, self.device)) for batch in batches)

    def _learn(self) -> None:
        while not self._stop.is_set():
            self._follow_orders()
            try:
                name, batch = self._batches.get(timeout=WAIT_S)
            except queue.Empty:
                continue
            self._taken.set()
            self._follow_orders()
            with self._members_lock:
                wanted = self.members.takes(name, batch.version)
            if wanted:
                self._learn_one(name, batch)

    def _learn_one(self, name: str, batch: Batch) -> None:
        learner = self.learners[name]
        began = time.perf_counter()
        try:
            report = learner.learn(batch)
        except MDPError:
            raise  # the game is to blame, and it is everybody's
        except LamarckError as error:
            with self._members_lock:
                self.members.fail(name, str(error))
                self._tell()
            return
        report["update_s"] = time.perf_counter() - began
        self._publish(learner)
        self._keep_pool(learner)
        with self._lock:
            self._count_update(name, batch, report)
        with self._members_lock:
            self._env_steps += batch.steps
            self.members.learned(name)
            self._tell()

    def _follow_orders(self) -> None:
        while True:
            try:
                member, order = self._orders.get_nowait()
            except queue.Empty:
                return
            with self._members_lock:
                if isinstance(order, str):
                    self.members.fail(member, order)
                    self._tell()
                    continue
                self.members.place(member, order)
            self._publish(self.learners[member])
            self._keep_pool()

    def _count_results(self) -> None:
        """Matches are counted where they come in: they may end an individual's time."""

    def _tell(self) -> None:
        """With the members' lock in hand: somebody may wait for those who are done."""
        if self.members.finished:
            self._done.set()
