"""A training of waiting games on hosts of namespaces: brought up, hung in a layout, looked at, ended."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import psutil

from lamarckian_cli.bench.hosts import Host, Hosts
from lamarckian_cli.bench.program import Program
from lamarckian_cli.bench.scaling_process import Training, Update
from lamarckian_cli.bench.simulation import slope
from lamarckian_cli.errors import RunError
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.tree import Wire, fanout_of, parent

PROGRAM = "lamarckian_cli.bench.scaling_process"
START_TIMEOUT_S = 120.0  # of all programs together, on however few cores
CONTROL_TIMEOUT_S = 60.0
JOIN_TIMEOUT_S = 30.0
PERIOD_S, SKIPPED = 0.01, 3  # between versions that are to fill a link; those that come first do not count
BURST, QUANTUM = "32k", 3000  # bytes that a link lets through at once, and one connection when it is its turn
LOOK_EVERY_S = 0.05  # while weights are waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a training on the hosts came to, over the time in which it was looked."""

    env_steps_per_s: float  # taken in by the learner
    staleness_mean: float  # versions
    egress_bytes_per_s: float  # of weights, at the learner
    batches: int
    seconds: float
    cpu_use: float  # of our own processes, share of this machine's cores
    cpu_load: float  # of everything that ran here, the same
    sampled_unrolls: int  # that node agents passed on, from the start on
    learned_unrolls: int


