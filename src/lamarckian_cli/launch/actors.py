"""A job's actors: started, watched, started again where they died, told how many share a batch."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch import ray_calls, ray_cluster
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.node_agents import NodeAgents
from lamarckian_cli.launch.placement import Machine, Placement, vacancies
from lamarckian_cli.launch.unfit import named

PING_EVERY_S = 1.0


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
    ping: Any = None  # a call by which it is seen whether it hangs
    pinged_at: float = 0.0
    silent: bool = False  # it has not answered for cluster.silence_s
    ended_at: float = 0.0  # when its end was seen, ...
    reason: str = ""  # ... and what Ray says of it

    @property
    def runs(self) -> bool:
        return self.run is not None and self.up is None and not self.silent


@dataclass(frozen=True, slots=True)
class Sites:
    """Where actors can be: on the learner's machine, and on those that have a node agent."""

    learner: Machine
    learner_channels: dict[str, str]
    agents: NodeAgents | None  # None where the cluster is this machine alone

    def ready(self, machine: Machine) -> bool:
        """Whether a machine can have actors now."""
        if machine.node_id == self.learner.node_id:
            return True
        return self.agents is not None and self.agents.is_ready(machine)

    def lives(self, machine: Machine, since: float) -> bool:
        """Whether it showed signs of life after that time, in seconds of time.monotonic."""
        if machine.node_id == self.learner.node_id:
            return True
        return self.agents is not None and self.agents.answered_since(machine, since)

    def channels(self, machine: Machine) -> dict[str, str]:
        """What an actor there connects to."""
        if machine.node_id == self.learner.node_id:
            return self.learner_channels
        assert self.agents is not None
        return self.agents.channels(machine)


