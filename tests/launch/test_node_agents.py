"""How the driver treats node agents: the tree over those that answer, and what it says of the rest.

Ray is played by hand here, so that machines can be slow, silent, unfit or gone at will; that
all of it holds with a real Ray on real networks is the business of test_machines.py.
"""

from __future__ import annotations

import dataclasses
import re
import time
from typing import Any

import pytest
from handray import LEARNER, Clock, Host, RayActorError, RuntimeEnvSetupError, play_ray

from lamarckian_cli.errors import TransportError
from lamarckian_cli.launch.node_agents import NodeAgents
from lamarckian_cli.launch.placement import Machine
from lamarckian_cli.launch.settings import Cluster
from lamarckian_cli.transport.keys import JobKeys


class Cluster4:
    """Node agents on `hosts`, by name, with a clock that the test winds."""

    def __init__(
        self,
        monkeypatch: Any,
        count: int,
        hosts: dict[str, Any] | None = None,  # by name: attributes of theirs,
        facts: dict[str, Any] | None = None,  # what they describe,
        weights: dict[str, Any] | None = None,  # and how their weights get on, from the start
        **settings: Any,
    ) -> None:
        hosts, facts, weights = hosts or {}, facts or {}, weights or {}
        self.hosts = {f"m{n}": Host(f"m{n}") for n in range(1, count + 1)}
        self.clock = Clock()
        play_ray(monkeypatch, self.hosts)
        self.agents = NodeAgents(
            Cluster(kind="auto", **settings),
            JobKeys.make(),
            LEARNER,
            actors_on=lambda machine: machine.cores,
            clock=self.clock,
        )
        for name, host in self.hosts.items():
            host.__dict__.update(hosts.get(name, {}))
            host.facts |= facts.get(name, {})
            host.weights |= weights.get(name, {})
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
    assert len(six.agents.ready()) == 6
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
    assert len(sixteen.agents.ready()) == 16


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
    anew = dataclasses.replace(three.machine("m2"), node_id="m2 started anew")
    three.agents.add(anew)
    three.look(4)
    assert three.agents.is_ready(anew)
    assert three.agents.notes[1:] == ["m2 (10.0.0.2) is used again"]


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
    cluster: Any, facts: dict[str, Any], message: str
) -> None:
    three = cluster(3, facts={"m2": facts})
    assert [m.name for m in three.agents.ready()] == ["m1", "m3"]
    assert len(three.agents.notes) == 1
    assert re.match(rf"m2 \(10.0.0.2\) is not used: it {message}.*; it is tried again", three.agents.notes[0])
    assert three.agents.knows(three.machine("m2"))  # so it is not tried again, for now
    (why,) = three.agents.left_out().values()
    assert re.match(rf"m2 \(10.0.0.2\) is not used: it {message}", why)


def test_an_unfit_machine_is_tried_again_with_growing_pauses_and_used_once_it_is_fit(cluster: Any) -> None:
    """30 s, doubled each time, 10 minutes at most; said once, whatever the numbers."""
    one = cluster(1, facts={"m1": {"shm_free_bytes": 0}})
    m1, host, tries = one.machine("m1"), one.hosts["m1"], []
    failed_at = one.clock() - 3  # the first of four looks, a second apart
    for _ in range(8):
        while one.agents.knows(m1):
            one.clock.advance(0.5)
        tries.append(one.clock() - failed_at)
        host.facts["shm_free_bytes"] += 300_000
        one.agents.add(m1)
        one.agents.look()
        failed_at = one.clock()
    assert tries == [30.0, 60.0, 120.0, 240.0, 480.0, 600.0, 600.0, 600.0]
    assert len(one.agents.notes) == 1
    host.facts["shm_free_bytes"] = 1 << 30
    one.clock.advance(600.0)
    one.agents.add(m1)
    one.look(4)
    assert [m.name for m in one.agents.ready()] == ["m1"]
    assert one.agents.left_out() == {}
    assert one.agents.notes[1:] == ["m1 (10.0.0.1) is used from now on"]


