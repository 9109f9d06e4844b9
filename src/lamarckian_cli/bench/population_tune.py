"""A population of Ray Tune over RLlib, beside an evolution of ours on the same task, in turns.

Both are population based training of PPO on CartPole, population 4: batch 8192, one pass, layers
of 256 and 128 units, learning rate and entropy weight mutated by 0.8 or 1.2 every 49,152 env steps,
exploit and explore included. Tune runs with 1, 2 and 4 members at once, RLlib's processes sharing
the cores, and its best counts. It runs in a program of its own, `population_tune_program.py`.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator
from typing import Any

from lamarckian_cli.bench.population_rate import measure
from lamarckian_cli.bench.population_subjects import evolution_of
from lamarckian_cli.bench.program import Program
from lamarckian_cli.errors import MissingPackage, RunError, pip_install
from lamarckian_cli.launch.ray_cluster import available_cores

PEERS = ("tune",)
PACKAGE = "'ray[rllib]'"  # as a shell takes it
PROGRAM = "lamarckian_cli.bench.population_tune_program"
POPULATION = 4
AT_ONCE = (1, 2, 4)
BATCH = 8192
INTERVAL = 6  # batches from one exploit of a member to its next
SECONDS = 45.0  # of each measurement: with 1 at once members take turns of many seconds
START_S = 25.0  # about
TAKES_S = (1 + len(AT_ONCE)) * (SECONDS + START_S)
IMPORT_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 600.0
OURS = (
    *("evo=pbt", "env=cartpole", f"evo.population={POPULATION}", "evo.evaluations=null"),
    *("budget.seconds=1e9", f"problem.env_steps={BATCH * INTERVAL}", f"algo.batch_size={BATCH}"),
    *("algo.reuse=1", "run.dir=unused"),
)


def check_peer(peer: str | None) -> None:
    """MissingPackage where Tune and RLlib are asked for, and cannot be imported."""
    if peer is None:
        return
    with _program() as (_, missing):
        if missing is not None:
            raise MissingPackage(
                f"--compare tune needs Ray Tune and RLlib, which cannot be imported here ({missing}): "
                f"{pip_install(PACKAGE)}"
            )


def compare_with_tune(
    *, cluster: str, repeat: int, say: Callable[[str, float], None]
) -> list[dict[str, Any]]:
    """One row for us, and one for each number of members that Tune trains at once."""
    actors = available_cores() if cluster == "local" else 1
    overrides = [*OURS, f"cluster={cluster}", f"cluster.actors={actors}", f"cluster.matches={256 // actors}"]
    ours: list[float] = []
    theirs: dict[int, list[float]] = {at_once: [] for at_once in AT_ONCE}
    for number in range(repeat):
        say(f"evolution of {POPULATION}, {number} of {repeat}", number / repeat)
        with evolution_of(overrides) as evolution:
            ours.append(measure(evolution, seconds=SECONDS).env_steps_per_s)
        for turn, (at_once, rates) in enumerate(theirs.items(), 1):
            share = (number + turn / (1 + len(AT_ONCE))) / repeat
            say(f"Ray Tune, {at_once} of {POPULATION} at once, {number} of {repeat}", share)
            rates.append(_tune(at_once))
    return comparison(ours, theirs, setting=f"cluster={cluster}")


def comparison(ours: list[float], theirs: dict[int, list[float]], *, setting: str) -> list[dict[str, Any]]:
    """Rows from rates: medians, and in ours how it stands to the best of theirs."""
    medians = {at_once: statistics.median(rates) for at_once, rates in theirs.items()}
    own = statistics.median(ours)
    scenario = f"pbt cartpole, population {POPULATION}"
    rows: list[dict[str, Any]] = [
        {
            "scenario": scenario,
            "peer": "lamarck",
            "setting": setting,
            "env_steps_per_s": own,
            "of_best_peer": own / max(medians.values()),
            "rates": ours,
        }
    ]
    for at_once, rates in theirs.items():
        rows.append(
            {
                "scenario": scenario,
                "peer": "ray tune, rllib ppo",
                "setting": f"{at_once} at once",
                "env_steps_per_s": medians[at_once],
                "of_best_peer": medians[at_once] / max(medians.values()),
                "rates": rates,
            }
        )
    return rows


def _tune(at_once: int) -> float:
    """Env steps per second of Tune's population, summed."""
    question = {
        "population": POPULATION,
        "at_once": at_once,
        "batch": BATCH,
        "interval": INTERVAL,
        "seconds": SECONDS,
        "cores": available_cores(),
    }
    with _program() as (program, _):
        answer = program.ask(question, ANSWER_TIMEOUT_S)
    if "error" in answer:
        raise RunError(f"Ray Tune failed with {at_once} at once: {answer['error']}")
    return float(answer["env_steps"] / answer["seconds"])


@contextlib.contextmanager
def _program() -> Iterator[tuple[Program, str | None]]:
    """Tune's program, for one measurement, and what it lacks: with a job of ours all that we started ends."""
    program = Program(PROGRAM, "Ray Tune")
    try:
        yield program, program.answer(IMPORT_TIMEOUT_S)["missing"]
    finally:
        program.close()
