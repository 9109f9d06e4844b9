"""How the driver treats node agents: the tree over those that answer, and what it says of the rest.

Ray is played by hand here, so that machines can be slow, silent, unfit or gone at will; that
all of it holds with a real Ray on real networks is the business of test_machines.py.
"""

from __future__ import annotations

import re
import time
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest

from lamarckian_cli.launch import ray_cluster
from lamarckian_cli.launch.node_agents import NodeAgents
from lamarckian_cli.launch.placement import Machine
from lamarckian_cli.launch.settings import Cluster
from lamarckian_cli.transport.keys import JobKeys

LEARNER = {"weights": "tcp://learner:1", "unrolls": "tcp://learner:2", "vector_bytes": 1_000_000}


class RayTaskError(Exception):
    """Ray's own three, by their names: importing Ray here would settle how later tests start it."""


class RayActorError(Exception):
    pass


class ActorUnavailableError(RayActorError):
    pass


class Clock:
    """Stands still until it is wound."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Host:
    """A machine's agent process, as Ray would let us talk to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.facts = {
            "version": metadata.version("lamarckian-cli"),
            "time": time.time(),
            "weights": f"tcp://{name}:1",
            "channels": {"weights": f"shm://{name}", "unrolls": f"ipc://{name}"},
            "shm_free_bytes": 1 << 30,
        }
        self.weights = {
            "parent": "",
            "joined": True,
            "error": "",
            "bytes_per_s": 1e7,
            "round_trip_s": 0.001,
            "sent_bytes": 10,
        }
        self.silent = self.dead = self.unavailable = self.killed = False
        self.call = SimpleNamespace(remote=self._called)

    def _called(self, method: str, *arguments: Any) -> Any:
        if method == "hang":
            (self.weights["parent"],) = arguments
        return SimpleNamespace(host=self, method=method)

    def answer(self, method: str) -> Any:
        if self.dead:
            raise RayActorError
        if self.unavailable:
            raise ActorUnavailableError
        return {"describe": self.facts, "status": {"weights": dict(self.weights)}}.get(method)


class Cluster4:
    """Node agents on `hosts`, by name, with a clock that the test winds."""

    def __init__(self, monkeypatch: Any, count: int, **settings: Any) -> None:
        self.hosts = {f"m{n}": Host(f"m{n}") for n in range(1, count + 1)}
        self.clock = Clock()
        fake = SimpleNamespace(
            wait=lambda refs, timeout: ([r for r in refs if not r.host.silent], []),
            get=lambda ref: ref.host.answer(ref.method),
            kill=lambda handle: setattr(handle, "killed", True),
            exceptions=SimpleNamespace(
                RayError=Exception,
                RayActorError=RayActorError,
                ActorUnavailableError=ActorUnavailableError,
                RayTaskError=RayTaskError,
            ),
        )
        monkeypatch.setattr(ray_cluster, "ray", lambda: fake)
        monkeypatch.setattr(ray_cluster, "process_on", lambda machine, *_, **__: self.hosts[machine.name])
        self.agents = NodeAgents(
            Cluster(kind="auto", **settings),
            JobKeys.make(),
            LEARNER,
            actors_on=lambda machine: machine.cores,
            clock=self.clock,
        )
        for name in self.hosts:
            self.agents.add(self.machine(name))
        self.look(4)

    def machine(self, name: str) -> Machine:
        return Machine(node_id=name, address=f"10.0.0.{name[1:]}", name=name, cores=4)

    def look(self, times: int = 1) -> list[str]:
        dead = []
        for _ in range(times):
            self.clock.advance(1.0)
            dead += self.agents.look()
        return [machine.name for machine in dead]

    def parents(self) -> dict[str, str]:
        return {name: host.weights["parent"].partition("//")[2][:-2] for name, host in self.hosts.items()}


@pytest.fixture
def cluster(monkeypatch: Any) -> Any:
    return lambda count, **settings: Cluster4(monkeypatch, count, **settings)


def test_machines_hang_in_a_tree(cluster: Any) -> None:
    six = cluster(6)
    assert six.agents.joined()
    assert six.parents() == {"m1": "learner", "m2": "learner", "m3": "m1", "m4": "m2", "m5": "m1", "m6": "m2"}
    assert six.agents.notes == []


def test_flat_and_given_fanouts(cluster: Any) -> None:
    assert set(cluster(5, broadcast="flat").parents().values()) == {"learner"}
    assert cluster(5, fanout=1).parents() == {"m1": "learner"} | dict.fromkeys(("m2", "m3", "m4", "m5"), "m1")


def test_auto_measures_a_few_links_one_after_another(cluster: Any) -> None:
    """With links of 10 MB/s and 1 MB of weights copies are what costs; the square root is best."""
    sixteen = cluster(16, fanout="auto")
    sixteen.look(8)
    assert sixteen.agents.fanout == 4
    assert sixteen.agents.joined()


