"""Losses against their formulas written out for single steps."""

import numpy as np
import torch

from lamarckian_cli.estimators import losses


def test_clipped_surrogate_takes_the_worse_of_both_and_leaves_scripted_steps_out():
    rng = np.random.default_rng(0)
    log_ratio, advantage = rng.normal(scale=0.5, size=50), rng.normal(size=50)
    weight = (rng.random(50) < 0.7).astype(float)
    terms = []
    for x, a, w in zip(log_ratio, advantage, weight, strict=True):
        if w:
            r = np.exp(x)
            terms.append(min(r * a, min(max(r, 0.8), 1.2) * a))
    actual = losses.clipped_surrogate(
        torch.tensor(log_ratio), torch.tensor(advantage), losses.shares(torch.tensor(weight)), 0.2
    )
    np.testing.assert_allclose(actual.item(), -np.mean(terms))


def test_no_gradient_flows_where_the_ratio_left_the_clip_range_in_the_good_direction():
    log_ratio = torch.tensor([0.5, -0.5, 0.5, -0.5], requires_grad=True)
    advantage = torch.tensor([1.0, -1.0, -1.0, 1.0])
    losses.clipped_surrogate(log_ratio, advantage, torch.full((4,), 0.25), 0.2).backward()
    assert log_ratio.grad[:2].tolist() == [0, 0]
    assert (log_ratio.grad[2:] != 0).all()


def test_value_error_weighs_heads():
    value, target = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0.0, 0.0], [1.0, 4.0]])
    actual = losses.value_error(value, target, torch.tensor([1.0, 0.5]))
    assert actual.item() == 0.5 * ((1 + 4) / 2 + 0.5 * (4 + 0) / 2)


def test_clipped_value_error_never_rewards_a_step_beyond_the_clip():
    old, target = torch.zeros(3, 1), torch.full((3, 1), 1.0)
    value = torch.tensor([[0.1], [0.5], [2.0]])
    actual = losses.clipped_value_error(value, old, target, torch.ones(1), 0.2)
    np.testing.assert_allclose(actual.item(), 0.5 * np.mean([0.81, 0.64, 1.0]), rtol=1e-6)


def test_normalized_uses_decided_steps_alone():
    advantage = torch.tensor([1.0, 3.0, 100.0])
    actual = losses.normalized(advantage, losses.shares(torch.tensor([1.0, 1.0, 0.0])))
    np.testing.assert_allclose(actual[:2].numpy(), [-1, 1], atol=1e-5)
