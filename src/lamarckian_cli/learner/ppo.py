"""Proximal policy optimization (Schulman et al. 2017) with generalized advantages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamarckian_cli.errors import require
from lamarckian_cli.estimators.advantages import gae
from lamarckian_cli.estimators.losses import clipped_surrogate, clipped_value_error
from lamarckian_cli.learner.algorithm import Algorithm, EstimateInputs, Steps, Targets

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class PPO(Algorithm):
    clip: float = 0.2  # of the probability ratio
    value_clip: float | None = None  # of the critic's step; None: not clipped

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.clip < 1, "algo.clip", self.clip, "it must lie in (0, 1) (0.2)")
        require(
            self.value_clip is None or self.value_clip > 0,
            "algo.value_clip",
            self.value_clip,
            "it must be above 0, or null for no clipping",
        )

    def estimate(self, x: EstimateInputs) -> Targets:
        advantage = gae(x.reward, x.value, x.next_value, x.terminated, x.ended, x.discount, x.lam)
        return Targets(advantage, advantage + x.value)

    def policy_loss(self, log_prob: Tensor, steps: Steps) -> Tensor:
        return clipped_surrogate(log_prob - steps.log_prob, steps.advantage, steps.share, self.clip)

    def value_loss(self, value: Tensor, steps: Steps) -> Tensor:
        if self.value_clip is None:
            return super().value_loss(value, steps)
        return clipped_value_error(value, steps.old_value, steps.target, steps.head_weight, self.value_clip)
