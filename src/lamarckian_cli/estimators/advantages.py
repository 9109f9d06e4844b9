"""Generalized advantage estimation.

Time comes first. Where a match ends inside a trace, the next row belongs to another match:
`next_value` holds the value that follows each step (of the final observation where the
match was truncated), `ended` cuts the trace, and `terminated` alone ends the value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    ended: Tensor,
    discount: Tensor,
    lam: Tensor,
) -> Tensor:
    """Advantages [T, ...] (Schulman et al. 2016, equation 16).

        delta_t = r_t + gamma V(s_t+1) - V(s_t)
        A_t     = delta_t + gamma lambda A_t+1

    Args:
        reward, value, next_value: float32 [T, ...].
        terminated, ended: bool, broadcastable to `reward`; ended = terminated or truncated.
        discount, lam: float32, broadcastable to `reward[0]`, such as [K].
    """
    delta = reward + discount * next_value.masked_fill(terminated, 0.0) - value
    decay = (discount * lam) * (~ended).to(delta.dtype)
    return discounted_sum(delta, decay)


def discounted_sum(delta: Tensor, decay: Tensor) -> Tensor:
    """x_t = delta_t + decay_t x_t+1 along the first axis, with x_T = 0; both [T, ...]."""
    total = delta.new_empty(delta.shape)
    decay = decay.expand_as(delta)
    last = delta.new_zeros(delta.shape[1:])
    for t in range(delta.shape[0] - 1, -1, -1):
        last = delta[t].addcmul(decay[t], last)
        total[t] = last
    return total
