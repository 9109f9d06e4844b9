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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch import ray_cluster
from lamarckian_cli.launch.guardian import Guardian
from lamarckian_cli.launch.in_thread import InThread, Silent, within
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.node_agents import NodeAgents
from lamarckian_cli.launch.placement import Machine, Placement, place, vacancies
from lamarckian_cli.launch.ray_cluster import Calls, Head
from lamarckian_cli.launch.shared_folder import make_folder
from lamarckian_cli.launch.unfit import named
from lamarckian_cli.transport.keys import JobKeys

STOP_TIMEOUT_S = 8.0
STOP_SILENT_S = 1.0  # where nobody has answered before
SHUT_DOWN_S = {False: 6.0, True: 3.0}  # by whether somebody was silent
TAKE_HERE_S = 8.0  # for a checkpoint that crosses no network
LOOK_WAIT_S = 2.0  # how long learning is not looked at because actors and machines are
LEARNER_TRIES = 3  # machines: what fails on each of them is hardly their fault


@dataclass(eq=False, slots=True)
class Actor:
    """One actor, as the driver knows it."""

    number: int
    machine: Machine
    handle: Any
    run: Any  # the reference of its run; None after its end
    up: Any = None  # a call that it has not answered yet since it was asked for, ...
    asked_at: float = 0.0  # ... at this time, ...
    late: bool = False  # ... which is longer ago than it may take
    ended_at: float = 0.0  # when its end was seen, ...
    reason: str = ""  # ... and what Ray says of it

    @property
    def runs(self) -> bool:
        return self.run is not None and self.up is None


