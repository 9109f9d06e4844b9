"""`lamarck bench scaling --check`: the simulation beside real processes on real links.

Games and updates only wait, so that many hosts fit on few cores. On the fewest hosts it is measured
how long an unroll takes, how fast a link is and how large things are; what a message costs is
measured beside them. With these the simulation says what flat and tree come to on every number of
hosts, and then the hosts are asked. Nothing is fitted to what is compared.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from lamarckian_cli.bench.calibration import forward_rate, message_sizes
from lamarckian_cli.bench.calibration_transport import measure_transport
from lamarckian_cli.bench.hosts import Hosts, available
from lamarckian_cli.bench.machine import machine
from lamarckian_cli.bench.scaling_hosts import Cluster, Measured
from lamarckian_cli.bench.scaling_process import SEAT, Training
from lamarckian_cli.bench.simulation import Costs, Figures, Setup, simulate
from lamarckian_cli.bench.simulation_network import Transport
from lamarckian_cli.errors import ClusterError, require
from lamarckian_cli.seeding import stream
from lamarckian_cli.transport.tree import Wire

LAYOUTS = ("flat", "tree")
COMPARED = ("env_steps_per_s", "staleness_mean", "egress_bytes_per_s")
WITHIN = 0.2
SIMULATIONS = 5  # of which a prediction is the mean
SAMPLE_S, FULL_LINK_S = 5.0, 10.0
MAX_HOSTS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What is checked; ConfigError where it cannot be."""

    hosts: tuple[int, ...] = (
        4,
        8,
        16,
    )  # beside the learner's; costs are measured on the first number of them
    actors: int = 2  # on each
    mbit_per_s: float = 25.0
    fair_links: bool = True  # that serve connections in turn; False: plain queues
    training: Training = field(default_factory=Training)
    warm_up_s: float = 8.0
    seconds: float = 20.0
    seed: int = 0

    def __post_init__(self) -> None:
        require(bool(self.hosts), "--hosts", list(self.hosts), "give at least one number: --hosts 4,8,16")
        for count in self.hosts:
            require(1 <= count <= MAX_HOSTS, "--hosts", count, f"each must be from 1 to {MAX_HOSTS}")
        require(self.seed >= 0, "--seed", self.seed, "it must be 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What the simulation is given."""

    costs: Costs
    deviation: float
    unevenness: float
    wire: Wire
    transport: Transport


def check_scaling(
    check: Check, *, progress: Callable[[str, float], None] = lambda what, share: None
) -> dict[str, Any]:
    """Measure, predict and compare; the document. Raises ClusterError where no hosts can be made."""
    reason = available()
    if reason:
        raise ClusterError(
            f"--check needs hosts of namespaces, and none can be made on this machine: {reason}"
        )
    this, load = machine(), os.getloadavg()[0]
    progress(f"starting {max(check.hosts) + 1} hosts", 0.0)
    results: list[dict[str, Any]] = []
    points = [(count, layout) for count in check.hosts for layout in LAYOUTS]
    with Hosts(max(check.hosts) + 1, mbit_per_s=check.mbit_per_s) as hosts:
        cluster = Cluster(
            hosts,
            check.training,
            actors=check.actors,
            mbit_per_s=check.mbit_per_s if check.fair_links else None,
        )
        try:
            progress("measuring costs", 0.0)
            inputs = _measured_costs(cluster, check)
            for count, layout in points:
                progress(f"{count} hosts, {layout}", len(results) / len(points))
                measured = cluster.measure(
                    count,
                    layout,
                    warm_up_s=check.warm_up_s,
                    seconds=check.seconds,
                    rng=stream(check.seed, f"{count} {layout}"),
                )
                results.append(
                    _result(check, count, layout, measured, predicted(inputs, check, layout, count))
                )
        finally:
            cluster.close()
    return {
        "kind": "scaling",
        "machine": this,
        "results": results,
        "inputs": {
            "load_average": load,
            "network": {
                **asdict(inputs.wire),
                "mbit_per_s": check.mbit_per_s,
                "fair_links": check.fair_links,
            },
            "transport": asdict(inputs.transport),
            "workloads": {
                "waiting": {
                    "costs": asdict(inputs.costs),
                    "deviation": inputs.deviation,
                    "unevenness": inputs.unevenness,
                    "queue_batches": check.training.queue_batches,
                    "actors_per_host": check.actors,
                    "measured_on_hosts": check.hosts[0],
                    "declared": ["update_s"],
                    "fitted": [],
                }
            },
        },
    }


def predicted(inputs: Inputs, check: Check, layout: str, hosts: int) -> dict[str, float]:
    """What the simulation says of COMPARED, and of the processor time, mean over some seeds."""
    setup = Setup(
        cores=hosts * check.actors,
        cores_per_machine=check.actors,
        layout=layout,
        queue_batches=check.training.queue_batches,
        deviation=inputs.deviation,
        unevenness=inputs.unevenness,
    )

    def run(seed: int) -> Figures:
        return simulate(inputs.costs, setup, wire=inputs.wire, transport=inputs.transport, seed=seed)

    runs = [asdict(run(check.seed + number)) for number in range(SIMULATIONS)]
    return {key: statistics.mean(figures[key] for figures in runs) for key in COMPARED}


def compared(predicted: float, measured: float) -> dict[str, Any]:
    """One figure of both."""
    ratio = measured / predicted
    return {
        "predicted": predicted,
        "measured": measured,
        "ratio": ratio,
        "within": abs(ratio - 1) <= WITHIN,
    }


# ------------------------------------------------------------------ parts of the check


def _measured_costs(cluster: Cluster, check: Check) -> Inputs:
    training, hosts = check.training, check.hosts[0]
    job = training.job()
    transport = measure_transport()
    forward = forward_rate(job, SEAT)
    unrolls_s = cluster.unroll_times(hosts, SAMPLE_S)
    mean_s = statistics.mean(unrolls_s)
    per_step, weights = message_sizes(job, SEAT)
    costs = Costs(
        step_rate=1 / (mean_s / training.unroll - 1 / forward),
        forward_rate=forward,
        bytes_per_step=per_step,
        weights_bytes=weights,
        matches=job.cluster.matches,
        unroll=training.unroll,
        batch_size=training.batch_size,
        optimizer_steps=job.algo.optimizer_steps_per_batch,
        update_s=training.update_s,
        step_cpu=0.0,
    )
    deviation = statistics.stdev(unrolls_s) / mean_s
    wire, unevenness = cluster.full_link(hosts, round(weights), FULL_LINK_S)
    return Inputs(costs=costs, deviation=deviation, unevenness=unevenness, wire=wire, transport=transport)


def _result(
    check: Check, hosts: int, layout: str, measured: Measured, predicted: dict[str, float]
) -> dict[str, Any]:
    figures = asdict(measured)
    optimizer_steps = check.training.job().algo.optimizer_steps_per_batch
    return {
        "workload": "waiting",
        "layout": layout,
        "cores": hosts * check.actors,
        "machines": hosts,
        **figures,
        "staleness_paper": 1 + measured.staleness_mean / optimizer_steps,
        "waiting_unrolls": measured.sampled_unrolls - measured.learned_unrolls,
        "calibrated": hosts == check.hosts[0],
        "check": {key: compared(predicted[key], figures[key]) for key in COMPARED},
    }
