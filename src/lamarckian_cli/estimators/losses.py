"""Losses of the actor-critic family: one number from per-step tensors [N, ...].

`weight` [N] is 1 where the policy chose the action and 0 where a script did; policy terms
average over the former alone, value terms over all steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def masked_mean(x: Tensor, weight: Tensor) -> Tensor:
    """Mean of x [N] where weight [N] is 1; 0 where there is none."""
    return (x * weight).sum() / weight.sum().clamp(min=1.0)


def clipped_surrogate(log_ratio: Tensor, advantage: Tensor, weight: Tensor, clip: float) -> Tensor:
    """Negative of PPO's objective (Schulman et al. 2017, equation 7): -mean min(r A, clip(r) A)."""
    ratio = log_ratio.exp()
    worst = (ratio * advantage).minimum(ratio.clamp(1 - clip, 1 + clip) * advantage)
    return -masked_mean(worst, weight)


def policy_gradient(log_prob: Tensor, advantage: Tensor, weight: Tensor) -> Tensor:
    """-mean log pi(a) A, with A held constant."""
    return -masked_mean(log_prob * advantage, weight)


def value_error(value: Tensor, target: Tensor, head_weight: Tensor) -> Tensor:
    """Half the mean squared error of [N, K], heads weighted by [K] and summed."""
    return 0.5 * ((value - target).square().mean(0) * head_weight).sum()


def clipped_value_error(
    value: Tensor, old_value: Tensor, target: Tensor, head_weight: Tensor, clip: float
) -> Tensor:
    """PPO's value loss whose step away from `old_value` [N, K] is bounded by `clip`."""
    near = old_value + (value - old_value).clamp(-clip, clip)
    error = (value - target).square().maximum((near - target).square())
    return 0.5 * (error.mean(0) * head_weight).sum()


def normalized(advantage: Tensor, weight: Tensor) -> Tensor:
    """Advantages [N] with mean 0 and deviation 1 over the steps that weight [N] keeps."""
    mean = masked_mean(advantage, weight)
    variance = masked_mean((advantage - mean).square(), weight)
    return (advantage - mean) / (variance.sqrt() + 1e-8)
