"""The node agents of a job: started, hung into the tree, watched, and hung elsewhere when a relay goes.

Everything here is asked and answered between two looks of the driver; nothing waits for one
machine. An agent that does not answer for `cluster.silence_s` is done without until it answers
again; one whose process or machine is gone is forgotten, and a new one is started in its place.
A machine that is not fit for an agent is done without, and tried again later (`unfit.py`).
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from lamarckian_cli.errors import ClusterError, LamarckError
from lamarckian_cli.launch import ray_calls, ray_cluster
from lamarckian_cli.launch.placement import Machine
from lamarckian_cli.launch.settings import Cluster
from lamarckian_cli.launch.unfit import Unfit, check_fit, clock_note, named, why_ended
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.shared import NO_ROOM
from lamarckian_cli.transport.tree import Wire, fanout_of, parent

LOOK_EVERY_S = 1.0
PROBED = 4  # links that are measured for fanout=auto


@dataclass(eq=False, slots=True)
class Agent:
    """One machine's node agent, as the driver knows it."""

    machine: Machine
    handle: Any
    pending: Any  # reference of the control call that is under way
    doing: str  # which: describe, join or status
    answered_at: float
    added_at: float
    asked_at: float = 0.0  # when the call was made that was answered last
    asking_at: float = 0.0  # when the one that is under way was
    asked: tuple[Any, ...] = ()  # its arguments
    facts: dict[str, Any] = field(default_factory=dict)  # of `describe`
    status: dict[str, Any] = field(default_factory=dict)
    parent: str = ""  # where it was told to hang
    avoids: set[str] = field(default_factory=set)  # parents that it could not reach
    silent: bool = False
    full: bool = False  # its machine has no room in shared memory for new weights
    hung_at: float = 0.0  # when it was told its parent
    used_at: float | None = None  # since when it has followed a parent, and its machine can have actors

    @property
    def ready(self) -> bool:
        """It has joined the learner and a parent, answers, and has room for weights."""
        return self.used_at is not None and not self.silent and not self.full


