"""A training over Ray and ZeroMQ: one learner, actors on any number of machines, node agents between.

With `cluster=local` Ray is started for the job and ended with it; with `auto` the cluster that
is there is joined. An actor that dies is started again, a machine that goes is done without,
and one that comes is taken in; training goes on meanwhile.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch import ray_cluster
from lamarckian_cli.launch.guardian import Guardian
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.node_agents import NodeAgents
from lamarckian_cli.launch.placement import Machine, Placement, place, vacancies
from lamarckian_cli.launch.ray_cluster import Calls
from lamarckian_cli.launch.shared_folder import make_folder
from lamarckian_cli.transport.keys import JobKeys

STOP_TIMEOUT_S = 10.0


@dataclass(eq=False, slots=True)
class Actor:
    """One actor, as the driver knows it."""

    number: int
    machine: Machine
    handle: Any
    run: Any  # the reference of its run; None after its end
    ended_at: float = 0.0  # when that was seen, ...
    reason: str = ""  # ... and what Ray says of it


class DistributedTraining:
    """Starts the job's processes, watches over them, and ends them."""

    def __init__(self, job: Job, stopped: threading.Event) -> None:
        self.job = job
        self.restarts = 0
        self.notes: list[str] = []  # for the user, in order
        self._calls = Calls(stopped, job.cluster.start_timeout_s)
        self._stopped = stopped
        self._folder: str | None = None
        self._guardian: Guardian | None = None
        self._placement: Placement | None = None
        self._learner: Any = None
        self._channels: dict[str, str] = {}  # of the learner's machine
        self._agents: NodeAgents | None = None
        self._actors: dict[int, Actor] = {}  # by number
        self._sharing = 0  # among how many of them a batch is shared

    # -------------------------------------------------------------- bringing up

    def start(self, state: dict[str, Any] | None) -> None:
        """Bring everything up, from a checkpoint's `state` where there is one.

        Raises ray_cluster.Interrupted once `stopped` is set meanwhile, and LamarckErrors.
        """
        try:
            placement = self._start_local() if self.job.cluster.kind == "local" else self._join()
        except SystemExit as stop:  # while it starts, SIGTERM is Ray's
            self._stopped.set()
            raise ray_cluster.Interrupted from stop
        self._placement = placement
        self.notes += placement.notes
        self._start_learner(placement, state)
        if self._agents is not None:
            self._start_agents(placement, self._agents)
        self._sharing = placement.total_actors
        for machine, count in placement.actors:
            for _ in range(count):
                self._start_actor(len(self._actors), machine)
        self._calls.result(self._learner.call.remote("start"), "starting the learner")
        if self._agents is not None:
            self._wait_for_agents(self._agents)
        self._calls.running = True

    def _start_local(self) -> Placement:
        cores, actors = ray_cluster.available_cores(), self.job.cluster.actors
        assert actors is not None
        if actors > cores:
            raise ClusterError(
                f"cluster.actors is {actors}, but this machine gives {cores} cores; "
                f"take cluster.actors={cores}, or fewer"
            )
        self._folder = make_folder()
        self._guardian = Guardian(self._folder)
        ray_cluster.start(cores)
        here = ray_cluster.this_machine(cores)
        return Placement(learner=here, learner_device="cpu", actors=((here, actors),), wanted=actors)

    def _join(self) -> Placement:
        ray_cluster.join(self.job.cluster)
        return place(self.job.cluster, ray_cluster.machines(), self.job.command_line)

    def _start_learner(self, placement: Placement, state: dict[str, Any] | None) -> None:
        """Its host, restored but not yet learning."""
        machine = placement.learner
        own_actors = {m.node_id: count for m, count in placement.actors}.get(machine.node_id, 0)
        # Others may come later, so a job that joined a cluster is always open to them.
        keys = JobKeys.make() if self.job.cluster.kind == "auto" else None
        self._learner = ray_cluster.process_on(
            machine,
            "learner_host:LearnerHost",
            self.job,
            self._folder,
            max(1, machine.cores - own_actors),
            placement.learner_device,
            None if keys is None else keys.to_dict(),
            machine.address,
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

    def _start_agents(self, placement: Placement, agents: NodeAgents) -> None:
        """Agents on every machine that is to have actors, so far as to have joined the learner."""
        for machine in placement.agents:
            agents.add(machine)
        self._until(lambda: len(agents.ready()) == len(placement.agents), agents)

    def _wait_for_agents(self, agents: NodeAgents) -> None:
        """Until every agent follows its parent: only then is it known that weights reach everybody."""
        self._until(agents.joined, agents)

    def _until(self, holds: Any, agents: NodeAgents) -> None:
        deadline = time.monotonic() + self.job.cluster.start_timeout_s
        while not holds():
            dead = agents.look()
            if dead:
                raise ClusterError(agents.notes[-1])
            if self._stopped.wait(ray_cluster.LOOK_S):
                raise ray_cluster.Interrupted
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"after {self.job.cluster.start_timeout_s:g} s the job still waits for "
                    f"{agents.waiting_for()}; let the machines connect to each other (a firewall may need "
                    "cluster.port=N opened), or raise cluster.start_timeout_s"
                )

    def _start_actor(self, number: int, machine: Machine) -> None:
        assert self._placement is not None
        here = machine.node_id == self._placement.learner.node_id
        channels = self._channels
        if not here:
            assert self._agents is not None
            channels = self._agents.channels(machine)
        handle = ray_cluster.process_on(
            machine,
            "actor_host:ActorHost",
            self.job,
            number,
            channels,
            self._sharing,
            num_cpus=1,
            max_concurrency=3,
        )
        self._actors[number] = Actor(number, machine, handle, handle.call.remote("run"))

    # -------------------------------------------------------------- while it runs

    def progress(self) -> dict[str, Any]:
        """The learner's progress; also looks after actors and machines."""
        self._look_after_actors()
        if self._agents is not None and self._agents.due():
            self._look_after_machines(self._agents)
        progress: dict[str, Any] = self._calls.result(self._learner.call.remote("progress"), "learning")
        progress["actor_restarts"] = self.restarts
        progress["actors"] = self._sharing
        if self._agents is not None:
            progress.update(self._agents.report())
        return progress

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._calls.result(
            self._learner.call.remote("state"), "reading the learner's state"
        )
        return state

    def pids(self) -> dict[str, int]:
        """Process ids of learner and actors, by name."""
        ray = ray_cluster.ray()
        ids = {"learner": self._calls.result(self._learner.call.remote("pid"), "asking for process ids")}
        for number, actor in self._actors.items():
            with contextlib.suppress(ray.exceptions.RayError):
                ids[f"actor {number}"] = ray.get(actor.handle.call.remote("pid"), timeout=STOP_TIMEOUT_S)
        return ids

    def _look_after_actors(self) -> None:
        """Start those again that ended, once it is known that their machine did not end with them."""
        ray = ray_cluster.ray()
        runs = {actor.run: actor for actor in self._actors.values() if actor.run is not None}
        ended, _ = ray.wait(list(runs), num_returns=len(runs), timeout=0) if runs else ([], [])
        for reference in ended:
            actor = runs[reference]
            try:
                ray.get(reference)
                reason = "it was asked to stop"
            except ray.exceptions.RayActorError as error:
                reason = ray_cluster.first_line(error)
            except ray.exceptions.RayTaskError as error:
                if self._is_here(actor.machine):
                    raise ray_cluster.cause(error, f"actor {actor.number}") from error
                reason = ray_cluster.first_line(error)
            actor.run, actor.ended_at, actor.reason = None, time.monotonic(), reason
        for actor in [actor for actor in self._actors.values() if actor.run is None]:
            if self._lives(actor.machine, actor.ended_at):
                self._count_restart(actor)
                with contextlib.suppress(ray.exceptions.RayError):
                    ray.kill(actor.handle)  # Ray may only have lost sight of it
                self._start_actor(actor.number, actor.machine)
            elif not self._is_here(actor.machine):
                del self._actors[actor.number]  # it went with its machine

    def _lives(self, machine: Machine, since: float) -> bool:
        """Whether a machine showed signs of life after that time."""
        assert self._placement is not None
        if machine.node_id == self._placement.learner.node_id:
            return True
        return self._agents is not None and self._agents.answered_since(machine, since)

    def _is_here(self, machine: Machine) -> bool:
        """Whether a machine can have actors now."""
        assert self._placement is not None
        if machine.node_id == self._placement.learner.node_id:
            return True
        return self._agents is not None and self._agents.is_ready(machine)

    def _count_restart(self, actor: Actor) -> None:
        self.restarts += 1
        if self.restarts > self.job.cluster.restart_limit:
            raise ClusterError(
                f"actors died {self.restarts} times, more than cluster.restart_limit="
                f"{self.job.cluster.restart_limit}; the last, actor {actor.number}: {actor.reason}"
            )

    def _look_after_machines(self, agents: NodeAgents) -> None:
        """Take in machines that came, do without those that went, and keep the number of actors."""
        assert self._placement is not None
        present = ray_cluster.machines()
        gone = agents.keep(machine.node_id for machine in present)
        gone += agents.look()
        for machine in gone + agents.full():
            self._let_go(machine)
        running = Counter(actor.machine.node_id for actor in self._actors.values())
        usable = [machine for machine in present if self._is_here(machine)]
        for machine in vacancies(self._placement, usable, running):
            self._start_actor(next(n for n in itertools.count() if n not in self._actors), machine)
            running[machine.node_id] += 1
        # A machine gets weights, and an agent for them, once actors are to start there.
        fresh = [machine for machine in present if machine not in usable and not agents.knows(machine)]
        for machine in {m.node_id: m for m in vacancies(self._placement, usable + fresh, running)}.values():
            agents.add(machine)
        self._share()
        self.notes += agents.notes
        agents.notes.clear()

    def _share(self) -> None:
        """Tell the actors among how many of them a batch is shared: those whose machine answers."""
        sharing = max(1, sum(self._is_here(actor.machine) for actor in self._actors.values()))
        if sharing != self._sharing:
            self._sharing = sharing
            for actor in self._actors.values():
                actor.handle.call.remote("share_among", sharing)

    def _let_go(self, machine: Machine) -> None:
        """The actors of a machine whose agent is gone are of no use, if they still run."""
        ray = ray_cluster.ray()
        for actor in [a for a in self._actors.values() if a.machine.node_id == machine.node_id]:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(actor.handle)
            del self._actors[actor.number]

    # -------------------------------------------------------------- the end

    def stop(self) -> None:
        """End every process that `start` brought up; twice is fine."""
        ray = ray_cluster.ray()
        if ray.is_initialized():
            with contextlib.suppress(ray.exceptions.RayError):
                self._stop_hosts()
            ray.shutdown()
        self._learner, self._agents, self._actors = None, None, {}
        if self._guardian is not None:
            self._guardian.release()
            self._guardian = None

    def _stop_hosts(self) -> None:
        ray = ray_cluster.ray()
        stops = [actor.handle.call.remote("stop") for actor in self._actors.values()]
        if self._learner is not None:
            stops.append(self._learner.call.remote("stop"))
        if self._agents is not None:
            stops += [handle.call.remote("stop") for handle in self._agents.handles()]
        ray.wait(stops, num_returns=len(stops), timeout=STOP_TIMEOUT_S) if stops else None
        runs = [actor.run for actor in self._actors.values() if actor.run is not None]
        ray.wait(runs, num_returns=len(runs), timeout=STOP_TIMEOUT_S) if runs else None
