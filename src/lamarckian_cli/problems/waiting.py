"""Another problem with the trouble of real evaluations: each takes its time, and some go wrong.

For trying out and testing the asynchronous workflow. How long an evaluation takes, and what
befalls it, follows from its seed alone.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np

from lamarckian_cli.ec.coding import Genomes
from lamarckian_cli.errors import ConfigError, require
from lamarckian_cli.problems.evaluator import Description, Evaluator, Results
from lamarckian_cli.seeding import stream

NAP_S = 3600.0  # a hung evaluation sleeps so long again and again


class Waiting(Evaluator):
    """`inner`, each evaluation after a log-normally distributed time of mean `mean_s`.

    With the probabilities `raises`, `hangs` and `kills` it raises a RuntimeError, never
    returns, or ends its own process by SIGKILL. `marks` is a folder where each such fault leaves a
    file of the seed's name, so that the next try goes well; without one each try fails alike.
    """

    def __init__(
        self,
        *,
        inner: Evaluator,
        mean_s: float = 0.01,
        sigma: float = 1.0,
        raises: float = 0.0,
        hangs: float = 0.0,
        kills: float = 0.0,
        marks: str | None = None,
    ) -> None:
        if not isinstance(inner, Evaluator):
            raise ConfigError(
                f"problem.inner is a {type(inner).__name__}; "
                "it must be a problem, such as problem@problem.inner=zdt1"
            )
        require(mean_s >= 0.0, "problem.mean_s", mean_s, "it must be at least 0 seconds")
        require(sigma >= 0.0, "problem.sigma", sigma, "it must be at least 0; 0 makes all take the same time")
        for name, chance in (("raises", raises), ("hangs", hangs), ("kills", kills)):
            require(0.0 <= chance <= 1.0, f"problem.{name}", chance, "it must lie in [0, 1]")
        total = raises + hangs + kills
        require(
            total <= 1.0,
            "problem.raises",
            raises,
            f"with problem.hangs and problem.kills it is {total:g}, above 1",
        )
        self.inner = inner
        self.mean_s = mean_s
        self.sigma = sigma
        self.faults = {"raises": raises, "hangs": hangs, "kills": kills}
        self.marks = None if marks is None else Path(marks)

    def describe(self) -> Description:
        return self.inner.describe()

    def initialize(self, n: int, rng: np.random.Generator) -> Genomes:
        return self.inner.initialize(n, rng)

    def evaluate(self, genomes: Genomes, seeds: np.ndarray) -> Results:
        """Results of `inner`, after what the evaluations take one after the other."""
        for seed in seeds:
            duration_s, fault = self.fate(int(seed))
            time.sleep(duration_s)
            if fault and self._strikes(int(seed)):
                self._befall(fault, int(seed))
        return self.inner.evaluate(genomes, seeds)

    def front(self) -> np.ndarray | None:
        return self.inner.front()

    def optimum(self) -> float | None:
        return self.inner.optimum()

    def fate(self, seed: int) -> tuple[float, str]:
        """How many seconds the evaluation of that seed takes; `raises`, `hangs`, `kills` or nothing."""
        rng = stream(seed, "waiting")
        # The mean of exp(sigma z) is exp(sigma^2 / 2).
        duration_s = self.mean_s * float(np.exp(self.sigma * rng.standard_normal() - 0.5 * self.sigma**2))
        drawn = rng.random()
        for fault, chance in self.faults.items():
            if drawn < chance:
                return duration_s, fault
            drawn -= chance
        return duration_s, ""

    def _strikes(self, seed: int) -> bool:
        """Whether a fault happens: always without marks, else the first time."""
        if self.marks is None:
            return True
        self.marks.mkdir(parents=True, exist_ok=True)
        try:
            (self.marks / str(seed)).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _befall(self, fault: str, seed: int) -> None:
        if fault == "raises":
            raise RuntimeError(f"the evaluation of seed {seed} fails, as problem.raises asks for")
        if fault == "kills":
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            time.sleep(NAP_S)
