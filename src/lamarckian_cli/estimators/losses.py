"""Losses of the actor-critic family: one number from per-step tensors [N, ...].

`share` [N] is what each step adds to a mean: `shares` gives steps in which a script chose 0,
and the others equal parts of 1. Policy terms average with it, value terms over all steps.
Small networks are bound by the number of operations, so each formula takes few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def shares(weight: Tensor) -> Tensor:
    """Weights [N], none negative, scaled to the sum 1; all 0 where they are all 0."""
    return weight / weight.sum().clamp(min=1e-12)


def clipped_surrogate(log_ratio: Tensor, advantage: Tensor, share: Tensor, clip: float) -> Tensor:
    """Negative of PPO's objective (Schulman et al. 2017, equation 7): -mean min(r A, clip(r) A).

    The minimum is the second where r lies beyond 1 + clip with A > 0, or below 1 - clip with
    A < 0: a constant there, and r A elsewhere.
    """
    ratio = log_ratio.exp()
    bound = 1 + clip * advantage.sign()
    weight = advantage * share
    beyond = ((ratio - bound).detach() * advantage) > 0
    fixed = weight.where(beyond, weight.new_zeros(()))
    return -(ratio.dot(weight - fixed) + bound.dot(fixed))


def policy_gradient(log_prob: Tensor, advantage: Tensor, share: Tensor) -> Tensor:
    """-mean log pi(a) A, with A held constant."""
    return -log_prob.dot(advantage * share)


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


def normalized(advantage: Tensor, share: Tensor) -> Tensor:
    """Advantages [N] with mean 0 and deviation 1 over the steps that have a share."""
    centred = advantage - advantage.dot(share)
    return centred / (centred.square().dot(share).sqrt() + 1e-8)
