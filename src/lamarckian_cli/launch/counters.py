"""What a training has done so far: counted, averaged over recent matches, and reported."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from lamarckian_cli.records import MatchResult


class Counters:
    """Env steps, frames, matches and the running scores of every policy."""

    def __init__(self, policies: list[str], window: int) -> None:
        self.env_steps = 0  # taken in by the learner
        self.frames = 0
        self.matches = 0
        self.batches = 0
        self.seconds = 0.0
        self.staleness_sum = 0.0
        self.staleness_max = 0.0
        self.best_return: float | None = None
        self.window = window
        self.recent: dict[str, deque[dict[str, float]]] = {name: deque(maxlen=window) for name in policies}

    def add_batch(self, env_steps: int, frames: int, report: dict[str, float]) -> None:
        self.env_steps += env_steps
        self.frames += frames
        self.batches += 1
        self.staleness_sum += report["staleness_mean"]
        self.staleness_max = max(self.staleness_max, report["staleness_max"])

    def add_results(self, results: list[MatchResult]) -> None:
        for result in results:
            if result.policy in self.recent:
                self.matches += 1
                self.recent[result.policy].append(result.result)
        first = next(iter(self.recent.values()))
        # A mean over few early matches would be lucky; a best is one over a full window.
        if len(first) == self.window:
            mean = float(np.mean([r["return"] for r in first]))
            self.best_return = mean if self.best_return is None else max(self.best_return, mean)

    @property
    def staleness_mean(self) -> float:
        return self.staleness_sum / max(1, self.batches)

    def means(self, policy: str) -> dict[str, float]:
        """The mean of each number that recent matches of `policy` reported."""
        recent = self.recent[policy]
        names = recent[-1].keys() if recent else ()
        return {name: float(np.mean([r[name] for r in recent if name in r])) for name in names}

    def last_return(self) -> float | None:
        return self.means(next(iter(self.recent))).get("return") if self.recent else None

    def full(self) -> bool:
        """Whether the first policy's window is full, so that a score can end the run."""
        return len(next(iter(self.recent.values()))) == self.window

    def state(self) -> dict[str, Any]:
        plain = {name: value for name, value in vars(self).items() if name != "recent"}
        return {**plain, "recent": {name: list(rows) for name, rows in self.recent.items()}}

    def restore(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            if name == "recent":
                for policy, rows in value.items():
                    self.recent[policy].extend(rows)
            elif name != "window":
                setattr(self, name, value)
