"""Running mean and deviation, in float64, mergeable batch by batch (Chan et al. 1983)."""

from __future__ import annotations

from typing import Any

import numpy as np


class RunningMoments:
    """Of vectors [D]; starts as mean 0 and deviation 1."""

    def __init__(self, size: int) -> None:
        self.count = 0.0
        self.mean = np.zeros(size)
        self.square = np.zeros(size)  # sum of squared distances from the mean

    def update(self, rows: np.ndarray) -> None:
        """Take in rows [N, D]."""
        if not len(rows):
            return
        mean = rows.mean(0, dtype=np.float64)
        square = ((rows - mean) ** 2).sum(0, dtype=np.float64)
        total = self.count + len(rows)
        shift = mean - self.mean
        self.square = self.square + square + shift**2 * (self.count * len(rows) / total)
        self.mean = self.mean + shift * (len(rows) / total)
        self.count = total

    @property
    def deviation(self) -> np.ndarray:
        """[D]; 1 before the first update and where nothing varies."""
        if self.count < 2:
            return np.ones_like(self.mean)
        deviation = np.sqrt(self.square / self.count)
        return np.where(deviation > 1e-6, deviation, 1.0)

    def state(self) -> dict[str, Any]:
        return {"count": self.count, "mean": self.mean, "square": self.square}

    def restore(self, state: dict[str, Any]) -> None:
        self.count = float(state["count"])
        self.mean, self.square = np.array(state["mean"]), np.array(state["square"])
