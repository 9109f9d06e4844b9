"""Which machine gets the learner and how many actors each gets: arithmetic alone, no Ray.

The learner goes to a GPU where there is one, and that machine is then its own. Actors take one
core each and are dealt out evenly. Where machines come and go, `vacancies` says where the
actors that are missing start.
"""

from __future__ import annotations

import heapq
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.settings import Cluster

REPLACED = ("cluster", "cluster.actors", "cluster.cores", "cluster.cores_per_machine", "cluster.learner_gpus")
"""Keys that say how large a cluster is."""

LISTED = 3  # machines that a message tells of one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine of the cluster, as Ray knows it."""

    node_id: str
    address: str  # that other machines reach it by
    name: str  # its hostname, for messages
    cores: int
    gpus: int = 0
    here: bool = False  # the command was typed on it


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a job's processes go."""

    learner: Machine
    learner_device: str  # cuda or cpu
    actors: tuple[tuple[Machine, int], ...]  # machines that have actors, and how many, in the given order
    wanted: int | None  # actors that the job asks for; None: one a core, however many cores there are
    notes: tuple[str, ...] = ()  # what the job does without, with the numbers

    @property
    def agents(self) -> tuple[Machine, ...]:
        """The machines that need a node agent, of rank 1 and on.

        The learner does without one on its own machine, where it takes that part itself.
        """
        return tuple(machine for machine, _ in self.actors if machine.node_id != self.learner.node_id)

    @property
    def total_actors(self) -> int:
        """Over all machines."""
        return sum(count for _, count in self.actors)


def place(
    cluster: Cluster,
    machines: Sequence[Machine],
    command: Sequence[str] = (),
    left_out: Sequence[str] = (),
) -> Placement:
    """Place a job's learner and actors on `machines`, which are alive and fit.

    `command` is what was typed (lamarck, train, ...), `left_out` a sentence on each machine that
    is not fit, which an error begins with. Where the machines do not suffice and `on_shortage` is
    stop, a ClusterError ends with the command that runs here; with shrink the job takes what is
    there and the placement's notes say so. Where nothing can run, and where there is no core at
    all, it is a ClusterError whatever `on_shortage` is.
    """
    if not machines:
        raise ClusterError(
            "the Ray cluster has no machine that is alive; start one with lamarck cluster up --here, "
            "or train on this machine alone with cluster=local"
        )
    learner = _learner(machines)
    wanted = cluster.actors if cluster.actors is not None else cluster.cores
    slots = _slots(machines, learner)
    free = sum(slots.values())
    if free == 0:
        raise ClusterError(
            f"{_listed(left_out)}{_machines(len(machines))} of the Ray cluster give 0 cores, and an actor "
            "takes 1; start Ray there with more (ray start --num-cpus), or train on this machine alone with "
            "cluster=local"
        )
    shortages = _shortages(cluster, machines, learner, slots)
    if shortages and cluster.on_shortage == "stop":
        fits = _command_that_fits(cluster, min(wanted or free, free), command, without_gpu=not learner.gpus)
        raise ClusterError(
            f"{_listed(left_out)}{'; '.join(shortages)}; take what is there with cluster.on_shortage=shrink, "
            f"or run it here with {fits}"
        )
    counts = _deal(slots, {}, min(wanted or free, free))
    return Placement(
        learner=learner,
        learner_device="cuda" if learner.gpus else "cpu",
        actors=tuple((m, counts[m.node_id]) for m in machines if counts.get(m.node_id)),
        wanted=wanted,
        notes=tuple(
            f"{shortage}: going on with {sum(counts.values()):,} actors, "
            f"the learner {'on a GPU' if learner.gpus else 'without a GPU'}"
            for shortage in shortages
        ),
    )


def vacancies(placement: Placement, machines: Sequence[Machine], running: Mapping[str, int]) -> list[Machine]:
    """Where to start the actors that are missing, a machine for each of them; empty where none is.

    `machines` are those that are alive now, `running` is how many actors each has by node id;
    those of machines that are gone do not count. The learner stays where it is.
    """
    slots = _slots(machines, placement.learner)
    present = {machine.node_id: running.get(machine.node_id, 0) for machine in machines}
    free = sum(max(0, slots[node] - count) for node, count in present.items())
    missing = free if placement.wanted is None else placement.wanted - sum(present.values())
    added = _deal(slots, present, max(0, min(missing, free)))
    return [machine for machine in machines for _ in range(added.get(machine.node_id, 0))]


