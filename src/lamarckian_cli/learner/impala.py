"""IMPALA (Espeholt et al. 2018): policy gradient with V-trace's off-policy correction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamarckian_cli.errors import require
from lamarckian_cli.estimators.losses import policy_gradient
from lamarckian_cli.estimators.vtrace import vtrace
from lamarckian_cli.learner.algorithm import Algorithm, EstimateInputs, Steps, Targets

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class IMPALA(Algorithm):
    rho_clip: float = 1.0  # upper bound of the importance weight of each error
    c_clip: float = 1.0  # upper bound of the weights that carry errors back in time

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rho_clip", "c_clip"):
            require(getattr(self, name) > 0, f"algo.{name}", getattr(self, name), "it must be above 0 (1)")

    def estimate(self, x: EstimateInputs) -> Targets:
        trace = vtrace(
            x.log_ratio,
            x.reward,
            x.value,
            x.next_value,
            x.terminated,
            x.ended,
            x.discount,
            x.lam,
            self.rho_clip,
            self.c_clip,
        )
        return Targets(trace.advantages, trace.targets)

    def policy_loss(self, log_prob: Tensor, steps: Steps) -> Tensor:
        return policy_gradient(log_prob, steps.advantage, steps.share)