class Actors:
    """`start` them, then `look` as often as you like; nothing waits for one of them."""

    def __init__(
        self, job: Job, placement: Placement, sites: Sites, check_learner: Callable[[], None]
    ) -> None:
        """`check_learner` raises what ended the learner, if anything did: what actors then fail of is no
        cause."""
        self.restarts = 0
        self.notes: list[str] = []  # for the user, in order
        self._job, self._placement, self._sites = job, placement, sites
        self._check_learner = check_learner
        self._actors: dict[int, Actor] = {}  # by number
        self._sharing = placement.total_actors  # among how many of them a batch is shared

    def start(self) -> None:
        """As many as the placement says on each machine."""
        for machine, count in self._placement.actors:
            for _ in range(count):
                self._start(len(self._actors), machine)

    def __iter__(self) -> Iterator[Actor]:
        return iter(list(self._actors.values()))

    def running(self) -> int:
        """How many run on machines that answer."""
        return sum(actor.runs and self._sites.ready(actor.machine) for actor in self)

    def look(self) -> None:
        """Start those again that ended, and see which of those that were started run by now.

        Raises ClusterError: too many died, or too few start.
        """
        self._look_after_ended()
        self._look_after_starts()
        self._look_after_silent()

    # -------------------------------------------------------------- machines come and go

    def let_go(self, machine: Machine) -> None:
        """The actors of a machine whose agent is gone are of no use, if they still run."""
        for actor in [actor for actor in self if actor.machine.node_id == machine.node_id]:
            self._kill(actor)
            del self._actors[actor.number]

    def fill(self, present: list[Machine]) -> list[Machine]:
        """Start actors for those that are missing; the machines that could have more once they are ready."""
        running = Counter(actor.machine.node_id for actor in self)
        usable = [machine for machine in present if self._sites.ready(machine)]
        for machine in vacancies(self._placement, usable, running):
            self._start(next(n for n in itertools.count() if n not in self._actors), machine)
            running[machine.node_id] += 1
        agents = self._sites.agents
        fresh = [m for m in present if m not in usable and not (agents is not None and agents.knows(m))]
        wanted = vacancies(self._placement, usable + fresh, running)
        return list({machine.node_id: machine for machine in wanted}.values())

    def share(self) -> None:
        """Tell them among how many a batch is shared: those whose machine answers and has a core."""
        sharing = max(1, sum(self._shares(actor) for actor in self))
        if sharing != self._sharing:
            self._sharing = sharing
            for actor in self:
                actor.handle.call.remote("share_among", sharing)

    # -------------------------------------------------------------- parts

    def _shares(self, actor: Actor) -> bool:
        there = actor.run is not None and not actor.late and not actor.silent
        return there and self._sites.ready(actor.machine)

    def _start(self, number: int, machine: Machine) -> None:
        handle = ray_cluster.process_on(
            machine,
            "actor_host:ActorHost",
            self._job,
            number,
            self._sites.channels(machine),
            self._sharing,
            self._placement.total_actors,  # a population's members are dealt out once
            num_cpus=1,
            max_concurrency=3,
        )
        run, up = handle.call.remote("run"), handle.call.remote("pid")
        self._actors[number] = Actor(number, machine, handle, run, up, time.monotonic())

    def _kill(self, actor: Actor) -> None:
        ray = ray_calls.ray()
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(actor.handle)

    def _look_after_ended(self) -> None:
        """Start those again that ended, once it is known that their machine did not end with them."""
        for actor in self._ended():
            actor.reason = self._reason(actor)
            actor.run, actor.ended_at = None, time.monotonic()
        for actor in [actor for actor in self if actor.run is None]:
            if self._sites.lives(actor.machine, actor.ended_at):
                self._count_restart(actor)
                self._kill(actor)  # Ray may only have lost sight of it
                self._start(actor.number, actor.machine)
            elif not self._sites.ready(actor.machine):
                del self._actors[actor.number]  # it went with its machine

    def _ended(self) -> list[Actor]:
        runs = {actor.run: actor for actor in self if actor.run is not None}
        ended, _ = ray_calls.ray().wait(list(runs), num_returns=len(runs), timeout=0) if runs else ([], [])
        return [runs[reference] for reference in ended]

    def _reason(self, actor: Actor) -> str:
        """Why it ended; raises what it failed of, where that was not its machine's end."""
        ray = ray_calls.ray()
        try:
            ray.get(actor.run)
            return "it was asked to stop"
        except ray.exceptions.RayTaskError as error:
            if self._sites.ready(actor.machine):
                self._check_learner()
                raise ray_calls.cause(error, f"actor {actor.number}") from error
            return ray_calls.first_line(error)
        except ray.exceptions.RayError as error:  # it died, its memory ran out, its machine went, ...
            return ray_calls.why_lost(error)

    def _count_restart(self, actor: Actor) -> None:
        self.restarts += 1
        limit = self._job.cluster.restart_limit
        if self.restarts > limit:
            self._check_learner()
            raise ClusterError(
                f"actors died {self.restarts} times, more than cluster.restart_limit={limit}; "
                f"the last, actor {actor.number}: {actor.reason}"
            )

    def _look_after_starts(self) -> None:
        """See which actors run by now: where another job has the cores, Ray lets them wait in silence."""
        starting = {actor.up: actor for actor in self if actor.up is not None}
        if not starting:
            return
        answered, _ = ray_calls.ray().wait(list(starting), num_returns=len(starting), timeout=0)
        for reference in answered:  # that it failed, its run says
            starting[reference].up, starting[reference].late = None, False
        since = time.monotonic() - self._job.cluster.start_timeout_s
        late = [a for a in starting.values() if a.up is not None and a.run is not None and a.asked_at < since]
        if self._sites.agents is None or all(actor.late for actor in late):
            return
        for actor in late:
            actor.late = True
        self._fall_short(late)
        self.share()

    def _look_after_silent(self) -> None:
        """Do without those that hang, until they answer; those that hang for long are started again."""
        pings = {actor.ping: actor for actor in self if actor.ping is not None}
        answered, _ = (
            ray_calls.ray().wait(list(pings), num_returns=len(pings), timeout=0) if pings else ([], [])
        )
        for reference in answered:
            self._hear(pings[reference])
        now, silence_s = time.monotonic(), self._job.cluster.silence_s
        for actor in self:
            if actor.run is None or actor.up is not None or not self._sites.ready(actor.machine):
                continue  # it ended, or starts, or its machine is what does not answer
            waited_s = now - actor.pinged_at
            if actor.ping is None and waited_s > PING_EVERY_S:
                actor.ping, actor.pinged_at = actor.handle.call.remote("pid"), now
            elif actor.ping is not None and waited_s > silence_s and not actor.silent:
                actor.silent = True
                who = f"actor {actor.number} on {named(actor.machine)}"
                self.notes.append(f"{who} does not answer; the others fill its share")
                self.share()
            elif actor.ping is not None and waited_s > silence_s + self._job.cluster.start_timeout_s:
                self._kill(actor)  # which ends its run, and it is started again

    def _hear(self, actor: Actor) -> None:
        actor.ping = None
        if actor.silent and actor.run is not None:
            actor.silent = False
            self.notes.append(f"actor {actor.number} on {named(actor.machine)} answers again")
            self.share()

    def _fall_short(self, late: list[Actor]) -> None:
        """Stop, or note that the job goes on with the actors that run."""
        cluster = self._job.cluster
        running = sum(actor.runs for actor in self)
        where = ", ".join(sorted({named(actor.machine) for actor in late}))
        what = (
            f"{len(late)} of {len(self._actors)} actors have not started after "
            f"{cluster.start_timeout_s:g} s: the cores of {where} are taken, probably by another job"
        )
        if cluster.on_shortage == "shrink" and running:
            self.notes.append(f"{what}; training goes on with {running}, and with those once they start")
            return
        fewer = f"take cluster.actors={running}, go on with those by cluster.on_shortage=shrink, " * bool(
            running
        )
        raise ClusterError(f"{what}; wait for that to end, {fewer}or raise cluster.start_timeout_s")
