"""What is said when a job loses its learner: that, whatever else fails of it meanwhile."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from handray import RayActorError, RayError, RayTaskError

from lamarckian_cli.errors import ClusterError, LamarckError, RunError, TransportError
from lamarckian_cli.launch import ray_calls, ray_cluster
from lamarckian_cli.launch.actors import Actor, Actors, Sites
from lamarckian_cli.launch.distributed import DistributedTraining
from lamarckian_cli.launch.placement import Machine, Placement
from lamarckian_cli.launch.wiring import job_of

HERE = Machine(node_id="1", address="10.0.0.1", name="m1", cores=2, here=True)
FINE = {"counters": {}, "dropped_messages": {}}  # what a learner that is well answers
# As Ray tells it, but for the numbers.
DIED = """The actor died unexpectedly before finishing this task.
\tclass_name: Process
\tpid: 13287
\tip: 127.0.0.1
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit \
detail: End of file. Some common causes include: (1) the OOM killer, (2) ray stop --force was called."""


class Training:
    """A job as it is while it trains, with one actor; `answers` of the learner come in order."""

    def __init__(self, monkeypatch: Any, *answers: Any, actor: Any = None) -> None:
        self.answers, self.shut_down = list(answers), False
        self.cannot_stop: Exception | None = None
        fake = SimpleNamespace(
            wait=lambda refs, num_returns=1, timeout=0: ([r for r in refs if r() is not None], []),
            get=self._get,
            kill=lambda handle: None,
            is_initialized=lambda: True,
            shutdown=self._shutdown,
            exceptions=SimpleNamespace(
                RayError=RayError, RayActorError=RayActorError, RayTaskError=RayTaskError
            ),
        )
        for module in (ray_calls, ray_cluster):
            monkeypatch.setattr(module, "ray", lambda: fake)
        job = job_of(["env=pong", "run.dir=unused", "cluster.restart_limit=0"])
        self.training = DistributedTraining(job, threading.Event())
        learner = SimpleNamespace(call=SimpleNamespace(remote=self._ask))
        self.training._learner = learner
        self.actors = self._watched(job, None)
        self.actors[0] = Actor(0, HERE, learner, lambda: actor, pinged_at=time.monotonic())

    def _watched(self, job: Any, agents: Any) -> dict[int, Actor]:
        """Have the training look after actors, none yet; the dict that they are to stand in."""
        placement = Placement(learner=HERE, learner_device="cpu", actors=((HERE, 1),), wanted=1)
        sites = Sites(HERE, {}, agents)
        self.training._actors = Actors(job, placement, sites, self.training._check_learner)
        return self.training._actors._actors

    def _ask(self, *_: Any) -> Any:
        if self.cannot_stop is not None:
            raise self.cannot_stop
        answer = self.answers.pop(0)
        return lambda: answer

    def _get(self, reference: Any) -> Any:
        if isinstance(reference(), Exception):
            raise reference()
        return reference()

    def _shutdown(self) -> None:
        self.shut_down = True
        if self.cannot_stop is not None:
            raise self.cannot_stop


def test_what_ray_says_of_its_end_is_told_without_what_else_it_might_have_been(monkeypatch: Any) -> None:
    job = Training(monkeypatch, RayActorError(DIED))
    with pytest.raises(RunError) as lost:
        job.training.progress()
    assert str(lost.value) == (
        "the learner's process, or its machine, was lost while learning (The actor is dead because its "
        "worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: End of file); where "
        "there is a checkpoint, go on with resume=FOLDER"
    )


def test_whatever_ray_raises_of_it_is_one_message(monkeypatch: Any) -> None:
    """Not only actors that died: memory that ran out, a node that went."""
    with pytest.raises(RunError, match=r"was lost while learning \(out of memory\)"):
        Training(monkeypatch, RayError("out of memory\nmore")).training.progress()


def failed(error: Exception) -> RayTaskError:
    task_error = RayTaskError()
    task_error.cause = error  # type: ignore[attr-defined]
    return task_error


@pytest.mark.parametrize(
    "actor", [failed(TransportError("ipc://x is closed")), RayActorError("its node went")]
)
def test_an_actor_that_ended_of_it_is_no_cause(monkeypatch: Any, actor: Exception) -> None:
    """It was still there when it was asked for progress, and is not a moment later."""
    job = Training(monkeypatch, FINE, RayActorError(DIED), actor=actor)
    with pytest.raises(RunError, match="the learner's process, or its machine, was lost"):
        job.training.progress()


def test_an_actor_that_fails_by_itself_is_the_cause(monkeypatch: Any) -> None:
    job = Training(monkeypatch, FINE, FINE, actor=failed(TransportError("no room")))
    with pytest.raises(LamarckError, match="no room"):
        job.training.progress()


def test_an_actor_whose_memory_or_machine_is_gone_is_lost_and_no_fault_of_the_program(
    monkeypatch: Any,
) -> None:
    job = Training(monkeypatch, FINE, FINE, actor=RayError("it ran out of memory"))
    with pytest.raises(ClusterError, match=r"actors died 1 times, .* actor 0: it ran out of memory"):
        job.training.progress()


class Waiting(Training):
    """A job on a cluster whose second actor has got no core in `cluster.start_timeout_s`."""

    def __init__(self, monkeypatch: Any, on_shortage: str, *, first_runs: bool = True) -> None:
        super().__init__(monkeypatch, FINE)
        cluster = replace(self.training.job.cluster, on_shortage=on_shortage)
        self.training.job = replace(self.training.job, cluster=cluster)
        handle = SimpleNamespace(call=SimpleNamespace(remote=lambda *_: None))
        long_ago = time.monotonic() - cluster.start_timeout_s - 1
        agents: Any = SimpleNamespace(
            due=lambda: False, report=lambda: {"dropped_messages": Counter()}, notes=[]
        )
        self.training._agents = agents
        self.actors = self._watched(self.training.job, agents)
        for number, up in enumerate([1 if first_runs else None, None]):
            self.actors[number] = Actor(
                number,
                HERE,
                handle,
                lambda: None,
                partial(lambda up: up, up),
                long_ago,
                pinged_at=time.monotonic(),
            )


def test_actors_that_wait_for_cores_are_not_counted_and_stop_the_job(monkeypatch: Any) -> None:
    with pytest.raises(ClusterError, match=r"1 of 2 actors .* taken, .* take cluster\.actors=1, "):
        Waiting(monkeypatch, "stop").training.progress()


def test_with_shrink_the_job_goes_on_with_the_actors_that_run_and_says_so_once(monkeypatch: Any) -> None:
    job = Waiting(monkeypatch, "shrink")
    assert job.training.progress()["actors"] == 1
    job.answers.append(FINE)
    job.training.progress()
    [note] = job.training.notes
    assert "goes on with 1" in note


def test_without_any_actor_that_runs_shrink_has_nothing_to_go_on_with(monkeypatch: Any) -> None:
    with pytest.raises(ClusterError, match="2 of 2 actors have not started"):
        Waiting(monkeypatch, "shrink", first_runs=False).training.progress()


@pytest.mark.parametrize("error", [RayError("GCS is gone"), RuntimeError("not connected"), OSError("pipe")])
def test_a_cluster_that_is_gone_is_left_in_silence(monkeypatch: Any, error: Exception) -> None:
    """What ended the training is on its way to the user; an error of the end would take its place."""
    job = Training(monkeypatch)
    job.cannot_stop = error  # at the first call of the end, and at the last
    job.training.stop()
    assert job.shut_down
    assert job.training._learner is None
