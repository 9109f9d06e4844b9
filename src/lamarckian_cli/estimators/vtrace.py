"""V-trace: off-policy value targets and policy-gradient advantages (Espeholt et al. 2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lamarckian_cli.estimators.advantages import discounted_sum

if TYPE_CHECKING:
    from torch import Tensor


class VTrace(NamedTuple):
    targets: Tensor  # v_s, [T, ...]
    advantages: Tensor  # rho_s (r_s + gamma v_s+1 - V(s)), [T, ...]


def vtrace(
    log_ratio: Tensor,
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    ended: Tensor,
    discount: Tensor,
    lam: Tensor,
    rho_clip: float,
    c_clip: float,
) -> VTrace:
    """Targets and advantages [T, ...] (IMPALA, equation 1 and section 4.2).

        v_s = V(x_s) + sum_t gamma^(t-s) (prod_i<t c_i) rho_t (r_t + gamma V(x_t+1) - V(x_t))

    Args:
        log_ratio: log pi(a) - log mu(a), float32, broadcastable to `reward`.
        reward, value, next_value: float32 [T, ...]; `next_value` as in `gae`.
        terminated, ended: bool, broadcastable to `reward`.
        discount, lam: float32, broadcastable to `reward[0]`; lam scales every c.
        rho_clip, c_clip: upper bounds of the importance weights.
    """
    ratio = log_ratio.exp()
    rho, c = ratio.clamp(max=rho_clip), ratio.clamp(max=c_clip)
    bootstrap = next_value.masked_fill(terminated, 0.0)
    delta = rho * (reward + discount * bootstrap - value)
    running = (~ended).to(delta.dtype)
    correction = discounted_sum(delta, discount * lam * c * running)
    targets = value + correction
    following = bootstrap.clone()
    following[:-1] += running[:-1] * correction[1:]
    return VTrace(targets, rho * (reward + discount * following - value))
