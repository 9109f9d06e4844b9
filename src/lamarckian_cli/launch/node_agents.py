"""The node agents of a job: started, hung into the tree, watched, and hung elsewhere when a relay goes.

Everything here is asked and answered between two looks of the driver; nothing waits for one
machine. An agent that does not answer for `cluster.silence_s` is done without until it answers
again; one whose process or machine is gone is forgotten, and a new one is started in its place.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from lamarckian_cli.errors import ClusterError, LamarckError
from lamarckian_cli.launch import ray_cluster
from lamarckian_cli.launch.placement import Machine
from lamarckian_cli.launch.settings import Cluster
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.shared import NO_ROOM
from lamarckian_cli.transport.tree import Wire, fanout_of, parent

LOOK_EVERY_S = 1.0
CLOCKS_DIFFER_S = 60.0  # beyond which certificates and logs become a nuisance
PROBED = 4  # links that are measured for fanout=auto


@dataclass(eq=False, slots=True)
class Agent:
    """One machine's node agent, as the driver knows it."""

    machine: Machine
    handle: Any
    pending: Any  # reference of the control call that is under way
    doing: str  # which: describe, join or status
    answered_at: float
    asked_at: float = 0.0  # when the call was made that was answered last
    asking_at: float = 0.0  # when the one that is under way was
    asked: tuple[Any, ...] = ()  # its arguments
    facts: dict[str, Any] = field(default_factory=dict)  # of `describe`
    status: dict[str, Any] = field(default_factory=dict)
    parent: str = ""  # where it was told to hang
    avoids: set[str] = field(default_factory=set)  # parents that it could not reach
    silent: bool = False
    full: bool = False  # its machine has no room in shared memory for new weights

    @property
    def ready(self) -> bool:
        """It has joined the learner, answers, and has room for weights."""
        return self.doing == "status" and not self.silent and not self.full


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
        self._unfit: set[str] = set()  # node ids of machines that no agent runs on
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
        self._agents[machine.node_id] = Agent(machine, handle, pending, "describe", self._clock())

    def keep(self, alive: Iterable[str]) -> list[Machine]:
        """Forget the machines whose node id is not in `alive`; those that are gone."""
        alive = set(alive)
        gone = [agent for node, agent in self._agents.items() if node not in alive]
        for agent in gone:
            self._forget(agent, "it left the Ray cluster")
        return [agent.machine for agent in gone]

    def knows(self, machine: Machine) -> bool:
        """Whether it has an agent, or cannot have one."""
        return machine.node_id in self._agents or machine.node_id in self._unfit

    def ready(self) -> list[Machine]:
        """Machines whose agent has joined and answers."""
        return [agent.machine for agent in self._agents.values() if agent.ready]

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
            except ray_cluster.ray().exceptions.RayActorError as error:
                self._forget(agent, _why_ended(error))
                dead.append(agent.machine)
            except LamarckError as error:
                self._unfit.add(agent.machine.node_id)
                self._forget(agent, str(error))
                dead.append(agent.machine)
        self._looked_at = now
        self._hang_all()
        return dead

    def due(self) -> bool:
        return self._clock() - self._looked_at >= LOOK_EVERY_S

    def joined(self) -> bool:
        """Every agent is ready and follows its parent."""
        return all(
            agent.ready and agent.status.get("weights", {}).get("joined") for agent in self._agents.values()
        )

    def waiting_for(self) -> str:
        """Whom `joined` is waiting for, for a message."""
        late = []
        for agent in self._agents.values():
            weights = agent.status.get("weights", {})
            if not agent.ready:
                late.append(f"{named(agent.machine)} ({agent.doing} is not answered)")
            elif not weights.get("joined"):
                late.append(f"{named(agent.machine)} ({weights.get('error') or 'it follows nobody yet'})")
        return ", ".join(late)

    def _look_at(self, agent: Agent, now: float) -> None:
        ray = ray_cluster.ray()
        if not ray.wait([agent.pending], timeout=0)[0]:
            if now - agent.answered_at > self._silence_s(agent) and not agent.silent:
                self._fall_silent(agent)
            return
        try:
            answer = ray.get(agent.pending)
        except ray.exceptions.RayTaskError as error:
            raise ray_cluster.cause(error, "starting a node agent") from error
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
        self._check(agent)
        actors = max(1, self._actors_on(agent.machine))
        self._ask(agent, "join", self._learner["unrolls"], actors, self._cluster.start_timeout_s / 2)

    def _take_status(self, agent: Agent, answer: Any) -> None:
        if agent.doing == "status":
            agent.status = answer
            self._look_for_room(agent)
            self._avoid_what_is_out_of_reach(agent)
        self._ask(agent, "status")
        if agent not in self._order:
            self._order.append(agent)

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

    def _forget(self, agent: Agent, why: str) -> None:
        self._take_out(agent)
        self._agents.pop(agent.machine.node_id, None)
        with contextlib.suppress(ray_cluster.ray().exceptions.RayError):
            ray_cluster.ray().kill(agent.handle)
        self.notes.append(f"{named(agent.machine)} is not used: {why}")

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
        if len(probed) < min(PROBED, len(self._agents)) or not probed:
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
        agent.parent = parent
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
            return  # `waiting_for` says so while the job starts; later the link tries on by itself
        relay = next((a for a in self._order if a.facts["weights"] == at), None)
        if relay is None or self._clock() - relay.answered_at > 2 * LOOK_EVERY_S:
            return  # the relay is gone, or about to be known as gone
        agent.avoids.add(at)
        self.notes.append(
            f"{named(agent.machine)} cannot reach the node agent of {named(relay.machine)} "
            f"({weights['error']}); it gets weights from the learner instead. Let machines connect to each "
            "other, on one port with cluster.port=N"
        )

    # -------------------------------------------------------------- what can be wrong with a machine

    def _check(self, agent: Agent) -> None:
        ours, theirs = metadata.version("lamarckian-cli"), agent.facts["version"]
        if ours != theirs:
            raise ClusterError(
                f"it runs lamarckian-cli {theirs}, this machine {ours}; install the same version on both"
            )
        ahead_s = agent.facts["time"] - time.time()
        if abs(ahead_s) > CLOCKS_DIFFER_S:
            self.notes.append(
                f"the clock of {named(agent.machine)} is {abs(ahead_s):.0f} s "
                f"{'ahead' if ahead_s > 0 else 'behind'}; training does not mind, certificates and logs do: "
                "set it (chrony, systemd-timesyncd)"
            )
        need = 3 * self._learner["vector_bytes"]
        if agent.facts["shm_free_bytes"] < need:
            raise ClusterError(
                f"it has {agent.facts['shm_free_bytes'] / 1e6:.0f} MB of shared memory left, weights take "
                f"{need / 1e6:.0f} MB; give it more (in a container: docker run --shm-size=1g)"
            )

    # -------------------------------------------------------------- the end

    def handles(self) -> list[Any]:
        return [agent.handle for agent in self._agents.values()]

    def report(self) -> dict[str, Any]:
        """How the machines stand, for logs and the bench."""
        return {
            "machines": len(self._order),
            "tree_changes": self.changes,
            "relay_bytes": sum(
                a.status.get("weights", {}).get("sent_bytes", 0) for a in self._agents.values()
            ),
        }


def _why_ended(error: Exception) -> str:
    if "No module named" in str(error):
        return (
            "the Python that Ray runs there has no lamarckian-cli; install the same version as here "
            "(docker/install.sh does it)"
        )
    return "its node agent has ended, or Ray cannot reach it"


def named(machine: Machine) -> str:
    """A machine in a message."""
    return f"{machine.name} ({machine.address})"
