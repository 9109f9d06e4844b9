"""A learner, node agents and actors on hosts of namespaces, and one version's way through them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lamarckian_cli.bench.hosts import Host, Hosts
from lamarckian_cli.bench.program import Program
from lamarckian_cli.errors import RunError
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.tree import children, parent

PROGRAM = "lamarckian_cli.bench.broadcast_host"
START_TIMEOUT_S = 120.0  # of all programs together, on however few cores
CONTROL_TIMEOUT_S = 30.0
LEAST_TIMEOUT_S = 30.0  # of a version
PATIENCE = 10.0  # times as long as predicted
WARM_UPS = 10  # versions after which everybody must hang where it should


@dataclass(frozen=True, slots=True, kw_only=True)
class Broadcast:
    """One version's way."""

    last_s: float  # from `publish` until the last actor has copied it
    egress_bytes: int  # that left the learner


class Cluster:
    """A learner's host, and others with a node agent and an actor each, hung as `hang` says."""

    def __init__(self, hosts: Hosts) -> None:
        """Start everything on `hosts`, of which the first is the learner's. Raises RunError."""
        self.version = 0
        self._fanout = self._machines = 0
        self._programs: list[Program] = []
        keys = JobKeys.make()
        try:
            self._start(hosts, keys)
        except BaseException:
            self.close()
            raise

    def _start(self, hosts: Hosts, keys: JobKeys) -> None:
        learner, *machines = hosts
        self._learner = self._program(learner, "learner")
        self._agents = [self._program(host, "agent") for host in machines]
        self._actors = [self._program(host, "actor") for host in machines]
        for host, program in zip(hosts, [self._learner, *self._agents], strict=True):
            role = "learner" if program is self._learner else "agent"
            program.tell({"role": role, "uri": f"tcp://{host.address}:0", "keys": keys.to_dict()})
        self._uris = [self._learner.answer(START_TIMEOUT_S)["uri"]]
        for agent, actor in zip(self._agents, self._actors, strict=True):
            answer = agent.answer(START_TIMEOUT_S)
            self._uris.append(answer["uri"])
            actor.tell({"role": "actor", "uri": answer["shared_uri"]})
        for actor in self._actors:
            actor.answer(START_TIMEOUT_S)

    def hang(self, machines: int, fanout: int, *, size_bytes: int) -> None:
        """The first `machines` into a tree of that fan-out, the others nowhere; versions of
        that size are sent until it stands.
        """
        self._machines, self._fanout = machines, fanout
        for rank, agent in enumerate(self._agents, start=1):
            agent.tell({"parent": self._uris[parent(rank, fanout)] if rank <= machines else ""})
        for agent in self._agents:
            agent.answer(CONTROL_TIMEOUT_S)
        for _ in range(WARM_UPS):
            egress_bytes = self.broadcast(size_bytes, 0.0).egress_bytes
            if round(egress_bytes / size_bytes) == min(fanout, machines) and self._stands():
                return
        raise RunError(f"{machines} node agents did not hang in a tree of fan-out {fanout}")

    def broadcast(self, size_bytes: int, expected_s: float) -> Broadcast:
        """Publish a version and wait until everybody has it; RunError if that takes too long."""
        self.version += 1
        begun = self._learner.ask({"version": self.version, "bytes": size_bytes}, CONTROL_TIMEOUT_S)
        timeout_s = max(LEAST_TIMEOUT_S, PATIENCE * expected_s)
        arrived = [list(arrivals(actor, self.version, timeout_s))[-1] for actor in self._reading()]
        after = self._learner.ask({"bytes": size_bytes}, CONTROL_TIMEOUT_S)["sent_bytes"]
        return Broadcast(
            last_s=max(at for _, at in arrived) - begun["at"], egress_bytes=after - begun["sent_bytes"]
        )

    def staleness(self, size_bytes: int, *, period_s: float, warm_up_s: float, seconds: float) -> float:
        """Versions that a host is behind the learner, mean over hosts and `seconds` after a warm-up."""
        question = {
            "from_version": self.version + 1,
            "bytes": size_bytes,
            "period_s": period_s,
            "seconds": warm_up_s + seconds,
        }
        published = self._learner.ask(question, warm_up_s + seconds + CONTROL_TIMEOUT_S)["published"]
        self.version, until = published[-1]
        since = published[0][1] + warm_up_s
        return statistics.mean(
            mean_lag(published, list(arrivals(actor, self.version, LEAST_TIMEOUT_S)), since, until)
            for actor in self._reading()
        )

    def close(self) -> None:
        for program in self._programs:
            program.close()

    def _program(self, host: Host, role: str) -> Program:
        program = Program(PROGRAM, f"the {role} on {host.name}", popen=host.popen)
        self._programs.append(program)
        return program

    def _reading(self) -> Sequence[Program]:
        return self._actors[: self._machines]

    def _stands(self) -> bool:
        """Whether every node agent that gets weights has the children that it should have."""
        statuses = [agent.ask({}, CONTROL_TIMEOUT_S) for agent in self._agents[: self._machines]]
        return all(
            status["children"] == len(children(rank, self._fanout, self._machines))
            for rank, status in enumerate(statuses, start=1)
        )


def arrivals(actor: Program, version: int, timeout_s: float) -> Iterator[tuple[int, float]]:
    """Versions and times that an actor reports, up to this one."""
    seen = -1
    while seen < version:
        answer: dict[str, Any] = actor.answer(timeout_s)
        seen = answer["version"]
        yield seen, answer["at"]


Steps = Sequence[tuple[int, float]]  # versions, and from when on they are the newest


def mean_lag(published: Steps, arrived: Steps, since: float, until: float) -> float:
    """Versions that were published and had not arrived, mean over the time from `since` to `until`.

    What came before the first one published counts as arrived.
    """
    before = published[0][0] - 1
    return _mean(published, before, since, until) - _mean(arrived, before, since, until)


def _mean(steps: Steps, before: int, since: float, until: float) -> float:
    total, newest, at = 0.0, before, since
    for version, begins in [*steps, (0, until)]:
        begins = min(max(begins, since), until)
        total += newest * (begins - at)
        newest, at = version, begins
    return total / (until - since)