class Cluster:
    """A learner's host and others with a node agent and actors each; `measure` runs one training."""

    def __init__(self, hosts: Hosts, training: Training, *, actors: int, mbit_per_s: float | None) -> None:
        """Start programs on `hosts`, of which the first is the learner's; `actors` on each other.

        Raises RunError. Links of `mbit_per_s` serve connections in turn; where it is None, they stay plain.
        """
        if mbit_per_s is not None:
            for host in hosts:
                _serve_in_turn(host, [other for other in hosts if other is not host], mbit_per_s)
        self._training, self._job = training, training.job()
        self._actors_per_machine = actors
        self._programs: list[Program] = []
        keys = JobKeys.make().to_dict()
        try:
            self._learner, *_ = self._started(hosts, "learner", [0], training, keys)
            machines = range(1, len(hosts))
            self._agents = self._started(hosts, "agent", machines, training, keys)
            self._actors = self._started(hosts, "actors", machines, training, keys)
            for program in self._programs:
                program.answer(START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for program in self._programs:
            program.close()

    # ------------------------------------------------------------------ measured alone

    def unroll_times(self, machines: int, seconds: float) -> list[float]:
        """Seconds that each unroll took, of actors on so many machines that only sample."""
        programs = self._actors[:machines]
        for program in programs:
            program.tell(
                {"do": "sample", "numbers": list(range(self._actors_per_machine)), "seconds": seconds}
            )
        answers = [program.answer(seconds + CONTROL_TIMEOUT_S) for program in programs]
        return [
            value for answer in answers for one in answer["actors"] for value in _checked(one)["unrolls_s"]
        ]

    def full_link(self, machines: int, size_bytes: int, seconds: float) -> tuple[Wire, float]:
        """The learner's link as it is shared where versions follow each other at once, flat.

        How fast it is, and how unevenly versions come: deviation over mean of the time between two.
        """
        _, agents = self._make(machines)
        uri = self._learner.ask({"do": "offer"}, CONTROL_TIMEOUT_S)["uri"]
        _ask_all(agents, {"do": "hang", "parent": uri})
        for agent in agents:
            agent.tell({"do": "watch", "seconds": seconds})
        question = {"do": "publish", "bytes": size_bytes, "period_s": PERIOD_S, "seconds": seconds}
        self._learner.ask(question, seconds + CONTROL_TIMEOUT_S)
        watched = [agent.answer(CONTROL_TIMEOUT_S)["arrivals"] for agent in agents]
        statuses = _ask_all(agents, {"do": "status"})
        self._stop(machines)
        between_s = np.concatenate([np.diff(arrivals[SKIPPED:]) for arrivals in watched])
        wire = Wire(
            bytes_per_s=machines * size_bytes / float(between_s.mean()),
            latency_s=statistics.median(status["weights"]["round_trip_s"] for status in statuses) / 2,
        )
        return wire, float(between_s.std() / between_s.mean())

    # ------------------------------------------------------------------ a training

    def measure(
        self, machines: int, layout: str, *, warm_up_s: float, seconds: float, rng: np.random.Generator
    ) -> Measured:
        """One training on the first `machines`."""
        facts, agents = self._make(machines)
        self._learner.ask({"do": "start"}, CONTROL_TIMEOUT_S)
        channels = self._hang(facts, agents, layout)
        self._play(channels, rng)
        time.sleep(warm_up_s)
        since, own_s, busy_s = time.monotonic(), self._own_s(), _busy_s()
        time.sleep(seconds)
        until, own_s, busy_s = time.monotonic(), self._own_s() - own_s, _busy_s() - busy_s
        core_s = (until - since) * len(psutil.Process().cpu_affinity())
        sampled, updates = self._stop(machines)
        seen = [update for update in updates if since <= update.ended <= until]
        if len(seen) < 3:
            raise RunError(f"{len(seen)} updates in {seconds:g} s on {machines} hosts; look for longer")
        batches_per_s = slope([update.ended for update in seen])
        egress = slope([update.ended for update in seen], [update.sent_bytes for update in seen])
        return Measured(
            env_steps_per_s=batches_per_s * self._training.batch_size,
            staleness_mean=statistics.mean(update.staleness for update in seen),
            egress_bytes_per_s=egress,
            batches=len(seen),
            seconds=until - since,
            cpu_use=own_s / core_s,
            cpu_load=busy_s / core_s,
            sampled_unrolls=sampled,
            learned_unrolls=len(updates) * self._job.algo.unrolls_per_batch,
        )

    def _make(self, machines: int) -> tuple[dict[str, Any], Sequence[Program]]:
        """The learner's host, and node agents that have joined it; what the learner describes."""
        agents = self._agents[:machines]
        for program in (self._learner, *agents):
            program.tell({"do": "make"})
        facts: dict[str, Any] = self._learner.answer(CONTROL_TIMEOUT_S)
        self._described = [agent.answer(CONTROL_TIMEOUT_S) for agent in agents]
        join = {"learner": facts["unrolls"], "actors": self._actors_per_machine, "timeout_s": JOIN_TIMEOUT_S}
        _ask_all(agents, {"do": "join", **join})
        return facts, agents

    def _hang(self, facts: dict[str, Any], agents: Sequence[Program], layout: str) -> list[dict[str, str]]:
        """The agents into the layout, until all have the first weights; where their actors find things."""
        described = self._described
        uris = [facts["weights"], *(one["weights"] for one in described)]
        fanout = fanout_of(layout, "sqrt", len(agents), facts["vector_bytes"], None)
        for rank, agent in enumerate(agents, start=1):
            agent.ask({"do": "hang", "parent": uris[parent(rank, fanout)]}, CONTROL_TIMEOUT_S)
        for agent in agents:
            _await_weights(agent)
        return [one["channels"] for one in described]

    def _play(self, channels: Sequence[dict[str, str]], rng: np.random.Generator) -> None:
        count = self._actors_per_machine
        sharing = len(channels) * count
        unroll_s = self._training.unroll * self._training.step_s
        for number, (program, own) in enumerate(zip(self._actors, channels, strict=False)):
            actors = [
                {"number": number * count + place, "begins_s": unroll_s * rng.random()}
                for place in range(count)
            ]
            program.tell({"do": "play", "channels": own, "sharing": sharing, "actors": actors})
        for program, _ in zip(self._actors, channels, strict=False):
            program.answer(CONTROL_TIMEOUT_S)

    def _stop(self, machines: int) -> tuple[int, list[Update]]:
        """Unrolls that came through the node agents, and updates; RunError where something failed."""
        for answer in _ask_all(self._actors[:machines], {"do": "stop"}):
            for one in answer["actors"]:
                _checked(one)
        statuses = _ask_all(self._agents[:machines], {"do": "status"})
        looked = self._learner.ask({"do": "look"}, CONTROL_TIMEOUT_S)
        _ask_all((*self._agents[:machines], self._learner), {"do": "stop"})
        _checked(looked)
        for status in statuses:
            _checked(status["unrolls"])
        updates = [Update(**update) for update in looked["updates"]]
        return sum(status["unrolls"]["messages"] for status in statuses), updates

    # ------------------------------------------------------------------ programs

    def _started(
        self, hosts: Hosts, role: str, machines: Sequence[int], training: Training, keys: dict[str, str]
    ) -> list[Program]:
        started = []
        for number in machines:
            host = hosts[number]
            program = Program(PROGRAM, f"the {role} on {host.name}", popen=host.popen)
            self._programs.append(program)
            started.append(program)
            program.tell({"role": role, "training": asdict(training), "keys": keys, "address": host.address})
        return started

    def _own_s(self) -> float:
        """Processor time of all programs and what they started, which runs on while it is looked."""
        total = 0.0
        for program in self._programs:
            process = psutil.Process(program.pid)
            for one in (process, *process.children(recursive=True)):
                times = one.cpu_times()
                total += times.user + times.system
        return total


def _serve_in_turn(host: Host, others: Sequence[Host], mbit_per_s: float) -> None:
    """Have the host's link serve those that it sends to in turn, and small packets first.

    That is what network cards do under fq_codel, which most systems use. In one plain queue, TCP leaves some
    connections of a full link far behind others, and what a node agent waits for stands behind weights.
    """
    whole, burst = f"{mbit_per_s:g}mbit", f"burst {BURST} cburst {BURST}"
    lines = [
        "qdisc replace dev eth0 root handle 1: htb default 2",
        f"class add dev eth0 parent 1: classid 1:1 htb rate {whole} {burst}",
        f"class add dev eth0 parent 1:1 classid 1:2 htb rate {mbit_per_s / 2:g}mbit ceil {whole} {burst}",
        "filter add dev eth0 parent 1: protocol ip prio 1 u32 match u16 0 0xff00 at 2 flowid 1:2",
    ]
    share = f"rate {mbit_per_s / (2 * len(others)):g}mbit ceil {whole} prio 1 quantum {QUANTUM}"
    for number, other in enumerate(others, start=16):
        flow, to = f"1:{number:x}", f"match ip dst {other.address}/32"
        lines += [
            f"class add dev eth0 parent 1:1 classid {flow} htb {share}",
            f"filter add dev eth0 parent 1: protocol ip prio 2 u32 {to} flowid {flow}",
        ]
    script = "tc -batch - <<END\n" + "\n".join(lines) + "\nEND"
    done = host.run(["sh", "-c", script], CONTROL_TIMEOUT_S)
    if done.returncode:
        raise RunError(f"{host.name} cannot share its link: {done.stderr.strip()}")


def _ask_all(programs: Sequence[Program], question: Any) -> list[Any]:
    for program in programs:
        program.tell(question)
    return [program.answer(CONTROL_TIMEOUT_S) for program in programs]


def _await_weights(agent: Program) -> dict[str, Any]:
    """Its status as soon as it has a version."""
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    while time.monotonic() < deadline:
        weights: dict[str, Any] = agent.ask({"do": "status"}, CONTROL_TIMEOUT_S)["weights"]
        if weights["versions"]:
            return weights
        time.sleep(LOOK_EVERY_S)
    raise RunError(f"{agent.name} got no weights within {JOIN_TIMEOUT_S:g} s: {weights['error']}")


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    """RunError where an actor, agent or learner says what it ended of."""
    if answer.get("error"):
        raise RunError(f"a training on hosts failed: {answer['error']}")
    return answer


def _busy_s() -> float:
    """Seconds that this machine's cores were busy since it started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)
