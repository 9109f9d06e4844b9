"""How much each past opponent still teaches (Berner et al. 2019, "Dota 2 with large scale deep RL").

Past opponents are met by the softmax of their qualities. One that is beaten loses quality,
the more the more rarely it is met, so that qualities fall at a rate that does not depend on how
often they are drawn; one that wins, or draws, keeps it. A new one starts with the highest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import softmax

RAREST = 1e-9  # chance below which a beaten opponent counts as met this often


class Quality:
    """A number for each opponent; `step` is the paper's learning rate."""

    def __init__(self, step: float = 0.01) -> None:
        if step <= 0:
            raise ValueError(f"Quality(step={step}): it must be above 0")
        self.step = step
        self._quality: dict[str, float] = {}

    def __getitem__(self, name: str) -> float:
        return self._quality[name]

    def add(self, name: str) -> None:
        """A new opponent, as good as the best."""
        self._quality[name] = max(self._quality.values(), default=0.0)

    def forget(self, name: str) -> None:
        """Take an opponent out."""
        del self._quality[name]

    def of(self, names: Sequence[str]) -> np.ndarray:
        """[n] float64: the qualities of these."""
        return np.array([self._quality[name] for name in names], np.float64)

    def beaten(self, name: str, among: Sequence[str]) -> None:
        """`name` lost a match; it was drawn from `among`: q -= step / (N p)."""
        chance = max(float(softmax(self.of(among))[list(among).index(name)]), RAREST)
        self._quality[name] -= self.step / (len(among) * chance)

    def state(self) -> dict[str, Any]:
        return {"names": list(self._quality), "quality": self.of(list(self._quality))}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state()`."""
        self._quality = {
            str(name): float(value) for name, value in zip(state["names"], state["quality"], strict=True)
        }