def without_size(command: Sequence[str]) -> list[str]:
    """A command line without what it says of the cluster's size, to be said anew."""
    return [word for word in command if key_of(word) not in REPLACED]


def _learner(machines: Sequence[Machine]) -> Machine:
    """The learner's machine: with a GPU, then the one here, then the one that costs the fewest actors."""
    with_gpu = [machine for machine in machines if machine.gpus]
    if with_gpu:
        return min(with_gpu, key=lambda machine: (not machine.here, machine.cores))
    return next((machine for machine in machines if machine.here), machines[0])


def _slots(machines: Sequence[Machine], learner: Machine) -> dict[str, int]:
    """How many actors each machine takes, by node id."""
    slots = {machine.node_id: max(0, machine.cores) for machine in machines}
    own = slots.get(learner.node_id, 0)
    elsewhere = sum(slots.values()) - own
    if learner.gpus and elsewhere:
        slots[learner.node_id] = 0
    elif not learner.gpus and own and own + elsewhere > 1:
        slots[learner.node_id] = own - 1
    return slots


def _deal(slots: Mapping[str, int], running: Mapping[str, int], count: int) -> dict[str, int]:
    """`count` more actors, each to the machine that has the fewest; how many each machine gets."""
    order = {node: position for position, node in enumerate(slots)}
    open_to = [
        (running.get(node, 0), order[node], node) for node in slots if running.get(node, 0) < slots[node]
    ]
    heapq.heapify(open_to)
    added: dict[str, int] = {}
    for _ in range(count):
        has, position, node = heapq.heappop(open_to)
        added[node] = added.get(node, 0) + 1
        if has + 1 < slots[node]:
            heapq.heappush(open_to, (has + 1, position, node))
    return added


def _shortages(
    cluster: Cluster, machines: Sequence[Machine], learner: Machine, slots: Mapping[str, int]
) -> list[str]:
    """What is asked for and not there, a sentence each."""
    found = []
    free, there = sum(slots.values()), _machines(len(machines))
    give = "gives" if len(machines) == 1 else "give"
    gives = f"{there} {give} {free} core{'' if free == 1 else 's'} for actors"
    if not learner.gpus and slots[learner.node_id] < learner.cores:
        cores = sum(max(0, machine.cores) for machine in machines)
        gives += f" (of {'its' if len(machines) == 1 else 'their'} {cores} cores the learner keeps one)"
    if cluster.actors is not None and cluster.actors > free:
        found.append(f"cluster.actors is {cluster.actors}, but {gives}")
    elif cluster.actors is None and cluster.cores is not None and cluster.cores > free:
        named = _machines(ceil(cluster.cores / cluster.cores_per_machine))
        found.append(
            f"cluster.cores is {cluster.cores} ({named} of {cluster.cores_per_machine}), but {gives}"
        )
    if cluster.learner_gpus and not learner.gpus:
        found.append(f"cluster.learner_gpus is {cluster.learner_gpus}, but {there} {give} 0 GPUs")
    return found


def _listed(left_out: Sequence[str]) -> str:
    """The beginning of a message; of many machines that are left out, the first few."""
    more = len(left_out) - LISTED
    rest = [f"{_machines(more)} more {'is' if more == 1 else 'are'} not used"] if more > 0 else []
    return "".join(f"{sentence}; " for sentence in [*left_out[:LISTED], *rest])


def _machines(count: int) -> str:
    return f"{count} machine{'' if count == 1 else 's'}"


def _command_that_fits(cluster: Cluster, actors: int, command: Sequence[str], *, without_gpu: bool) -> str:
    """The command as typed, asking for no more than is there."""
    words = without_size(command or ("lamarck", "train"))
    given = [f"cluster.actors={actors}"]
    if any(key_of(word) == "resume" for word in words):  # its groups stay as they are
        given += ["cluster.learner_gpus=0"] if cluster.learner_gpus and without_gpu else []
    else:
        given.insert(0, "cluster=auto")
        given += ["cluster.learner_gpus=1"] if cluster.learner_gpus and not without_gpu else []
    return shlex.join([*words, *given])


def key_of(word: str) -> str:
    """The key that an override sets; empty where it is none."""
    name, equals, _ = word.lstrip("+~").partition("=")
    return name if equals else ""
