"""What runs on the hosts of `lamarck bench scaling --check`: a training whose games and updates only wait.

Learner, node agents and actors are those of a training over Ray (`launch/`), without Ray: the
same threads, channels and rules. A game waits `step_s` for each step, an update `update_s`.
Driven by JSON lines (see `program`). The first one says who this is, and what the job is:

    {"role": "learner" | "agent" | "actors", "plan": {...}, "keys": ..., "address": ...}
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

import numpy as np

from lamarckian_cli.bench.broadcast_host import publish_on_time, weights_of
from lamarckian_cli.bench.program import questions, reply
from lamarckian_cli.errors import MDPError
from lamarckian_cli.launch.job import Job, MDPFactory
from lamarckian_cli.launch.wiring import job_of
from lamarckian_cli.records import (
    RUNNING,
    TERMINATED,
    Action,
    DiscreteHead,
    InputSpec,
    MDPSpec,
    Outcome,
    SeatSpec,
    State,
)
from lamarckian_cli.transport.channel import bind_weights, connect_weights
from lamarckian_cli.transport.keys import JobKeys

if TYPE_CHECKING:
    from lamarckian_cli.launch.learner_host import LearnerHost

STOP_TIMEOUT_S = 20.0
BEFORE_OTHERS = -10  # niceness: who waits for time should not wait for what else runs on this machine
SEAT = SeatSpec(
    inputs=(InputSpec(name="numbers", shape=(16,), dtype="float32"),),
    heads=(DiscreteHead(name="action", n=4),),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The job that runs on the hosts; one match an actor."""

    step_s: float = 0.06
    update_s: float = 0.15
    unroll: int = 4
    batch_size: int = 256
    queue_batches: float = 3.0
    layers: tuple[int, ...] = (240, 240)

    def job(self) -> Job:
        job = job_of(
            (
                "tuned=none",
                "run.dir=unused",
                f"algo.unroll={self.unroll}",
                f"algo.batch_size={self.batch_size}",
                f"cluster.queue_batches={self.queue_batches}",
                "cluster.matches=1",
                f"model.policy={list(self.layers)}",
                "model.critic=[32]",
            )
        )
        game = {"_target_": "lamarckian_cli.bench.scaling_process.WaitingGame", "step_s": self.step_s}
        return replace(job, env=MDPFactory(spec=game))


# ------------------------------------------------------------------ what only waits


class WaitingGame:
    """An MDP of one seat, whose steps take time and nothing else."""

    external = False

    def __init__(self, *, step_s: float, length: int = 1000) -> None:
        self.step_s = step_s
        self.length = length

    def describe(self) -> MDPSpec:
        return MDPSpec(name="waiting", seats=(SEAT,))

    def reset(self, seats: Sequence[int], seed: int) -> WaitingMatch:
        return WaitingMatch(self, seed)

    def close(self) -> None:
        pass


