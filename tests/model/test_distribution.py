"""Joint actions of several heads, against torch.distributions and frequencies."""

import math

import torch
from torch import distributions

from lamarckian_cli.model.distribution import ActionDistribution
from lamarckian_cli.records import ContinuousHead, DiscreteHead

HEADS = (
    DiscreteHead(name="a", n=3),
    ContinuousHead(name="c", low=(-2.0, 0.0), high=(2.0, 10.0)),
    DiscreteHead(name="b", n=7, masked=True),
)


def example(n=400):
    torch.manual_seed(3)
    joint = ActionDistribution(HEADS)
    logits = torch.randn(n, joint.width)
    mask = torch.rand(n, 7) < 0.5
    mask[:, 2] = True
    return joint, logits, (None, None, mask)


def reference(logits, mask):
    """The same distribution, put together from torch.distributions, in units of half the range."""
    masked = logits[:, 7:].masked_fill(~mask, -math.inf)
    normal = distributions.Normal(logits[:, 3:5], logits[:, 5:7].exp())
    return distributions.Categorical(logits=logits[:, :3]), normal, distributions.Categorical(logits=masked)


def test_log_prob_and_entropy_equal_torch_distributions():
    joint, logits, masks = example()
    actions, log_prob = joint.sample(logits, masks, torch.Generator().manual_seed(0))
    a, normal, b = reference(logits, masks[2])
    unit = (actions[1] - torch.tensor([0.0, 5.0])) / torch.tensor([2.0, 5.0])
    expected = a.log_prob(actions[0]) + normal.log_prob(unit).sum(1) + b.log_prob(actions[2])
    torch.testing.assert_close(log_prob, expected, rtol=1e-4, atol=1e-4)
    scored, entropy = joint.log_prob_and_entropy(logits, actions, masks)
    torch.testing.assert_close(scored, expected, rtol=1e-4, atol=1e-4)
    legal = b.logits.masked_fill(~masks[2], 0.0)
    of_b = -(b.probs * legal).sum(1)
    torch.testing.assert_close(entropy, a.entropy() + normal.entropy().sum(1) + of_b, rtol=1e-4, atol=1e-4)


def test_no_illegal_action_in_a_million_draws():
    joint, logits, masks = example(1000)
    generator = torch.Generator().manual_seed(1)
    for _ in range(1000):
        actions, _ = joint.sample(logits, masks, generator)
        assert masks[2].gather(1, actions[2].unsqueeze(1)).all()
    assert masks[2].gather(1, joint.greedy(logits, masks)[2].unsqueeze(1)).all()


def test_frequencies_follow_the_probabilities():
    joint = ActionDistribution((DiscreteHead(name="a", n=4),))
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]])
    draws = 200_000
    actions, _ = joint.sample(logits.expand(draws, -1), (None,), torch.Generator().manual_seed(2))
    counts = torch.bincount(actions[0], minlength=4).double()
    expected = torch.softmax(logits[0].double(), 0) * draws
    chi_square = ((counts - expected) ** 2 / expected).sum().item()
    assert chi_square < 16.27  # the 99.9 % point with 3 degrees of freedom


def test_continuous_actions_cover_the_range_around_its_middle():
    joint = ActionDistribution((ContinuousHead(name="c", low=(2.0,), high=(6.0,)),))
    logits = torch.tensor([[0.5, math.log(0.25)]]).expand(100_000, -1)
    actions, _ = joint.sample(logits, (None,), torch.Generator().manual_seed(4))
    assert abs(actions[0].mean().item() - (4.0 + 0.5 * 2.0)) < 0.01
    assert abs(actions[0].std().item() - 0.25 * 2.0) < 0.01
