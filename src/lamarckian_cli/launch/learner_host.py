"""The learner of a job as a process that Ray places: unrolls in, weights out.

Ray starts, watches and ends it, and carries small control calls; weights and unrolls go over
the project's own channels. Work is done in threads, so that control calls are answered meanwhile.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from lamarckian_cli.errors import LamarckError
from lamarckian_cli.launch.assembly import build_learners
from lamarckian_cli.launch.casting import cast_players
from lamarckian_cli.launch.counters import Counters
from lamarckian_cli.launch.guardian import Guardian
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.pool_keeper import make_keeper
from lamarckian_cli.launch.process import keep_memory, limit_threads
from lamarckian_cli.launch.shared_folder import make_folder
from lamarckian_cli.learner.batch import Batch, to_batch
from lamarckian_cli.transport.channel import Publisher, Receiver, bind_gather, bind_weights
from lamarckian_cli.transport.codec import MessageError
from lamarckian_cli.transport.gather import MOST_SENDERS
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.packing import pack_pairings, pack_weights, unpack_results, unpack_unrolls

if TYPE_CHECKING:
    from lamarckian_cli.learner.learner import Learner
    from lamarckian_cli.records import MatchResult, Unrolls, Weights

WAIT_S = 0.2  # how long a thread waits before it looks whether it should stop
CAPACITY = 1  # messages of an actor that wait here: more would only grow stale


class LearnerHost:
    """Receives unrolls, learns, publishes weights."""

    def __init__(
        self,
        job: Job,
        folder: str | None,
        threads: int,
        device: str,
        keys: dict[str, str] | None,
        address: str,
    ) -> None:
        """`folder` is the job's on this machine, made here where it is None; `keys` open it to others."""
        self.job = job
        self.device = device
        keep_memory()
        limit_threads(threads)
        mdp = job.env.make_mdp()
        self.spec = mdp.describe()
        self.cast = cast_players(job, self.spec)
        mdp.close()
        self.learners = build_learners(job, self.cast, device)
        self.keeper = make_keeper(job, self.learners)
        self.counters = Counters(list(self.learners), job.evaluation.window)
        self.reports: dict[str, dict[str, float]] = {}  # policy -> of its newest update
        self.error: BaseException | None = None
        self._guardian: Guardian | None = None
        if folder is None:
            folder = make_folder()
            self._guardian = Guardian(folder)
        self._gather = bind_gather(f"ipc://{folder}/unrolls", capacity=CAPACITY)
        self._local = bind_weights(f"shm://{folder}/weights")
        self._remote: Publisher | None = None
        self._remote_gather: Receiver | None = None
        if keys is not None:
            own = JobKeys.from_dict(keys)
            self._remote = bind_weights(f"tcp://{address}:0", keys=own)
            self._remote_gather = bind_gather(
                f"tcp://{address}:0",
                keys=own,
                capacity=CAPACITY,
                senders=job.cluster.actors or job.cluster.cores or MOST_SENDERS,
                beside=self._gather,
            )
        self._batches: queue.Queue[tuple[str, Batch]] = queue.Queue(maxsize=1)
        self._taken = threading.Event()  # a batch left the queue
        self._stop = threading.Event()
        self._lock = threading.Lock()  # over learners and counters, between two updates
        self._results: deque[list[MatchResult]] = deque()  # not yet counted: receiving takes no lock
        self._threads = [
            threading.Thread(target=self._guard, args=(f,)) for f in (self._receive, self._learn)
        ]
        self._updates = 0  # begun
        self._updating = False  # with the lock in hand: still True where an update failed midway
        self._first_update_at: float | None = None  # on this process's own clock

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint; before `start`."""
        for name, learner in self.learners.items():
            learner.restore(state["learners"][name])
        self.counters.restore(state["counters"])
        if self.keeper is not None and "selfplay" in state:  # the best of an evolution brings no pool
            self.keeper.restore(state["selfplay"])

    def pid(self) -> int:
        return os.getpid()

    def update_under_way(self) -> int:
        """The number of the update that is being made, from 1 on; 0 between two."""
        return self._updates if self._updating else 0

    def describe(self) -> dict[str, Any]:
        """Where it listens: for the actors of this machine, and for other machines."""
        return {
            "channels": {"weights": self._local.uri, "unrolls": self._gather.uri},
            "weights": "" if self._remote is None else self._remote.uri,
            "unrolls": "" if self._remote_gather is None else self._remote_gather.uri,
            "vector_bytes": sum(learner.weights().vector.nbytes for learner in self.learners.values()),
        }

    def start(self) -> None:
        """Publish the first weights and begin."""
        for learner in self.learners.values():
            self._publish(learner)
        self._keep_pool(*self.learners.values())
        for thread in self._threads:
            thread.start()

    def progress(self) -> dict[str, Any]:
        """Counters, the newest reports, and whether learning failed."""
        if self.error is not None:
            raise self.error
        with self._lock:
            self._count_results()
            return {
                "counters": self.counters.state(),
                "reports": {name: dict(report) for name, report in self.reports.items()},
                "versions": {name: learner.version for name, learner in self.learners.items()},
                "dropped_messages": dict(self._dropped()),
                "sent_bytes": 0 if self._remote is None else self._remote.sent_bytes,
                "since_first_update_s": self._since_first_update_s(),
                "selfplay": {} if self.keeper is None else self.keeper.progress(),
            }

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds, taken between two updates; raises what an update failed of midway."""
        with self._lock:
            if self._updating:
                raise self.error or LamarckError("the learner's last update failed midway")
            self._count_results()
            return {
                "learners": {name: learner.state() for name, learner in self.learners.items()},
                "counters": self.counters.state(),
                **({} if self.keeper is None else {"selfplay": self.keeper.state()}),
            }

    def stop(self) -> None:
        """End the threads and free the channels; the state stays readable."""
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(10.0)
        for end in (self._remote_gather, self._gather, self._remote, self._local):
            if end is not None:
                end.close()
        if self._guardian is not None:
            self._guardian.release()

    def _dropped(self) -> Counter[str]:
        """Messages that came and were not used, by reason."""
        ends = (self._gather, self._local, self._remote_gather, self._remote)
        return sum((end.dropped for end in ends if end is not None), Counter())

    def _since_first_update_s(self) -> float | None:
        at = self._first_update_at
        return None if at is None else time.monotonic() - at

    def _publish(self, learner: Learner) -> None:
        self._publish_weights(learner.weights(), learner.parameters.statistics)

    def _publish_weights(self, weights: Weights, statistics: int) -> None:
        """`statistics` are the numbers at the vector's beginning that no half precision has."""
        self._local.publish(pack_weights(weights))
        if self._remote is not None:
            half_from = statistics if self.job.cluster.half_precision else None
            self._remote.publish(pack_weights(weights, half_from=half_from))

    def _keep_pool(self, *learners: Learner) -> None:
        """Take snapshots of those for whom one is due, and publish what is new."""
        if self.keeper is None:
            return
        for learner in learners:
            self.keeper.offer(learner)
        snapshots, pairings = self.keeper.news()
        for weights in snapshots:
            self._publish_weights(weights, next(iter(self.learners.values())).parameters.statistics)
        if pairings is not None:
            for publisher in (self._local, self._remote):
                if publisher is not None:
                    publisher.publish(pack_pairings(pairings))

    def _count_results(self) -> None:
        """Matches that ended since the last time; with the lock in hand."""
        while self._results:
            results = self._results.popleft()
            self.counters.add_results(results)
            if self.keeper is not None:
                self.keeper.add_results(results)

    # -------------------------------------------------------------- threads

    def _guard(self, work: Any) -> None:
        try:
            work()
        except Exception as error:
            if not self._stop.is_set():
                self.error = error
                self._stop.set()

    def _receive(self) -> None:
        """Unrolls to batches, while the other thread learns; holds the actors back when that lags."""
        length = self.job.algo.unroll
        while not self._stop.is_set():
            if self._batches.full():  # what is taken in now would only grow stale here
                self._taken.wait(WAIT_S)
                self._taken.clear()
                continue
            message = self._gather.receive(WAIT_S)
            if message is None:
                continue
            try:
                unrolls = unpack_unrolls(message, self.cast.trained, length)
                results = unpack_results(message)
            except MessageError as error:
                self._gather.dropped[error.reason] += 1
                continue
            self._results.append(results)
            if not self._take_in(unrolls):
                return

    def _take_in(self, unrolls: Unrolls) -> bool:
        """Hand over the batches that are complete with these; False once the host stops."""
        learner = self.learners[unrolls.policy]
        learner.put(unrolls)
        while learner.ready():
            if not self._hand_over(unrolls.policy, to_batch(learner.take(), self.device)):
                return False
        return True

    def _hand_over(self, policy: str, batch: Batch) -> bool:
        while not self._stop.is_set():
            try:
                self._batches.put((policy, batch), timeout=WAIT_S)
                return True
            except queue.Full:
                continue
        return False

    def _learn(self) -> None:
        while not self._stop.is_set():
            try:
                policy, batch = self._batches.get(timeout=WAIT_S)
            except queue.Empty:
                continue
            self._taken.set()
            self._learn_one(policy, batch)

    def _learn_one(self, policy: str, batch: Batch) -> None:
        """One update, and what follows from it."""
        began = time.perf_counter()
        with self._lock:
            learner = self.learners[policy]
            self._updating, self._updates = True, self._updates + 1
            report = learner.learn(batch)
            report["update_s"] = time.perf_counter() - began
            self._count_update(policy, batch, report)
            self._count_results()
            self._updating = False
        self._publish(learner)
        self._keep_pool(learner)
        self._first_update_at = self._first_update_at or time.monotonic()

    def _count_update(self, policy: str, batch: Batch, report: dict[str, float]) -> None:
        """With the lock in hand."""
        self.reports[policy] = report
        self.counters.add_batch(batch.steps, batch.steps * self.spec.frames_per_step, report)