class WaitingMatch:
    """The match and its only controller."""

    ticks = ()

    def __init__(self, game: WaitingGame, seed: int) -> None:
        self.controllers = (self,)
        self._game = game
        self._left = game.length
        self._state = State((np.random.default_rng(seed).standard_normal(16, dtype=np.float32),))

    def state(self) -> State:
        return self._state

    async def act(self, action: Action | None) -> Outcome:
        if not self._left:
            raise MDPError("waiting: act() after the end")
        time.sleep(self._game.step_s)
        self._left -= 1
        return RUNNING if self._left else TERMINATED

    def reward(self) -> Sequence[float]:
        return (0.0,)

    def result(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One update of the learner."""

    ended: float  # this kernel's monotonic clock, which all hosts share
    staleness: float  # of its batch: versions
    sent_bytes: int  # of weights until then


def waiting_learner_host(
    training: Training, keys: dict[str, str], address: str, updates: list[Update]
) -> LearnerHost:
    """A real learner's host, whose updates wait, and are noted in `updates`."""
    from lamarckian_cli.launch.learner_host import LearnerHost
    from lamarckian_cli.learner.batch import Batch
    from lamarckian_cli.learner.learner import Learner

    class WaitingLearner(Learner):
        def learn(self, batch: Batch) -> dict[str, float]:
            staleness = self.version - batch.version
            time.sleep(training.update_s)
            self.version += self.algorithm.optimizer_steps_per_batch
            self.env_steps += batch.steps
            mean, sent = float(staleness.mean()), host.sent_bytes()
            updates.append(Update(ended=time.monotonic(), staleness=mean, sent_bytes=sent))
            return {"staleness_mean": mean, "staleness_max": float(staleness.max())}

    class WaitingLearnerHost(LearnerHost):
        def __init__(self) -> None:
            super().__init__(training.job(), None, 1, "cpu", keys, address)
            for name, seat in self.cast.trained.items():
                self.learners[name] = WaitingLearner(
                    name, seat, self.job.model, self.job.algo, seed=self.job.seed
                )

        def sent_bytes(self) -> int:
            """As `progress` says it, which waits for the update to end."""
            assert self._remote is not None
            return self._remote.sent_bytes

    host = WaitingLearnerHost()
    return host


# ------------------------------------------------------------------ the programs


def serve_learner(given: Mapping[str, Any]) -> None:
    """`make` a host, `start` it, `look` at its updates, `stop` it; or `offer` and `publish` alone."""
    training = Training(**given["training"])
    training.job()  # so that making a host is quick
    reply({"ready": True})
    for question in questions():
        if question["do"] == "make":
            updates: list[Update] = []
            host = waiting_learner_host(training, given["keys"], given["address"], updates)
            reply(host.describe())
        elif question["do"] == "start":
            host.start()
            reply({"started": True})
        elif question["do"] == "look":
            error = None if host.error is None else str(host.error)
            reply({"updates": [asdict(update) for update in updates], "error": error})
        elif question["do"] == "offer":
            publisher = bind_weights(f"tcp://{given['address']}:0", keys=JobKeys.from_dict(given["keys"]))
            reply({"uri": publisher.uri})
        elif question["do"] == "publish":
            publish_on_time(publisher, weights_of(question["bytes"]), {"from_version": 1, **question})
            publisher.close()
            reply({"published": True})
        else:
            host.stop()
            reply({"stopped": True})


def serve_agent(given: Mapping[str, Any]) -> None:
    """`make` an agent, have it `join` the learner, `hang` it, ask for its `status`, `stop` it; `watch` it."""
    from lamarckian_cli.launch.agent_host import AgentHost

    reply({"ready": True})
    for question in questions():
        if question["do"] == "make":
            host = AgentHost(given["keys"], given["address"], 0)
            reply(host.describe())
        elif question["do"] == "join":
            host.join(question["learner"], question["actors"], question["timeout_s"])
            reply(host.status())
        elif question["do"] == "hang":
            host.hang(question["parent"])
            reply(host.status())
        elif question["do"] == "status":
            reply(host.status())
        elif question["do"] == "watch":
            reply({"arrivals": arrivals(host.describe()["channels"]["weights"], question["seconds"])})
        else:
            host.stop()
            reply({"stopped": True})


def arrivals(uri: str, seconds: float) -> list[float]:
    """When versions come through a channel of weights, for so long."""
    reader, until, seen = connect_weights(uri), time.monotonic() + seconds, []
    while (left_s := until - time.monotonic()) > 0:
        if reader.wait(left_s):
            seen.append(time.monotonic())
    reader.close()
    return seen


def serve_actors(given: Mapping[str, Any]) -> None:
    """Actors that `play`, each in a process of its own, until `stop`; or `sample` without a learner."""
    from lamarckian_cli.launch import actor_host  # once, for all that are forked

    assert actor_host
    job = Training(**given["training"]).job()
    job.env.make_mdp().describe()
    playing: list[tuple[BaseProcess, Connection]] = []
    reply({"ready": True})
    for question in questions():
        if question["do"] == "play":
            playing = [
                _forked(
                    _play, job, actor["number"], question["channels"], question["sharing"], actor["begins_s"]
                )
                for actor in question["actors"]
            ]
            reply({"playing": len(playing)})
        elif question["do"] == "sample":
            sampling = [_forked(_sample, job, number, question["seconds"]) for number in question["numbers"]]
            reply({"actors": [_result(*one) for one in sampling]})
        else:
            for process, _ in playing:
                process.terminate()
            reply({"actors": [_result(*one) for one in playing]})


def _forked(work: Any, *arguments: Any) -> tuple[BaseProcess, Connection]:
    """A process that does `work(connection, ...)`."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(theirs, *arguments), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _result(process: BaseProcess, connection: Connection) -> Any:
    """What the process sent before its end."""
    try:
        result = connection.recv() if connection.poll(STOP_TIMEOUT_S) else {"error": "it did not stop"}
    except EOFError:
        result = {"error": f"it ended with status {process.exitcode}"}
    process.join(STOP_TIMEOUT_S)
    connection.close()
    return result


def _play(
    connection: Connection, job: Job, number: int, channels: dict[str, str], sharing: int, begins_s: float
) -> None:
    """A real actor, from so many seconds on: all at once would go on in step for long."""
    from lamarckian_cli.launch.actor_host import ActorHost

    host = ActorHost(job, number, channels, sharing)
    signal.signal(signal.SIGTERM, lambda *_: host.stop())
    time.sleep(begins_s)
    try:
        connection.send(host.run())
    except Exception as error:
        connection.send({"error": f"{type(error).__name__}: {error}"})


def _sample(connection: Connection, job: Job, number: int, seconds: float) -> None:
    """Seconds that each unroll took, with nobody to send it to."""
    from lamarckian_cli.launch.assembly import build_rollout
    from lamarckian_cli.launch.casting import cast_players
    from lamarckian_cli.launch.process import keep_memory, limit_threads

    keep_memory()
    mdp = job.env.make_mdp()
    rollout = build_rollout(job, mdp, cast_players(job, mdp.describe()), actor=number)
    limit_threads(1)

    def ends() -> Iterator[float]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            rollout.step()
            if rollout.take(1):
                yield time.monotonic()

    connection.send({"unrolls_s": np.diff(list(ends())).tolist()})


def main() -> None:
    with contextlib.suppress(PermissionError):
        os.nice(BEFORE_OTHERS)
    given = next(questions())
    roles = {"learner": serve_learner, "agent": serve_agent, "actors": serve_actors}
    roles[given["role"]](given)


if __name__ == "__main__":
    main()