def test_a_machine_that_ray_reports_anew_is_tried_at_once(cluster: Any) -> None:
    one = cluster(1, facts={"m1": {"shm_free_bytes": 0}})
    again = dataclasses.replace(one.machine("m1"), node_id="another")
    assert one.agents.knows(one.machine("m1"))
    assert not one.agents.knows(again)
    one.agents.keep(["another"])
    assert one.agents.left_out() == {}


def test_an_agent_that_ends_again_and_again_is_not_started_without_end(cluster: Any) -> None:
    """At once the first time, for it had worked; then after pauses, unless it worked longer than those."""
    one = cluster(1)
    m1, host = one.machine("m1"), one.hosts["m1"]

    def ends_after(seconds: int) -> bool:
        """Whether it may be started again at once."""
        one.look(seconds)
        host.dead = True
        assert one.look() == ["m1"]
        host.dead = False
        at_once = not one.agents.knows(m1)
        one.clock.advance(0.0 if at_once else 30.0)
        one.agents.add(m1)
        return at_once

    assert ends_after(3)
    assert not ends_after(3)
    assert ends_after(50)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (RayActorError("... No module named 'lamarckian_cli'"), "has no lamarckian-cli; install"),
        (
            RuntimeEnvSetupError("no space left\non device"),
            "Ray cannot run a node agent there: no space left;",
        ),
        (TransportError("tcp://learner:2 did not answer"), "tcp://learner:2 did not answer;"),
    ],
)
def test_whatever_keeps_an_agent_from_starting_costs_its_machine_alone(
    cluster: Any, broken: Exception, message: str
) -> None:
    two = cluster(2, hosts={"m2": {"broken": broken}})
    assert [m.name for m in two.agents.ready()] == ["m1"]
    assert len(two.agents.notes) == 1
    assert message in two.agents.notes[0]
    assert list(two.agents.left_out()) == ["m2"]


@pytest.mark.parametrize("fanout", ["sqrt", "auto"])
def test_a_machine_that_weights_do_not_reach_gets_no_actors_and_is_left_out(
    cluster: Any, fanout: str
) -> None:
    cut = {"joined": False, "error": "tcp://learner:1 did not answer within 5 s", "bytes_per_s": 0.0}
    three = cluster(3, weights={"m1": cut}, fanout=fanout)
    assert "m1" not in [m.name for m in three.agents.ready()]
    three.look(35)  # half of cluster.start_timeout_s
    assert [m.name for m in three.agents.ready()] == ["m2", "m3"]
    assert three.parents()["m3"] == "learner"
    assert three.agents.notes[0].startswith(
        "m1 (10.0.0.1) is not used: its node agent gets no weights: tcp://learner:1 did not answer"
    )


def test_a_machine_that_is_late_is_given_up_with_what_it_lacks(cluster: Any) -> None:
    two = cluster(2, hosts={"m2": {"silent": True}})
    two.agents.give_up([two.machine("m1"), two.machine("m2")], 60.0)
    assert [m.name for m in two.agents.ready()] == ["m1"]
    assert "m2 (10.0.0.2) is not used: its node agent has not started after 60 s" in two.agents.notes[0]
    assert "cluster.start_timeout_s" in two.agents.notes[0]
    assert list(two.agents.left_out()) == ["m2"]


def test_one_machine_that_does_not_start_does_not_keep_the_others_from_being_measured(cluster: Any) -> None:
    three = cluster(3, hosts={"m2": {"silent": True}}, fanout="auto")
    three.look(20)
    assert [m.name for m in three.agents.ready()] == ["m1", "m3"]


def test_a_clock_that_differs_is_said(cluster: Any) -> None:
    one = cluster(1, facts={"m1": {"time": time.time() + 300}})
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
