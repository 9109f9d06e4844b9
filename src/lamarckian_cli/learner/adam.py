"""Adam (Kingma & Ba 2015, algorithm 1) over one flat vector.

Written out, because `torch.optim` takes three seconds to import, which is most of a start.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


class Adam:
    """Steps `vector` [P] in place, against `gradient` [P]."""

    def __init__(
        self,
        vector: Tensor,
        gradient: Tensor,
        *,
        lr: float,
        epsilon: float,
        beta1: float = 0.9,
        beta2: float = 0.999,
    ) -> None:
        self.lr = lr
        self.steps = 0
        self._vector, self._gradient = vector, gradient
        self.epsilon = epsilon
        self._beta1, self._beta2 = beta1, beta2
        self._mean = torch.zeros_like(vector)  # m_t
        self._square = torch.zeros_like(vector)  # v_t

    @torch.no_grad()
    def step(self) -> None:
        self.steps += 1
        self._mean.lerp_(self._gradient, 1 - self._beta1)
        self._square.mul_(self._beta2).addcmul_(self._gradient, self._gradient, value=1 - self._beta2)
        unbias1 = 1 - self._beta1**self.steps
        unbias2 = 1 - self._beta2**self.steps
        deviation = (self._square / unbias2).sqrt_().add_(self.epsilon)
        self._vector.addcdiv_(self._mean, deviation, value=-self.lr / unbias1)

    def state(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "mean": self._mean.cpu().numpy().copy(),
            "square": self._square.cpu().numpy().copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.steps = int(state["steps"])
        self._mean.copy_(torch.from_numpy(np.array(state["mean"])))
        self._square.copy_(torch.from_numpy(np.array(state["square"])))