class DistributedTraining:
    """Starts the job's processes, watches over them, and ends them."""

    HOST = "learner_host:LearnerHost"  # what the learner's process is, below `launch/`

    def __init__(self, job: Job, stopped: threading.Event, heard: Callable[[], None] | None = None) -> None:
        """`heard` is called at each sign of life of the learner while the job ends."""
        self.job = job
        self.restarts = 0
        self.notes: list[str] = []  # for the user, in order
        self._calls = Calls(stopped, job.cluster.start_timeout_s, heard)
        self._stopped = stopped
        self._folder: str | None = None
        self._guardian: Guardian | None = None
        self._head: Head | None = None  # where it was started for the job
        self._looking: InThread | None = None  # after actors and machines
        self._machines: list[Machine] = []  # as the job found them
        self._placement: Placement | None = None
        self._learner: Any = None
        self._channels: dict[str, str] = {}  # of the learner's machine
        self._agents: NodeAgents | None = None
        self._actors: dict[int, Actor] = {}  # by number
        self._sharing = 0  # among how many of them a batch is shared
        self._spread = 0  # among how many a population's members were dealt out

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
        placement = self._find_learner(placement, state)
        learning = self._learner.call.remote("start")
        if self._agents is not None:
            # Whether weights reach a machine shows only once there are some.
            self._calls.result(learning, "starting the learner")
            placement = self._start_agents(placement, self._agents)
            self._take_notes(self._agents)
        self._placement = placement
        self.notes += placement.notes
        self._sharing = self._spread = placement.total_actors
        for machine, count in placement.actors:
            for _ in range(count):
                self._start_actor(len(self._actors), machine)
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
            except (ClusterError, ray_cluster.Lost) as error:
                machine = placement.learner
                others = [other for other in self._machines if other.node_id != machine.node_id]
                if not others or len(left_out) + 1 == LEARNER_TRIES:
                    raise
                with contextlib.suppress(ray_cluster.ray().exceptions.RayError):
                    ray_cluster.ray().kill(self._learner)
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
            if self._stopped.wait(ray_cluster.LOOK_S):
                raise ray_cluster.Interrupted
            agents.look()
            if time.monotonic() > deadline:
                agents.give_up(placement.agents, patience_s)
                deadline = time.monotonic() + patience_s  # for those that take their place
            now_out = agents.left_out()
            if now_out.keys() != left_out.keys():
                left_out = now_out
                fit = [machine for machine in self._machines if machine.node_id not in left_out]
                placement = place(self.job.cluster, fit, self.job.command_line, list(left_out.values()))

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
            self._spread,
            num_cpus=1,
            max_concurrency=3,
        )
        run, up = handle.call.remote("run"), handle.call.remote("pid")
        self._actors[number] = Actor(number, machine, handle, run, up, time.monotonic())

    # -------------------------------------------------------------- while it runs

    def progress(self) -> dict[str, Any]:
        """The learner's progress; also looks after actors and machines."""
        if self._head is not None:
            self._head.check()
        progress: dict[str, Any] = self._calls.result(self._learner.call.remote("progress"), "learning")
        # Where Ray hangs, the learner is none the worse.
        self._looking = self._looking or InThread(self._look_after_all)
        if self._looking.ended(0 if self._stopped.is_set() else LOOK_WAIT_S):
            looked, self._looking = self._looking, None
            looked.result()
        progress["actor_restarts"] = self.restarts
        progress["actors"] = sum(a.runs and self._is_here(a.machine) for a in list(self._actors.values()))
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

    def _look_after_all(self) -> None:
        try:
            self._look_after_actors()
            self._look_after_starts()
            if self._agents is not None and self._agents.due():
                self._look_after_machines(self._agents)
        except ray_cluster.ray().exceptions.RayError as error:
            raise ClusterError(f"the Ray cluster fails: {ray_cluster.why_lost(error)}") from error

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
            except ray.exceptions.RayTaskError as error:
                if self._is_here(actor.machine):
                    self._check_learner()
                    raise ray_cluster.cause(error, f"actor {actor.number}") from error
                reason = ray_cluster.first_line(error)
            except ray.exceptions.RayError as error:  # it died, its memory ran out, its machine went, ...
                reason = ray_cluster.why_lost(error)
            actor.run, actor.ended_at, actor.reason = None, time.monotonic(), reason
        for actor in [actor for actor in self._actors.values() if actor.run is None]:
            if self._lives(actor.machine, actor.ended_at):
                self._count_restart(actor)
                with contextlib.suppress(ray.exceptions.RayError):
                    ray.kill(actor.handle)  # Ray may only have lost sight of it
                self._start_actor(actor.number, actor.machine)
            elif not self._is_here(actor.machine):
                del self._actors[actor.number]  # it went with its machine

    def _look_after_starts(self) -> None:
        """See which actors run by now: where another job has the cores, Ray lets them wait in silence."""
        starting = {actor.up: actor for actor in self._actors.values() if actor.up is not None}
        if not starting:
            return
        answered, _ = ray_cluster.ray().wait(list(starting), num_returns=len(starting), timeout=0)
        for reference in answered:  # that it failed, its run says
            starting[reference].up, starting[reference].late = None, False
        since = time.monotonic() - self.job.cluster.start_timeout_s
        late = [a for a in starting.values() if a.up is not None and a.run is not None and a.asked_at < since]
        if self._agents is None or all(actor.late for actor in late):
            return
        for actor in late:
            actor.late = True
        self._fall_short(late)
        self._share()

    def _fall_short(self, late: list[Actor]) -> None:
        """Stop, or note that the job goes on with the actors that run."""
        running = sum(actor.runs for actor in self._actors.values())
        where = ", ".join(sorted({named(actor.machine) for actor in late}))
        what = (
            f"{len(late)} of {len(self._actors)} actors have not started after "
            f"{self.job.cluster.start_timeout_s:g} s: the cores of {where} are taken, probably by another job"
        )
        if self.job.cluster.on_shortage == "shrink" and running:
            self.notes.append(f"{what}; training goes on with {running}, and with those once they start")
            return
        fewer = f"take cluster.actors={running}, go on with those by cluster.on_shortage=shrink, " * bool(
            running
        )
        raise ClusterError(f"{what}; wait for that to end, {fewer}or raise cluster.start_timeout_s")

    def _check_learner(self) -> None:
        """Raise what ended the learner, if anything did: what others then fail of is no cause."""
        self._calls.result(self._learner.call.remote("progress"), "learning")

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
            self._check_learner()
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
        self._take_notes(agents)

    def _take_notes(self, agents: NodeAgents) -> None:
        self.notes += agents.notes
        agents.notes.clear()

    def _share(self) -> None:
        """Tell the actors among how many a batch is shared: those whose machine answers and has a core."""
        sharing = max(1, sum(not a.late and self._is_here(a.machine) for a in self._actors.values()))
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
        """End every process that `start` brought up; twice is fine.

        Of a cluster that is gone nothing is raised: it would hide what the training ended of.
        """
        ray = ray_cluster.ray()
        try:
            if ray.is_initialized():
                patience_s = STOP_SILENT_S if self._calls.silent else STOP_TIMEOUT_S
                gone = (ray.exceptions.RayError, RuntimeError, ValueError, OSError, Silent)
                with contextlib.suppress(*gone):
                    within(patience_s + 1.0, lambda: self._stop_hosts(patience_s), "ending")
                with contextlib.suppress(*gone):
                    ray_cluster.shut_down(SHUT_DOWN_S[self._calls.silent])
        finally:
            self._learner, self._agents, self._actors, self._looking = None, None, {}, None
            if self._guardian is not None:
                self._guardian.release()
                self._guardian = None

    def _stop_hosts(self, patience_s: float) -> None:
        ray = ray_cluster.ray()
        deadline = time.monotonic() + patience_s
        stops = [actor.handle.call.remote("stop") for actor in self._actors.values() if actor.runs]
        if self._learner is not None:
            stops.append(self._learner.call.remote("stop"))
        if self._agents is not None:
            stops += [handle.call.remote("stop") for handle in self._agents.handles()]
        runs = [actor.run for actor in self._actors.values() if actor.runs]
        for references in (stops, runs):
            if references:
                left_s = max(0.0, deadline - time.monotonic())
                ray.wait(references, num_returns=len(references), timeout=left_s)
