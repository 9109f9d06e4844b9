"""GAE and V-trace against their definitions as explicit sums, step by step, in float64 NumPy."""

import numpy as np
import pytest
import torch

from lamarckian_cli.estimators.advantages import gae
from lamarckian_cli.estimators.vtrace import vtrace

T, B, K = 13, 5, 2
DISCOUNT = np.array([0.9, 0.99])
LAM = np.array([0.8, 0.95])


@pytest.fixture
def trace():
    rng = np.random.default_rng(5)
    terminated = rng.random((T, B, 1)) < 0.15
    truncated = (rng.random((T, B, 1)) < 0.15) & ~terminated
    return {
        "reward": rng.normal(size=(T, B, K)),
        "value": rng.normal(size=(T, B, K)),
        "next_value": rng.normal(size=(T, B, K)),
        "terminated": terminated,
        "ended": terminated | truncated,
        "log_ratio": rng.normal(scale=0.7, size=(T, B, 1)),
    }


def last_step(ended, t, b):
    """The last step of the match that runs at t: where it ended, or the trace's end."""
    for u in range(t, T):
        if ended[u, b, 0]:
            return u
    return T - 1


def tensors(trace, *names):
    return [
        torch.tensor(trace[n], dtype=torch.bool if trace[n].dtype == bool else torch.float64) for n in names
    ]


def test_gae_is_the_weighted_sum_of_errors_within_each_match(trace):
    expected = np.zeros((T, B, K))
    for t in range(T):
        for b in range(B):
            for k in range(K):
                for u in range(t, last_step(trace["ended"], t, b) + 1):
                    after = 0.0 if trace["terminated"][u, b, 0] else trace["next_value"][u, b, k]
                    delta = trace["reward"][u, b, k] + DISCOUNT[k] * after - trace["value"][u, b, k]
                    expected[t, b, k] += (DISCOUNT[k] * LAM[k]) ** (u - t) * delta
    args = tensors(trace, "reward", "value", "next_value", "terminated", "ended")
    actual = gae(*args, torch.tensor(DISCOUNT), torch.tensor(LAM))
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("rho_clip", "c_clip"), [(1.0, 1.0), (2.0, 0.7)])
def test_vtrace_is_equation_1_of_impala(trace, rho_clip, c_clip):
    ratio = np.exp(trace["log_ratio"][..., 0])
    rho, c = np.minimum(rho_clip, ratio), np.minimum(c_clip, ratio)
    targets, advantages = np.zeros((T, B, K)), np.zeros((T, B, K))
    for b in range(B):
        for k in range(K):
            for s in range(T):
                total = trace["value"][s, b, k]
                for t in range(s, last_step(trace["ended"], s, b) + 1):
                    after = 0.0 if trace["terminated"][t, b, 0] else trace["next_value"][t, b, k]
                    delta = trace["reward"][t, b, k] + DISCOUNT[k] * after - trace["value"][t, b, k]
                    carried = np.prod(LAM[k] * c[s:t, b])
                    total += DISCOUNT[k] ** (t - s) * carried * rho[t, b] * delta
                targets[s, b, k] = total
            for s in range(T):
                if trace["terminated"][s, b, 0]:
                    after = 0.0
                elif trace["ended"][s, b, 0] or s == T - 1:
                    after = trace["next_value"][s, b, k]
                else:
                    # V(x_s+1) is next_value[s] here, so v_s+1 is that plus the correction at s + 1
                    after = trace["next_value"][s, b, k] + targets[s + 1, b, k] - trace["value"][s + 1, b, k]
                error = trace["reward"][s, b, k] + DISCOUNT[k] * after - trace["value"][s, b, k]
                advantages[s, b, k] = rho[s, b] * error
    args = tensors(trace, "log_ratio", "reward", "value", "next_value", "terminated", "ended")
    actual = vtrace(*args, torch.tensor(DISCOUNT), torch.tensor(LAM), rho_clip, c_clip)
    np.testing.assert_allclose(actual.targets.numpy(), targets, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(actual.advantages.numpy(), advantages, rtol=1e-9, atol=1e-12)


def test_on_policy_vtrace_with_lambda_1_gives_the_discounted_return(trace):
    """On policy and without clipping, v_s is the n-step return (IMPALA, section 4.1)."""
    terminated = np.zeros((T, B, 1), bool)
    value = np.concatenate([trace["value"], trace["next_value"][-1:]])
    args = [torch.tensor(x) for x in (np.zeros((T, B, 1)), trace["reward"], value[:-1], value[1:])]
    flags = [torch.tensor(terminated), torch.tensor(terminated)]
    actual = vtrace(*args, *flags, torch.tensor(DISCOUNT), torch.ones(K, dtype=torch.float64), 1.0, 1.0)
    expected = value[-1]
    for t in range(T - 1, -1, -1):
        expected = trace["reward"][t] + DISCOUNT * expected
    np.testing.assert_allclose(actual.targets[0].numpy(), expected, rtol=1e-9)
