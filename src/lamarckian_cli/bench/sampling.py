"""`lamarck bench sampling`: env steps per second of a whole training, beside what its parts allow.

    limit = cores / (1 / step_rate + 1 / forward_rate + 1 / update_rate)

is what the machine could reach if stepping the environment, choosing actions and updating
the network were all there is, and shared its cores perfectly. `of_limit` is how much of that
a training over Ray and ZeroMQ takes in at its learner. The rates are measured before and
after the training, since the machine may change meanwhile, and averaged.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psutil

from lamarckian_cli.bench.machine import machine
from lamarckian_cli.bench.rates import Rates
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.local import LocalTraining
from lamarckian_cli.launch.settings import Budget
from lamarckian_cli.launch.wiring import job_of

WARM_UP_S = 5.0
RATE_S = 2.0
# The paper's: batch 8192, one pass. 128 matches complete a whole batch at once, so more may wait.
WORKLOAD = ("tuned=none", "cluster.matches=128", "cluster.queue_batches=3", "run.dir=unused")
WORKLOADS = {"pong_image": ("cluster.matches=32", "algo.batch_size=4096")}


def measure_sampling(overrides: Sequence[str], *, seconds: float) -> dict[str, Any]:
    """Train as `overrides` say and measure; the document of `lamarck bench sampling --json`."""
    env = next((o.removeprefix("env=") for o in overrides if o.startswith("env=")), "pong")
    job = job_of([*WORKLOAD, *WORKLOADS.get(env, ()), *overrides])
    job = replace(job, budget=Budget(env_steps=None, seconds=WARM_UP_S + seconds))
    rates = Rates(job)
    try:
        before = rates.measure(RATE_S)
        trained = _train(job, seconds)
        after = rates.measure(RATE_S)
    finally:
        rates.close()
    parts = {name: statistics.mean((before[name], after[name])) for name in before}
    cores = machine()["cores"]
    limit = cores / sum(1 / rate for rate in parts.values())
    result = {
        "env": env,
        "env_steps_per_s": trained["env_steps_per_s"],
        "limit": limit,
        "of_limit": trained["env_steps_per_s"] / limit,
        **parts,
        **{
            name: trained[name]
            for name in ("staleness_mean", "staleness_paper", "cpu_percent", "memory_bytes")
        },
        "cores": cores,
        "seconds": seconds,
        "return": trained["return"],
        "workload": {
            "batch_size": job.algo.batch_size,
            "reuse": job.algo.reuse,
            "unroll": job.algo.unroll,
            "actors": job.cluster.actors,
            "matches": job.cluster.matches,
            "precision": "bf16" if rates.learner.bf16 else "fp32",
        },
    }
    return {"kind": "sampling", "machine": machine(), "results": [result]}


def _train(job: Job, seconds: float) -> dict[str, Any]:
    training = LocalTraining(job, threading.Event())
    try:
        training.start(None)
        while training.progress()["first_update_at"] is None:
            time.sleep(0.05)
        time.sleep(WARM_UP_S)
        processes = {name: psutil.Process(pid) for name, pid in training.pids().items()}
        first, began = training.progress()["counters"], time.perf_counter()
        cpu_before = {name: _cpu_s(p) for name, p in processes.items()}
        time.sleep(seconds)
        last, elapsed = training.progress()["counters"], time.perf_counter() - began
        cpu = {name: 100 * (_cpu_s(p) - cpu_before[name]) / elapsed for name, p in processes.items()}
        memory = {name: p.memory_info().rss for name, p in processes.items()}
    finally:
        training.stop()
    batches = max(1, last["batches"] - first["batches"])
    staleness = (last["staleness_sum"] - first["staleness_sum"]) / batches
    recent = [row["return"] for row in next(iter(last["recent"].values()))]
    return {
        "env_steps_per_s": (last["env_steps"] - first["env_steps"]) / elapsed,
        "staleness_mean": staleness,
        # as the paper counts it: synchronous sampling is 1, a batch is one step
        "staleness_paper": 1 + staleness / job.algo.optimizer_steps_per_batch,
        "cpu_percent": cpu,
        "memory_bytes": memory,
        "return": statistics.mean(recent) if recent else None,
    }


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
