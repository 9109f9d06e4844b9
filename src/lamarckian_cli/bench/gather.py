"""`lamarck bench gather`: unrolls from the actors of one machine to a learner, by three ways.

    node-agent    to the machine's node agent over Unix sockets, from there over TCP with keys
    direct        to the learner over Unix sockets, as on the learner's own machine
    ray-calls     calls of a learner actor of Ray with the arrays, of which a few are in flight

Actors send one message again and again, of unrolls that a real rollout recorded, and do nothing
else. Ours are unpacked and checked as in a training. The ways take turns.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, Protocol

from lamarckian_cli.bench.gather_process import DRAIN_TIMEOUT_S, Sample, sending_s
from lamarckian_cli.bench.gather_ray import RayGather
from lamarckian_cli.bench.local_machine import guarded_folder, local_ray
from lamarckian_cli.bench.machine import machine
from lamarckian_cli.bench.program import Program
from lamarckian_cli.bench.sampling import WORKLOAD, WORKLOADS
from lamarckian_cli.errors import RunError, require
from lamarckian_cli.launch.assembly import build_learners, build_rollout, message_unrolls
from lamarckian_cli.launch.casting import cast_players
from lamarckian_cli.launch.wiring import job_of
from lamarckian_cli.transport.keys import JobKeys
from lamarckian_cli.transport.packing import pack_unrolls

PROGRAM = "lamarckian_cli.bench.gather_process"
ENVS = ("pong", "pong_image")
ANY_PORT = "tcp://127.0.0.1:0"
START_TIMEOUT_S = 120.0
MAX_ACTORS = 256
WAYS = ("node-agent", "direct", "ray-calls")
START_S = 30.0  # about what it takes until all actors run, where two cores have other work too


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be measured; ConfigError where that cannot be."""

    actors: int = 8
    seconds: float = 5.0
    repeat: int = 3
    envs: tuple[str, ...] = ENVS

    def __post_init__(self) -> None:
        require(1 <= self.actors <= MAX_ACTORS, "--actors", self.actors, f"it must be from 1 to {MAX_ACTORS}")
        require(0 < self.seconds <= 3600, "--seconds", self.seconds, "it must be above 0 and at most 3600")
        require(self.repeat >= 1, "--repeat", self.repeat, "it must be at least 1")

    @property
    def measurements(self) -> int:
        return len(self.envs) * len(WAYS) * self.repeat

    @property
    def takes_s(self) -> float:
        """About how long all of it takes."""
        return START_S + self.measurements * sending_s(self.seconds)


class Way(Protocol):
    """One way from actors to a learner."""

    what: str

    def rate(self, sample: Sample, seconds: float) -> float:
        """Messages per second that the learner takes, over so long."""


def measure_gather(plan: Plan, tell: Callable[[str, float], None] = lambda *_: None) -> dict[str, Any]:
    """The document of `lamarck bench gather --json`; `tell` gets what goes on, and the share that is done."""
    results: list[dict[str, Any]] = []
    done = 0
    with guarded_folder() as folder, ExitStack() as stack:
        tell("recording unrolls", 0.0)
        samples = {env: sample_of(env, folder) for env in plan.envs}
        tell(f"starting {len(WAYS) * plan.actors} actors", 0.0)
        ways = stack.enter_context(ways_of(plan.actors, folder))
        for env, sample in samples.items():
            rates: dict[str, list[float]] = {way.what: [] for way in ways}
            for _ in range(plan.repeat):
                for way in ways:
                    tell(f"{done + 1} of {plan.measurements}: {env}, {way.what}", done / plan.measurements)
                    rates[way.what].append(way.rate(sample, plan.seconds))
                    done += 1
            results += _results(env, sample, plan, {what: statistics.median(r) for what, r in rates.items()})
    return {"kind": "gather", "machine": machine(), "results": results}


