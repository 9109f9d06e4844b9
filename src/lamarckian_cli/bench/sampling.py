"""`lamarck bench sampling`: env steps per second of a whole training, beside what its parts allow.

    limit = cores / (1 / step_rate + 1 / forward_rate + 1 / update_rate)

is what the machine could reach if stepping the environment, choosing actions and updating
the network were all there is, and shared its cores perfectly. `of_limit` is how much of that
a training over Ray and ZeroMQ takes in at its learner. A machine that is shared changes from
second to second, so the two alternate: the training is held while the rates are measured.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import psutil

from lamarckian_cli.bench.machine import machine
from lamarckian_cli.bench.rates import RatesOnEveryCore
from lamarckian_cli.launch.distributed import DistributedTraining
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.settings import Budget
from lamarckian_cli.launch.wiring import job_of

WARM_UP_S = 5.0
SLICE_S = 4.0  # of training between two measurements of the rates
RATE_S = 0.5
PARTS = ("step_rate", "forward_rate", "update_rate")
# The paper's: batch 8192, one pass. 128 matches complete a whole batch at once, so more may wait.
WORKLOAD = ("tuned=none", "cluster.matches=128", "cluster.queue_batches=3", "run.dir=unused")
WORKLOADS = {"pong_image": ("cluster.matches=32", "algo.batch_size=4096")}
# Football's network and passes are the paper's too; its batch is not, so that updates come often.
FOOTBALL = (
    *("cluster.matches=8", "algo.batch_size=2048", "algo.reuse=2"),
    *("model.policy=[512,256,128]", "model.critic=[128,64]"),
)


def measure_sampling(overrides: Sequence[str], *, seconds: float) -> dict[str, Any]:
    """Train as `overrides` say and measure; the document of `lamarck bench sampling --json`."""
    env = next((o.removeprefix("env=") for o in overrides if o.startswith("env=")), "pong")
    own = FOOTBALL if env.partition("/")[0] == "gfootball" else WORKLOADS.get(env, ())
    workload = [*WORKLOAD, *own, *overrides]
    job = replace(job_of(workload), budget=Budget(env_steps=None, seconds=WARM_UP_S + seconds))
    this = machine()
    rates = RatesOnEveryCore(workload, this["cores"])
    try:
        trained, parts = _alternate(job, rates, seconds)
    finally:
        rates.close()
    limit = this["cores"] / sum(1 / rate for rate in parts.values())
    result = {
        "env": env,
        "env_steps_per_s": trained["env_steps_per_s"],
        "limit": limit,
        "of_limit": trained["env_steps_per_s"] / limit,
        # of what stepping alone would reach on all cores
        "of_stepping": trained["env_steps_per_s"] / (this["cores"] * parts["step_rate"]),
        **parts,
        **trained,
        "cores": this["cores"],
        "seconds": seconds,
        "workload": {
            "batch_size": job.algo.batch_size,
            "reuse": job.algo.reuse,
            "unroll": job.algo.unroll,
            "actors": job.cluster.actors,
            "matches": job.cluster.matches,
            "precision": rates.precision,
        },
    }
    return {"kind": "sampling", "machine": this, "results": [result]}


def _alternate(job: Job, rates: RatesOnEveryCore, seconds: float) -> tuple[dict[str, Any], dict[str, float]]:
    """Slices of training, and the rates before, between and after them."""
    training = DistributedTraining(job, threading.Event())
    measured = []
    try:
        training.start(None)
        while training.progress()["since_first_update_s"] is None:
            time.sleep(0.05)
        time.sleep(WARM_UP_S)
        watch = _Watch(training)
        count = max(1, round(seconds / SLICE_S))
        for _ in range(count):
            with _held(training):
                measured.append(rates.measure(RATE_S))
            watch.look_for(seconds / count)
        with _held(training):
            measured.append(rates.measure(RATE_S))
        trained = watch.report(job.algo.optimizer_steps_per_batch)
    finally:
        training.stop()
    return trained, {part: statistics.harmonic_mean([m[part] for m in measured]) for part in PARTS}


@contextlib.contextmanager
def _held(training: DistributedTraining) -> Iterator[None]:
    """The training's processes take no processor time meanwhile."""
    held = [process for pid in training.pids().values() for process in _family(pid)]
    try:
        for process in held:
            process.suspend()
        yield
    finally:
        for process in held:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


class _Watch:
    """Adds up what the training does while it is looked at."""

    def __init__(self, training: DistributedTraining) -> None:
        self._training = training
        self._seconds = 0.0
        self._counts = dict.fromkeys(("env_steps", "batches", "staleness_sum"), 0.0)
        self._cpu_s: dict[str, float] = {}
        self._memory: dict[str, int] = {}
        self._last: dict[str, Any] = {}

    def look_for(self, seconds: float) -> None:
        families = {name: _family(pid) for name, pid in self._training.pids().items()}
        first, began = self._training.progress()["counters"], time.perf_counter()
        cpu_before = {name: _cpu_s(family) for name, family in families.items()}
        time.sleep(seconds)
        last, elapsed = self._training.progress()["counters"], time.perf_counter() - began
        for name, family in families.items():
            self._cpu_s[name] = self._cpu_s.get(name, 0.0) + _cpu_s(family) - cpu_before[name]
            self._memory[name] = sum(process.memory_info().rss for process in family)
        for name in self._counts:
            self._counts[name] += last[name] - first[name]
        self._seconds += elapsed
        self._last = last

    def report(self, steps_per_batch: int) -> dict[str, Any]:
        staleness = self._counts["staleness_sum"] / max(1, self._counts["batches"])
        recent = [row["return"] for row in next(iter(self._last["recent"].values()))]
        return {
            "env_steps_per_s": self._counts["env_steps"] / self._seconds,
            "staleness_mean": staleness,
            # as the paper counts it: synchronous sampling is 1, a batch is one step
            "staleness_paper": 1 + staleness / steps_per_batch,
            "cpu_percent": {name: 100 * cpu / self._seconds for name, cpu in self._cpu_s.items()},
            "memory_bytes": self._memory,
            "return": statistics.mean(recent) if recent else None,
        }


def _family(pid: int) -> list[psutil.Process]:
    """A process and those that it started, such as engines of games."""
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _cpu_s(family: list[psutil.Process]) -> float:
    times = [process.cpu_times() for process in family]
    return sum(float(t.user + t.system) for t in times)