class NodeAgents:
    """`look` as often as you like; `ready` says which machines can have actors."""

    def __init__(
        self,
        cluster: Cluster,
        keys: JobKeys,
        learner: dict[str, Any],
        *,
        actors_on: Callable[[Machine], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`learner` is what its host describes; `actors_on` is how many a machine may come to have."""
        self.notes: list[str] = []  # for the user, in order
        self.changes = 0  # times that a machine was hung anew
        self._cluster, self._keys, self._learner = cluster, keys, learner
        self._actors_on, self._clock = actors_on, clock
        self._agents: dict[str, Agent] = {}  # by node id
        self._order: list[Agent] = []  # rank 1 and on: those that hang in the tree
        self._wire: Wire | None = None  # as measured for fanout=auto
        self._unfit = Unfit(clock)
        self._lost: set[str] = set()  # machines, as notes name them, that were of use and then were not
        self._looked_at = -LOOK_EVERY_S

    # -------------------------------------------------------------- machines

    def add(self, machine: Machine) -> None:
        """Start an agent there; `look` does the rest."""
        handle = ray_cluster.process_on(
            machine,
            "agent_host:AgentHost",
            self._keys.to_dict(),
            machine.address,
            self._cluster.port,
            num_cpus=0,
            max_concurrency=4,
        )
        pending = handle.call.remote("describe")
        now = self._clock()
        self._agents[machine.node_id] = Agent(machine, handle, pending, "describe", now, now)

    def keep(self, alive: Iterable[str]) -> list[Machine]:
        """Forget the machines whose node id is not in `alive`; those that are gone."""
        alive = set(alive)
        gone = [agent for node, agent in self._agents.items() if node not in alive]
        for agent in gone:
            self._forget(agent)
            self._lost.add(named(agent.machine))
            self.notes.append(f"{named(agent.machine)} is not used: it left the Ray cluster")
        self._unfit.keep(alive)
        return [agent.machine for agent in gone]

    def knows(self, machine: Machine) -> bool:
        """Whether it has an agent, or is not to be tried now."""
        return machine.node_id in self._agents or self._unfit.waits(machine)

    def ready(self) -> list[Machine]:
        """Machines whose agent has joined and answers."""
        return [agent.machine for agent in self._agents.values() if agent.ready]

    def left_out(self) -> dict[str, str]:
        """Machines that cannot have actors for now: node id to a sentence that names machine and reason."""
        found = self._unfit.reasons()
        for node, agent in self._agents.items():
            if agent.silent:
                found[node] = f"{named(agent.machine)} is not used: it does not answer"
            elif agent.full:
                found[node] = f"{named(agent.machine)} is not used: {agent.status['weights']['error']}"
        return found

    def give_up(self, machines: Iterable[Machine], waited_s: float) -> None:
        """Do without those of `machines` that are not ready by now."""
        for machine in machines:
            agent = self._agents.get(machine.node_id)
            if agent is not None and not (agent.ready or agent.silent or agent.full):
                self._set_aside(
                    agent,
                    f"{_lacks(agent)} after {waited_s:g} s; let the machines connect to each other (a "
                    "firewall may need cluster.port=N opened), or raise cluster.start_timeout_s",
                )

    def is_ready(self, machine: Machine) -> bool:
        agent = self._agents.get(machine.node_id)
        return agent is not None and agent.ready

    def answered_since(self, machine: Machine, when: float) -> bool:
        """Whether the machine's agent has answered after that time of the clock."""
        agent = self._agents.get(machine.node_id)
        return agent is not None and not agent.silent and agent.asked_at > when

    def channels(self, machine: Machine) -> dict[str, str]:
        """Where the actors of a machine find weights and take unrolls."""
        channels: dict[str, str] = self._agents[machine.node_id].facts["channels"]
        return channels

    # -------------------------------------------------------------- looking after them

    def look(self) -> list[Machine]:
        """Take in answers and ask anew; the machines whose agent ended or is unfit, since the last look."""
        now = self._clock()
        dead = []
        for agent in list(self._agents.values()):
            try:
                self._look_at(agent, now)
            except (LamarckError, ray_calls.ray().exceptions.RayError) as error:
                self._set_aside(agent, str(error) if isinstance(error, LamarckError) else why_ended(error))
                dead.append(agent.machine)
        self._looked_at = now
        self._hang_all()
        return dead

    def due(self) -> bool:
        return self._clock() - self._looked_at >= LOOK_EVERY_S

    def _look_at(self, agent: Agent, now: float) -> None:
        ray = ray_calls.ray()
        if not ray.wait([agent.pending], timeout=0)[0]:
            if now - agent.answered_at > self._silence_s(agent) and not agent.silent:
                self._fall_silent(agent)
            return
        try:
            answer = ray.get(agent.pending)
        except ray.exceptions.RayTaskError as error:
            raise ray_calls.cause(error, "starting a node agent") from error
        except ray.exceptions.ActorUnavailableError:  # Ray lost sight of it: it may be there still
            agent.pending = agent.handle.call.remote(agent.doing, *agent.asked)
            return
        agent.answered_at, agent.asked_at, agent.asking_at = now, agent.asking_at, now
        if agent.silent:
            agent.silent = False
            self.notes.append(f"{named(agent.machine)} answers again")
        if agent.doing == "describe":
            self._described(agent, answer)
        else:
            self._take_status(agent, answer)

    def _described(self, agent: Agent, facts: dict[str, Any]) -> None:
        agent.facts = facts
        check_fit(facts, self._learner["vector_bytes"])
        clock = clock_note(agent.machine, facts["time"])
        self.notes += [clock] if clock else []
        actors = max(1, self._actors_on(agent.machine))
        self._ask(agent, "join", self._learner["unrolls"], actors, self._cluster.start_timeout_s / 2)

    def _take_status(self, agent: Agent, answer: Any) -> None:
        if agent.doing == "status":
            agent.status = answer
            self._look_for_room(agent)
            self._avoid_what_is_out_of_reach(agent)
            if agent.used_at is None and answer["weights"]["joined"]:
                agent.used_at = self._clock()
                self._note_use(agent.machine)
        self._ask(agent, "status")
        if agent not in self._order:
            self._order.append(agent)

    def _note_use(self, machine: Machine) -> None:
        """Say that a machine is of use, where the last word on it was that it is not."""
        waited = self._unfit.is_new_to_use(machine)
        if named(machine) in self._lost:
            self._lost.remove(named(machine))
            self.notes.append(f"{named(machine)} is used again")
        elif waited:
            self.notes.append(f"{named(machine)} is used from now on")

    def _ask(self, agent: Agent, method: str, *arguments: Any) -> None:
        agent.doing, agent.asked = method, arguments
        agent.pending = agent.handle.call.remote(method, *arguments)

    def _silence_s(self, agent: Agent) -> float:
        """Starting takes longer than answering."""
        return self._cluster.silence_s if agent.doing == "status" else self._cluster.start_timeout_s

    def _fall_silent(self, agent: Agent) -> None:
        agent.silent = True
        self._take_out(agent)
        self.notes.append(
            f"{named(agent.machine)} has not answered for {self._silence_s(agent):g} s; "
            "training goes on without it until it does"
        )

    def _set_aside(self, agent: Agent, why: str) -> None:
        self._forget(agent)
        worked_s = None if agent.used_at is None else self._clock() - agent.used_at
        if worked_s is not None:
            self._lost.add(named(agent.machine))
        note = self._unfit.add(agent.machine, why, worked_s)
        self.notes += [note] if note else []

    def _forget(self, agent: Agent) -> None:
        self._take_out(agent)
        self._agents.pop(agent.machine.node_id, None)
        with contextlib.suppress(ray_calls.ray().exceptions.RayError):
            ray_calls.ray().kill(agent.handle)

    # -------------------------------------------------------------- the tree

    @property
    def fanout(self) -> int:
        """Of the tree as it is now."""
        return fanout_of(
            self._cluster.broadcast,
            self._cluster.fanout,
            len(self._order),
            self._learner["vector_bytes"],
            self._wire,
        )

    def _probe(self) -> None:
        """For fanout=auto: measure some links, one after another, before the tree is made.

        Each of a few machines is hung alone under the learner, until it has the first weights.
        """
        measured: list[dict[str, Any]] = []
        probed = self._order[:PROBED]
        late_s = self._clock() - self._cluster.start_timeout_s / 4
        expected = sum(agent in self._order or agent.added_at > late_s for agent in self._agents.values())
        if len(probed) < min(PROBED, expected) or not probed:
            return
        for agent in probed:
            if not agent.parent:
                self._hang(agent, self._learner["weights"])
            weights = agent.status.get("weights", {})
            if not weights.get("bytes_per_s"):
                return
            measured.append(weights)
        self._wire = Wire(
            bytes_per_s=statistics.median(weights["bytes_per_s"] for weights in measured),
            latency_s=statistics.median(weights["round_trip_s"] for weights in measured) / 2,
        )

    def _take_out(self, agent: Agent) -> None:
        """The last leaf takes the place of one that goes, so that few are hung anew."""
        if agent not in self._order:
            return
        at, last = self._order.index(agent), self._order.pop()
        if last is not agent:
            self._order[at] = last
        agent.parent = ""

    def _hang_all(self) -> None:
        """Tell every agent in the tree its parent, if that is another one than before."""
        if self._cluster.fanout == "auto" and self._cluster.broadcast == "tree" and self._wire is None:
            self._probe()
            if self._wire is None:
                return
        addresses = [self._learner["weights"], *(agent.facts["weights"] for agent in self._order)]
        fanout = self.fanout
        for rank, agent in enumerate(self._order, start=1):
            wanted = addresses[parent(rank, fanout)]
            if wanted in agent.avoids:
                wanted = addresses[0]
            if wanted != agent.parent:
                self.changes += bool(agent.parent)
                self._hang(agent, wanted)

    def _hang(self, agent: Agent, parent: str) -> None:
        agent.parent, agent.hung_at = parent, self._clock()
        agent.handle.call.remote("hang", parent)

    def full(self) -> list[Machine]:
        """Machines whose actors would go on with old weights for ever."""
        return [agent.machine for agent in self._agents.values() if agent.full]

    def _look_for_room(self, agent: Agent) -> None:
        error = agent.status["weights"]["error"]
        full = NO_ROOM in error
        if full and not agent.full:
            self.notes.append(f"{named(agent.machine)} is done without until it has room: {error}")
        elif agent.full and not full:
            self.notes.append(f"{named(agent.machine)} has room for weights again")
        agent.full = full

    def _avoid_what_is_out_of_reach(self, agent: Agent) -> None:
        """A relay that a machine cannot reach is no parent for it; the learner takes its place."""
        weights = agent.status["weights"]
        at = weights["parent"]
        if (
            not weights["error"]
            or agent.full
            or weights["joined"]
            or at != agent.parent
            or at in agent.avoids
        ):
            return
        if at == self._learner["weights"]:
            if agent.used_at is None and self._clock() - agent.hung_at > self._cluster.start_timeout_s / 2:
                raise ClusterError(f"its node agent gets no weights: {weights['error']}")
            return  # later the link tries on by itself
        relay = next((a for a in self._order if a.facts["weights"] == at), None)
        if relay is None or self._clock() - relay.answered_at > 2 * LOOK_EVERY_S:
            return  # the relay is gone, or about to be known as gone
        agent.avoids.add(at)
        self.notes.append(
            f"{named(agent.machine)} cannot reach the node agent of {named(relay.machine)} "
            f"({weights['error']}); it gets weights from the learner instead. Let machines connect to each "
            "other, on one port with cluster.port=N"
        )

    # -------------------------------------------------------------- the end

    def handles(self) -> list[Any]:
        return [agent.handle for agent in self._agents.values()]

    def report(self) -> dict[str, Any]:
        """How the machines stand, for logs and the bench."""
        dropped: Counter[str] = Counter()
        for agent in self._agents.values():
            for part in ("weights", "unrolls"):
                dropped.update(agent.status.get(part, {}).get("dropped", {}))
        return {
            "dropped_messages": dropped,
            "machines": len(self._order),
            "tree_changes": self.changes,
            "relay_bytes": sum(
                a.status.get("weights", {}).get("sent_bytes", 0) for a in self._agents.values()
            ),
        }


def _lacks(agent: Agent) -> str:
    """What an agent that is not ready has not done yet."""
    if agent.doing == "describe":
        return "its node agent has not started"
    if agent.doing == "join":
        return "its node agent has not joined the learner"
    error = agent.status.get("weights", {}).get("error")
    return f"its node agent gets no weights ({error})" if error else "its node agent gets no weights"
