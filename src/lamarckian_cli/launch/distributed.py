"""A training over Ray and ZeroMQ: one learner, actors on any number of machines, node agents between.

With `cluster=local` Ray is started for the job and ended with it; with `auto` the cluster that
is there is joined. An actor that dies is started again, a machine that goes is done without,
and one that comes is taken in; training goes on meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch import ray_calls, ray_cluster
from lamarckian_cli.launch.actors import Actors, Sites
from lamarckian_cli.launch.guardian import Guardian
from lamarckian_cli.launch.in_thread import InThread, Silent, within
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.node_agents import NodeAgents
from lamarckian_cli.launch.placement import Machine, Placement, place
from lamarckian_cli.launch.ray_calls import Calls, Interrupted
from lamarckian_cli.launch.ray_cluster import Head
from lamarckian_cli.launch.shared_folder import make_folder
from lamarckian_cli.launch.unfit import named
from lamarckian_cli.transport.keys import JobKeys

STOP_TIMEOUT_S = 8.0
STOP_SILENT_S = 1.0  # where nobody has answered before
SHUT_DOWN_S = {False: 6.0, True: 3.0}  # by whether somebody was silent
TAKE_HERE_S = 8.0  # for a checkpoint that crosses no network
LOOK_WAIT_S = 2.0  # how long learning is not looked at because actors and machines are
LEARNER_TRIES = 3  # machines: what fails on each of them is hardly their fault


class DistributedTraining:
    """Starts the job's processes, watches over them, and ends them."""

    HOST = "learner_host:LearnerHost"  # what the learner's process is, below `launch/`

    def __init__(self, job: Job, stopped: threading.Event, heard: Callable[[], None] | None = None) -> None:
        """`heard` is called at each sign of life of the learner while the job ends."""
        self.job = job
        self.notes: list[str] = []  # for the user, in order
        self._calls = Calls(stopped, job.cluster.start_timeout_s, heard)
        self._stopped = stopped
        self._folder: str | None = None
        self._guardian: Guardian | None = None
        self._head: Head | None = None  # where it was started for the job
        self._looking: InThread | None = None  # after actors and machines
        self._machines: list[Machine] = []  # as the job found them
        self._learner: Any = None
        self._channels: dict[str, str] = {}  # of the learner's machine
        self._agents: NodeAgents | None = None
        self._actors: Actors | None = None  # once they are started

    # -------------------------------------------------------------- bringing up

    def start(self, state: dict[str, Any] | None) -> None:
        """Bring everything up, from a checkpoint's `state` where there is one.

        Raises Interrupted once `stopped` is set meanwhile, and LamarckErrors.
        """
        try:
            placement = self._start_local() if self.job.cluster.kind == "local" else self._join()
        except SystemExit as stop:  # while it starts, SIGTERM is Ray's
            self._stopped.set()
            raise Interrupted from stop
        placement = self._find_learner(placement, state)
        learning = self._learner.call.remote("start")
        if self._agents is not None:
            # Whether weights reach a machine shows only once there are some.
            self._calls.result(learning, "starting the learner")
            placement = self._start_agents(placement, self._agents)
            self._take_notes(self._agents)
        self.notes += placement.notes
        sites = Sites(placement.learner, self._channels, self._agents)
        self._actors = Actors(self.job, placement, sites, self._check_learner)
        self._actors.start()
        self._calls.result(learning, "starting the learner")
        learner = self._learner
        self._calls.ping = lambda: learner.call.remote("update_under_way")
        self._calls.running = True

    def _start_local(self) -> Placement:
        self._folder = make_folder()
        self._guardian = Guardian(self._folder)
        placement = ray_cluster.start_here(self.job.cluster)
        self._head = Head()
        self._calls.take_s = TAKE_HERE_S
        return placement

    def _join(self) -> Placement:
        ray_cluster.join(self.job.cluster)
        self._machines = ray_cluster.machines()
        return place(self.job.cluster, self._machines, self.job.command_line)

    def _find_learner(self, placement: Placement, state: dict[str, Any] | None) -> Placement:
        """Start the learner where it is to be or, where that machine is not fit, on the next best."""
        left_out: list[str] = []
        while True:
            try:
                self._start_learner(placement, state)
                return placement
            except (ClusterError, ray_calls.Lost) as error:
                machine = placement.learner
                others = [other for other in self._machines if other.node_id != machine.node_id]
                if not others or len(left_out) + 1 == LEARNER_TRIES:
                    raise
                with contextlib.suppress(ray_calls.ray().exceptions.RayError):
                    ray_calls.ray().kill(self._learner)
                left_out.append(f"{named(machine)} is not used: {error}")
                placement = place(self.job.cluster, others, self.job.command_line, left_out)
                self._machines = others
                self.notes.append(f"{left_out[-1]}; the learner goes to {named(placement.learner)}")

    def _start_learner(self, placement: Placement, state: dict[str, Any] | None) -> None:
        """Its host, restored but not yet learning."""
        machine = placement.learner
        own_actors = {m.node_id: count for m, count in placement.actors}.get(machine.node_id, 0)
        # Others may come later, so a job that joined a cluster is always open to them.
        keys = JobKeys.make() if self.job.cluster.kind == "auto" else None
        self._learner = ray_cluster.process_on(
            machine,
            self.HOST,
            self.job,
            self._folder,
            max(1, machine.cores - own_actors),
            placement.learner_device,
            None if keys is None else keys.to_dict(),
            machine.address,
            *self._host_arguments(),
            num_cpus=0,
            num_gpus=int(placement.learner_device == "cuda"),
            max_concurrency=4,
        )
        if state is not None:
            self._calls.result(self._learner.call.remote("restore", state), "restoring the checkpoint")
        facts: dict[str, Any] = self._calls.result(
            self._learner.call.remote("describe"), "starting the learner"
        )
        self._channels = facts["channels"]
        if keys is not None:
            self._agents = NodeAgents(self.job.cluster, keys, facts, actors_on=lambda m: m.cores)

    def _host_arguments(self) -> tuple[Any, ...]:
        """What the learner's process is given beside what every one is."""
        return ()

    def _start_agents(self, placement: Placement, agents: NodeAgents) -> Placement:
        """Agents on every machine that is to have actors, until weights reach all of them.

        Of machines that are not fit others take the place; what that leads to is given back. A
        ClusterError where too few are fit and `cluster.on_shortage` is stop.
        """
        patience_s = self.job.cluster.start_timeout_s
        left_out: dict[str, str] = {}
        deadline = time.monotonic() + patience_s
        while True:
            for machine in placement.agents:
                if not agents.knows(machine):
                    agents.add(machine)
            if all(agents.is_ready(machine) for machine in placement.agents):
                return placement
            if self._stopped.wait(ray_calls.LOOK_S):
                raise Interrupted
            agents.look()
            if time.monotonic() > deadline:
                agents.give_up(placement.agents, patience_s)
                deadline = time.monotonic() + patience_s  # for those that take their place
            now_out = agents.left_out()
            if now_out.keys() != left_out.keys():
                left_out = now_out
                fit = [machine for machine in self._machines if machine.node_id not in left_out]
                placement = place(self.job.cluster, fit, self.job.command_line, list(left_out.values()))

    # -------------------------------------------------------------- while it runs

    def progress(self) -> dict[str, Any]:
        """The learner's progress; also looks after actors and machines."""
        if self._head is not None:
            self._head.check()
        assert self._actors is not None
        progress: dict[str, Any] = self._calls.result(self._learner.call.remote("progress"), "learning")
        # Where Ray hangs, the learner is none the worse.
        self._looking = self._looking or InThread(self._look_after_all)
        if self._looking.ended(0 if self._stopped.is_set() else LOOK_WAIT_S):
            looked, self._looking = self._looking, None
            looked.result()
        progress["actor_restarts"] = self._actors.restarts
        progress["actors"] = self._actors.running()
        if self._agents is not None:
            report = self._agents.report()
            progress["dropped_messages"] = dict(
                Counter(progress["dropped_messages"]) + report.pop("dropped_messages")
            )
            progress.update(report)
        return progress

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._calls.result(
            self._learner.call.remote("state"), "reading the learner's state"
        )
        return state

    def pids(self) -> dict[str, int]:
        """Process ids of learner and actors, by name."""
        ray = ray_calls.ray()
        ids = {"learner": self._calls.result(self._learner.call.remote("pid"), "asking for process ids")}
        for actor in self._actors or ():
            with contextlib.suppress(ray.exceptions.RayError):
                ids[f"actor {actor.number}"] = ray.get(
                    actor.handle.call.remote("pid"), timeout=STOP_TIMEOUT_S
                )
        return ids

    def _look_after_all(self) -> None:
        actors, agents = self._actors, self._agents
        assert actors is not None
        try:
            actors.look()
            if agents is not None and agents.due():
                self._look_after_machines(actors, agents)
                self._take_notes(agents)
            self._take_notes(actors)
        except ray_calls.ray().exceptions.RayError as error:
            raise ClusterError(f"the Ray cluster fails: {ray_calls.why_lost(error)}") from error

    def _check_learner(self) -> None:
        """Raise what ended the learner, if anything did: what others then fail of is no cause."""
        self._calls.result(self._learner.call.remote("progress"), "learning")

    def _look_after_machines(self, actors: Actors, agents: NodeAgents) -> None:
        """Take in machines that came, do without those that went, and keep the number of actors."""
        present = ray_cluster.machines()
        gone = agents.keep(machine.node_id for machine in present)
        gone += agents.look()
        for machine in gone + agents.full():
            actors.let_go(machine)
        # A machine gets weights, and an agent for them, once actors are to start there.
        for machine in actors.fill(present):
            agents.add(machine)
        actors.share()

    def _take_notes(self, of: NodeAgents | Actors) -> None:
        self.notes += of.notes
        of.notes.clear()

    # -------------------------------------------------------------- the end

    def stop(self) -> None:
        """End every process that `start` brought up; twice is fine.

        Of a cluster that is gone nothing is raised: it would hide what the training ended of.
        """
        ray = ray_calls.ray()
        try:
            if ray.is_initialized():
                patience_s = STOP_SILENT_S if self._calls.silent else STOP_TIMEOUT_S
                gone = (ray.exceptions.RayError, RuntimeError, ValueError, OSError, Silent)
                with contextlib.suppress(*gone):
                    within(patience_s + 1.0, lambda: self._stop_hosts(patience_s), "ending")
                with contextlib.suppress(*gone):
                    ray_cluster.shut_down(SHUT_DOWN_S[self._calls.silent])
        finally:
            self._learner, self._agents, self._actors, self._looking = None, None, None, None
            if self._guardian is not None:
                self._guardian.release()
                self._guardian = None

    def _stop_hosts(self, patience_s: float) -> None:
        ray = ray_calls.ray()
        deadline = time.monotonic() + patience_s
        running = [actor for actor in self._actors or () if actor.runs]
        stops = [actor.handle.call.remote("stop") for actor in running]
        if self._learner is not None:
            stops.append(self._learner.call.remote("stop"))
        if self._agents is not None:
            stops += [handle.call.remote("stop") for handle in self._agents.handles()]
        for references in (stops, [actor.run for actor in running]):
            if references:
                left_s = max(0.0, deadline - time.monotonic())
                ray.wait(references, num_returns=len(references), timeout=left_s)