def test_a_relay_that_falls_silent_is_replaced_and_taken_in_again(cluster: Any) -> None:
    six = cluster(6)
    six.hosts["m1"].silent = True
    six.look(9)
    assert six.parents()["m3"] == "m1"  # it may only be slow
    six.look(3)
    assert [m.name for m in six.agents.ready()] == ["m2", "m3", "m4", "m5", "m6"]
    below = six.parents()
    assert "m1" not in {below[name] for name in ("m2", "m3", "m4", "m5", "m6")}
    assert "m1 (10.0.0.1) has not answered for 10 s" in six.agents.notes[0]
    six.hosts["m1"].silent = False
    six.look(2)
    assert len(six.agents.ready()) == 6
    assert six.agents.notes[1] == "m1 (10.0.0.1) answers again"
    assert sum(parent == "learner" for parent in six.parents().values()) == 2


def test_few_machines_are_hung_anew_when_one_goes(cluster: Any) -> None:
    many = cluster(20)
    many.hosts["m7"].dead = True
    assert many.look() == ["m7"]
    assert many.agents.changes <= 2
    assert many.hosts["m7"].killed
    assert not many.agents.knows(many.machine("m7"))  # it may be added anew


def test_what_ray_lost_sight_of_is_asked_again(cluster: Any) -> None:
    two = cluster(2)
    two.hosts["m1"].unavailable = True
    assert two.look(3) == []
    two.hosts["m1"].unavailable = False
    two.look(2)
    assert len(two.agents.ready()) == 2
    assert two.agents.notes == []


def test_a_machine_that_left_the_cluster_is_forgotten(cluster: Any) -> None:
    three = cluster(3)
    gone = three.agents.keep(["m1", "m3"])
    assert [machine.name for machine in gone] == ["m2"]
    assert three.agents.notes == ["m2 (10.0.0.2) is not used: it left the Ray cluster"]


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (
            {"version": "0.0.1"},
            "runs lamarckian-cli 0.0.1, this machine .*same",
        ),
        (
            {"shm_free_bytes": 10},
            "has 0 MB of shared memory left, .*--shm-size",
        ),
    ],
)
def test_an_unfit_machine_is_said_once_and_left_out(
    monkeypatch: Any, cluster: Any, facts: dict[str, Any], message: str
) -> None:
    ready = Host.__init__

    def unfit(self: Host, name: str) -> None:
        ready(self, name)
        self.facts |= facts if name == "m2" else {}

    monkeypatch.setattr(Host, "__init__", unfit)
    three = cluster(3)
    assert [m.name for m in three.agents.ready()] == ["m1", "m3"]
    assert len(three.agents.notes) == 1
    assert re.match(rf"m2 \(10.0.0.2\) is not used: it {message}", three.agents.notes[0])
    assert three.agents.knows(three.machine("m2"))  # so it is not tried again


def test_a_clock_that_differs_is_said(monkeypatch: Any, cluster: Any) -> None:
    ready = Host.__init__

    def early(self: Host, name: str) -> None:
        ready(self, name)
        self.facts["time"] += 300

    monkeypatch.setattr(Host, "__init__", early)
    one = cluster(1)
    assert one.agents.notes[0].startswith("the clock of m1 (10.0.0.1) is 300 s ahead")
    assert len(one.agents.ready()) == 1


def test_a_relay_out_of_reach_is_avoided_and_said(cluster: Any) -> None:
    six = cluster(6)
    six.hosts["m3"].weights |= {"joined": False, "error": "tcp://m1:1 did not answer within 5 s"}
    six.look()
    assert six.parents()["m3"] == "learner"
    assert "m3 (10.0.0.3) cannot reach the node agent of m1 (10.0.0.1)" in six.agents.notes[0]
    assert "cluster.port=N" in six.agents.notes[0]
    six.hosts["m3"].weights |= {"joined": True, "error": ""}
    six.look(3)
    assert six.parents()["m3"] == "learner"
    assert len(six.agents.notes) == 1


def test_whom_the_start_waits_for_is_named(cluster: Any) -> None:
    three = cluster(3)
    three.hosts["m2"].weights |= {"joined": False, "error": "tcp://learner:1 did not answer within 5 s"}
    three.look(2)
    assert not three.agents.joined()
    assert three.agents.waiting_for() == "m2 (10.0.0.2) (tcp://learner:1 did not answer within 5 s)"


def test_signs_of_life_count_only_after_they_were_asked_for(cluster: Any) -> None:
    one = cluster(1)
    machine = one.machine("m1")
    one.hosts["m1"].silent = True
    now = one.clock()
    one.hosts["m1"].silent = False
    one.look()  # answers what was asked before
    assert not one.agents.answered_since(machine, now)
    one.look(2)
    assert one.agents.answered_since(machine, now)


def test_a_machine_without_room_for_weights_is_done_without_until_it_has_some(cluster: Any) -> None:
    three = cluster(3)
    three.hosts["m3"].weights["error"] = "/dev/shm/x has no room for 0.2 MB of weights: full"
    three.hosts["m3"].weights["joined"] = False
    three.look(2)
    assert [m.name for m in three.agents.full()] == ["m3"]
    assert [m.name for m in three.agents.ready()] == ["m1", "m2"]
    assert three.agents.notes[0].startswith("m3 (10.0.0.3) is done without until it has room: /dev/shm/x")
    three.hosts["m3"].weights |= {"error": "", "joined": True}
    three.look(2)
    assert three.agents.full() == []
    assert three.agents.notes[1:] == ["m3 (10.0.0.3) has room for weights again"]
