"""A job that starts on several machines, some of them not fit: what it goes on with, and what it says.

Ray is played by hand; test_machines.py does it with a real one.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
from handray import LEARNER, Host, RayActorError, play_ray

from lamarckian_cli.errors import ClusterError, ConfigError
from lamarckian_cli.launch.distributed import DistributedTraining
from lamarckian_cli.launch.node_agents import NodeAgents
from lamarckian_cli.launch.placement import Machine, Placement, place
from lamarckian_cli.launch.ray_calls import Interrupted
from lamarckian_cli.launch.wiring import job_of
from lamarckian_cli.transport.keys import JobKeys

NO_SHM = {"shm_free_bytes": 10}
SAYS = "m2 (10.0.0.2) is not used: it has 0 MB of shared memory left"


class Start:
    """Agents for a job with the learner on m1 and three machines more, two cores each."""

    def __init__(self, monkeypatch: Any, *overrides: str) -> None:
        self.hosts = {f"m{n}": Host(f"m{n}") for n in range(1, 5)}
        play_ray(monkeypatch, self.hosts)
        self.stopped = threading.Event()
        self.job = job_of(["env=pong", "cluster=auto", "run.dir=unused", *overrides])
        self.training = DistributedTraining(self.job, self.stopped)
        self.training._machines = [
            Machine(node_id=name, address=f"10.0.0.{name[1:]}", name=name, cores=2, here=name == "m1")
            for name in self.hosts
        ]
        self.agents = NodeAgents(self.job.cluster, JobKeys.make(), LEARNER, actors_on=lambda m: m.cores)

    def go(self) -> dict[str, int]:
        """How many actors each machine is to have."""
        first = place(self.job.cluster, self.training._machines, self.job.command_line)
        self.placement: Placement = self.training._start_agents(first, self.agents)
        assert {m.name for m in self.agents.ready()} >= {m.name for m in self.placement.agents}
        return {machine.name: count for machine, count in self.placement.actors}

    def find_learner(self) -> str:
        """The machine that it is started on."""
        machines = self.training._machines
        first = place(self.job.cluster, machines, self.job.command_line)
        placement = self.training._find_learner(first, None)
        assert placement.learner in self.training._machines
        return placement.learner.name


@pytest.fixture
def start(monkeypatch: Any) -> Any:
    return lambda *overrides: Start(monkeypatch, *overrides)


def test_without_a_size_a_job_goes_on_with_those_that_are_fit_and_says_so_once(start: Any) -> None:
    job = start()
    job.hosts["m2"].facts |= NO_SHM
    assert job.go() == {"m1": 1, "m3": 2, "m4": 2}
    assert job.placement.notes == ()
    assert len(job.agents.notes) == 1
    assert job.agents.notes[0].startswith(SAYS)


def test_enough_are_fit_for_what_was_asked_so_nothing_is_short(start: Any) -> None:
    job = start("cluster.actors=5")
    job.hosts["m2"].facts |= NO_SHM
    assert job.go() == {"m1": 1, "m3": 2, "m4": 2}


def test_a_machine_to_spare_takes_the_place_of_one_that_is_not_fit(start: Any) -> None:
    job = start("cluster.actors=2")
    assert job.go() == {"m1": 1, "m2": 1}
    job = start("cluster.actors=2")
    job.hosts["m2"].facts |= NO_SHM
    assert job.go() == {"m1": 1, "m3": 1}


def test_too_few_that_are_fit_stop_the_job_with_one_message(start: Any) -> None:
    """It names host, reason, remedy and both numbers, and the command that runs."""
    job = start("cluster.actors=7")
    job.hosts["m2"].facts |= NO_SHM
    with pytest.raises(ClusterError) as caught:
        job.go()
    assert str(caught.value) == (
        f"{SAYS}, weights take 3 MB; give it more (in a container: docker run --shm-size=1g); "
        "cluster.actors is 7, but 3 machines give 5 cores for actors (of their 6 cores the learner keeps "
        "one); take what is there with cluster.on_shortage=shrink, or run it here with "
        "lamarck train env=pong run.dir=unused cluster=auto "
        "cluster.actors=5"
    )


def test_with_shrink_it_goes_on_with_those_that_are_fit_and_says_so_once(start: Any) -> None:
    job = start("cluster.actors=7", "cluster.on_shortage=shrink")
    job.hosts["m2"].facts |= NO_SHM
    job.hosts["m3"].broken = RayActorError("gone")
    assert job.go() == {"m1": 1, "m4": 2}
    assert job.placement.wanted == 7  # of those that become fit later, too
    assert job.placement.notes == (
        "cluster.actors is 7, but 2 machines give 3 cores for actors (of their 4 cores the learner keeps "
        "one): going on with 3 actors, the learner without a GPU",
    )
    assert sorted(note[:2] for note in job.agents.notes) == ["m2", "m3"]


def test_when_no_other_is_fit_the_learners_machine_has_the_actors(start: Any) -> None:
    job = start()
    for name in ("m2", "m3", "m4"):
        job.hosts[name].facts |= NO_SHM
    assert job.go() == {"m1": 1}


def test_a_machine_that_does_not_answer_is_waited_for_and_then_done_without(start: Any) -> None:
    job = start("cluster.start_timeout_s=1")
    job.hosts["m3"].silent = True
    assert job.go() == {"m1": 1, "m2": 2, "m4": 2}
    assert "m3 (10.0.0.3)" in job.agents.notes[0]


def test_a_machine_that_weights_do_not_reach_is_waited_for_and_then_done_without(start: Any) -> None:
    """It answers, and says of nothing that it fails."""
    job = start("cluster.start_timeout_s=1")
    job.hosts["m3"].weights["joined"] = False
    assert job.go() == {"m1": 1, "m2": 2, "m4": 2}
    assert (
        "m3 (10.0.0.3) is not used: its node agent gets no weights after 1 s; let the" in job.agents.notes[0]
    )


def test_a_machine_without_room_for_weights_does_not_hold_up_the_others(start: Any) -> None:
    job = start()
    job.hosts["m4"].weights |= {"joined": False, "error": "/dev/shm/x has no room for 0.2 MB of weights"}
    assert job.go() == {"m1": 1, "m2": 2, "m3": 2}


def test_a_signal_while_machines_are_waited_for_ends_the_wait(start: Any) -> None:
    job = start()
    job.hosts["m3"].silent = True
    job.stopped.set()
    with pytest.raises(Interrupted):
        job.go()


FULL = ClusterError("m1 has 4 MiB of shared memory left in /dev/shm; at least 16 are needed: free some")


def test_a_learners_machine_that_is_not_fit_gives_way_to_the_next(start: Any) -> None:
    job = start()
    job.hosts["m1"].broken = FULL
    assert job.find_learner() == "m2"
    assert job.hosts["m1"].killed
    assert job.training.notes == [
        f"m1 (10.0.0.1) is not used: {FULL}; the learner goes to m2 (10.0.0.2)",
    ]


def test_a_learners_process_that_is_lost_at_once_gives_way_to_the_next(start: Any) -> None:
    job = start()
    job.hosts["m1"].broken = RayActorError("The actor died because of No module named 'lamarckian_cli'")
    assert job.find_learner() == "m2"


def test_a_learners_machine_that_the_size_needs_stops_the_job(start: Any) -> None:
    job = start("cluster.actors=7")
    job.hosts["m1"].broken = FULL
    with pytest.raises(
        ClusterError, match=r"^m1 \(10.0.0.1\) is not used: m1 has 4 MiB .* 3 machines give 5 cores"
    ):
        job.find_learner()


def test_what_fails_on_every_machine_is_told_after_three(start: Any) -> None:
    job = start()
    for host in job.hosts.values():
        host.broken = FULL
    with pytest.raises(ClusterError, match=r"^m1 has 4 MiB"):
        job.find_learner()
    assert [host.killed for host in job.hosts.values()] == [True, True, False, False]


def test_a_configuration_that_cannot_work_is_not_tried_elsewhere(start: Any) -> None:
    job = start()
    job.hosts["m1"].broken = ConfigError("env.id is 'x'")
    with pytest.raises(ConfigError):
        job.find_learner()
    assert not job.hosts["m1"].killed