def sample_of(env: str, folder: str) -> Sample:
    """Unrolls of a rollout with a beginner's weights, as many as an actor sends at once."""
    overrides = [*WORKLOAD, *WORKLOADS.get(env, ()), f"env={env}"]
    job = job_of(overrides)
    mdp = job.env.make_mdp()
    cast = cast_players(job, mdp.describe())
    learners = build_learners(job, cast)
    rollout = build_rollout(job, mdp, cast, actor=0)
    try:
        for policy in rollout.policies:
            policy.load(learners[policy.name].weights())
        taken = None
        while taken is None:
            rollout.step()
            taken = next(iter(rollout.take(message_unrolls(job, cast))), None)
        message = pack_unrolls(taken, rollout.pop_results())
    finally:
        rollout.close()
    return Sample.store(
        message,
        f"{folder}/{env}",
        overrides=overrides,
        unrolls=len(taken.reward),
        length=job.algo.unroll,
    )


@contextlib.contextmanager
def ways_of(actors: int, folder: str) -> Iterator[list[Way]]:
    """All three, with so many actors each."""
    with ExitStack() as stack:
        agent = stack.enter_context(closing(ChannelGather("node-agent", folder, actors)))
        direct = stack.enter_context(closing(ChannelGather("direct", folder, actors)))
        yield [agent, direct, RayGather(stack.enter_context(local_ray()), actors)]


class ChannelGather:
    """Our own channels, with a node agent between or without."""

    def __init__(self, what: str, folder: str, actors: int) -> None:
        self.what = what
        self._programs: list[Program] = []
        try:
            self._learner = self._program("learner")
            self._agent = self._program("node agent") if what == "node-agent" else None
            self._actors = [self._program(f"actor {number}") for number in range(actors)]
            self._join(folder)
        except BaseException:
            self.close()
            raise

    def rate(self, sample: Sample, seconds: float) -> float:
        question = {"sample": sample.as_dict(), "seconds": seconds}
        self._learner.ask(question, START_TIMEOUT_S)
        for actor in self._actors:
            actor.tell(question)
        timeout_s = sending_s(seconds) + DRAIN_TIMEOUT_S
        sent = sum(actor.answer(timeout_s)["sent"] for actor in self._actors)
        answer = self._learner.ask({"sent": sent, "seconds": seconds}, 2 * DRAIN_TIMEOUT_S)
        if answer["taken"] != sent:
            raise RunError(f"{self.what}: of {sent} messages {answer['taken']} arrived; {answer['error']}")
        return float(answer["rate"])

    def close(self) -> None:
        for program in self._programs:
            program.close()

    def _program(self, role: str) -> Program:
        program = Program(PROGRAM, f"the {role} of {self.what}")
        self._programs.append(program)
        return program

    def _join(self, folder: str) -> None:
        uri, keys = f"ipc://{folder}/{self.what}", JobKeys.make().to_dict()
        if self._agent is None:
            self._learner.ask({"role": "learner", "uri": uri, "keys": None}, START_TIMEOUT_S)
        else:
            learner = self._learner.ask({"role": "learner", "uri": ANY_PORT, "keys": keys}, START_TIMEOUT_S)
            self._agent.ask(
                {
                    "role": "agent",
                    "uri": uri,
                    "learner": learner["uri"],
                    "keys": keys,
                    "actors": len(self._actors),
                },
                START_TIMEOUT_S,
            )
        for actor in self._actors:
            actor.tell({"role": "actor", "uri": uri})
        for actor in self._actors:
            actor.answer(START_TIMEOUT_S)


def _results(env: str, sample: Sample, plan: Plan, rates: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    ray = rates[RayGather.what]
    for what, rate in rates.items():
        yield {
            "what": what,
            "env": env,
            "actors": plan.actors,
            "unrolls_per_s": rate * sample.unrolls,
            "env_steps_per_s": rate * sample.unrolls * sample.length,
            "mb_per_s": rate * sample.message_bytes / 1e6,
            "message_bytes": sample.message_bytes,
            "of_ray": rate / ray if ray else None,
        }
