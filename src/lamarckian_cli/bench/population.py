"""`lamarck bench population`: what many members at once cost, beside a single training of the same size.

A population of N and a single training have the same actors, as many matches in all, and the same
batch for each learner; what is compared is env steps per second that learners take in, summed. The
two alternate, for a machine that is shared changes from minute to minute, and medians count. Only
sampling and learning are measured: not the start, nor the first batches, nor exploit and explore.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lamarckian_cli.bench.machine import machine
from lamarckian_cli.bench.population_rate import Rate, measure
from lamarckian_cli.bench.population_subjects import dealt_matches, population_of, single_of
from lamarckian_cli.bench.population_tune import PEERS, TAKES_S, check_peer, compare_with_tune
from lamarckian_cli.errors import require
from lamarckian_cli.launch.casting import cast_players
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.population.evaluator import member_names
from lamarckian_cli.launch.ray_cluster import available_cores
from lamarckian_cli.launch.settings import Budget
from lamarckian_cli.launch.wiring import job_of

MEMBERS = (4, 8, 16, 64)
MATCHES = 256
MOST_MEMBERS = 1024
CLUSTERS = ("local", "inproc")
START_S = {"local": 12.0, "inproc": 4.0}  # about, of one measurement, the first batches included
# The paper's batch and passes, as for `lamarck bench sampling`; a single training may be as far ahead.
WORKLOAD = ("tuned=none", "cluster.queue_batches=3", "run.dir=unused")
OPTIONS = {"cluster": "--cluster", "cluster.kind": "--cluster", "cluster.matches": "--matches"}
ENDLESS = Budget(env_steps=None, seconds=1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be measured; ConfigError where that cannot be."""

    members: tuple[int, ...] = MEMBERS
    matches: int = MATCHES  # in all
    seconds: float = 8.0  # of each measurement, at least
    repeat: int = 3
    cluster: str = "local"
    compare: str | None = None
    overrides: tuple[str, ...] = ()  # of `lamarck train`

    def __post_init__(self) -> None:
        require(len(self.members) > 0, "--members", "", "give at least one number, such as 4,8")
        for count in self.members:
            require(
                1 <= count <= MOST_MEMBERS, "--members", count, f"each must lie in 1 to {MOST_MEMBERS} (8)"
            )
        require(
            self.matches >= max(self.members),
            "--matches",
            self.matches,
            f"each of {max(self.members)} members needs a match of its own (256)",
        )
        require(1 <= self.seconds < 1e6, "--seconds", self.seconds, "it must be at least 1 (8)")
        require(self.repeat >= 1, "--repeat", self.repeat, "it must be at least 1 (3)")
        require(self.cluster in CLUSTERS, "--cluster", self.cluster, f"choose one of {', '.join(CLUSTERS)}")
        require(
            self.compare is None or self.compare in PEERS,
            "--compare",
            self.compare,
            f"choose from {', '.join(PEERS)}, or leave it out",
        )
        for override in self.overrides:
            key = override.lstrip("+~").partition("=")[0]
            require(key not in OPTIONS, key, override.partition("=")[2], f"give {OPTIONS.get(key)} instead")

    @property
    def takes_s(self) -> float:
        """About how long all of it takes."""
        ours = 2 * len(self.members) * self.repeat * (START_S[self.cluster] + self.seconds)
        return ours + (0.0 if self.compare is None else self.repeat * TAKES_S)

    def job(self) -> Job:
        """The single training."""
        actors = available_cores() if self.cluster == "local" else 1
        own = (f"cluster={self.cluster}", f"cluster.actors={actors}")
        job = job_of([*WORKLOAD, *own, *self.overrides])
        actors = job.cluster.actors or actors
        require(self.matches >= actors, "--matches", self.matches, f"{actors} actors need a match each (256)")
        require(
            job.selfplay.matchmaking == "none",
            "selfplay.matchmaking",
            job.selfplay.matchmaking,
            "opponents that learn would make rates of two runs unlike, so leave it out",
        )
        cluster = replace(job.cluster, matches=-(-self.matches // actors))
        return replace(job, budget=ENDLESS, cluster=cluster)


def measure_population(
    plan: Plan, progress: Callable[[str, float], None] = lambda *_: None
) -> dict[str, Any]:
    """The document of `lamarck bench population --json`; `progress` is told what goes on, and the share."""
    job = plan.job()
    _check_players(job)
    check_peer(plan.compare)
    document: dict[str, Any] = {"kind": "population", "machine": machine(), "results": []}
    whole_s, done_s = plan.takes_s, 0.0
    for count in plan.members:
        rates: list[tuple[Rate, Rate]] = []
        for number in range(plan.repeat):
            progress(f"{count} members, {number} of {plan.repeat}", done_s / whole_s)
            rates.append(_pair(job, count, plan.seconds))
            done_s += 2 * (START_S[plan.cluster] + plan.seconds)
        document["results"].append(_result(plan, job, count, *zip(*rates, strict=True)))
    if plan.compare is not None:
        document["compare"] = compare_with_tune(
            cluster=plan.cluster,
            repeat=plan.repeat,
            say=lambda what, share: progress(what, (done_s + share * (whole_s - done_s)) / whole_s),
        )
    return document


def _check_players(job: Job) -> None:
    """A ConfigError where a population cannot take the place of the policy that trains."""
    mdp = job.env.make_mdp()
    try:
        cast_players(replace(job, members=member_names(1)), mdp.describe())
    finally:
        mdp.close()


def _pair(job: Job, members: int, seconds: float) -> tuple[Rate, Rate]:
    """The single training's rate, and the population's."""
    with single_of(job) as single:
        alone = measure(single, seconds=seconds)
    with population_of(job, members) as population:
        return alone, measure(population, seconds=seconds)


def _result(
    plan: Plan, job: Job, members: int, alone: Sequence[Rate], together: Sequence[Rate]
) -> dict[str, Any]:
    rate = statistics.median(r.env_steps_per_s for r in together)
    single = statistics.median(r.env_steps_per_s for r in alone)
    actors = job.cluster.actors or 1
    return {
        "population": members,
        "env_steps_per_s": rate,
        "of_single": rate / single,
        "single_env_steps_per_s": single,
        "rates": [r.env_steps_per_s for r in together],
        "single_rates": [r.env_steps_per_s for r in alone],
        # of all repetitions, while they were measured
        "learned_env_steps": sum(r.learned_env_steps for r in together),
        "dropped_env_steps": sum(r.dropped_env_steps for r in together),
        "actors": min(r.actors for r in together),
        "matches": dealt_matches(members, actors, job.cluster.matches),
        "single_matches": actors * job.cluster.matches,
        "batch_size": job.algo.batch_size,
        "env": _env_of(plan.overrides),
        "cluster": plan.cluster,
        "seconds": [r.seconds for r in together],
    }


def _env_of(overrides: Sequence[str]) -> str:
    return next((o.removeprefix("env=") for o in overrides if o.startswith("env=")), "pong")
