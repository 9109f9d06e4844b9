"""Joint actions of several heads, drawn and scored, against torch.distributions and frequencies."""

import math

import numpy as np
import torch
from torch import distributions

from lamarckian_cli.model.distribution import ActionDistribution
from lamarckian_cli.model.sampling import ActionSampler, head_parts
from lamarckian_cli.records import ContinuousHead, DiscreteHead

HEADS = (
    DiscreteHead(name="a", n=3),
    ContinuousHead(name="c", low=(-2.0, 0.0), high=(2.0, 10.0)),
    DiscreteHead(name="b", n=7, masked=True),
)


def example(n=400):
    rng = np.random.default_rng(3)
    logits = rng.standard_normal((n, head_parts(HEADS)[-1].stop), np.float32)
    mask = rng.random((n, 7)) < 0.5
    mask[:, 2] = True
    return ActionSampler(HEADS), logits, (None, None, mask)


def reference(logits, mask):
    """The same distribution, put together from torch.distributions, in units of half the range."""
    masked = logits[:, 7:].masked_fill(~mask, -math.inf)
    normal = distributions.Normal(logits[:, 3:5], logits[:, 5:7].exp())
    return distributions.Categorical(logits=logits[:, :3]), normal, distributions.Categorical(logits=masked)


def tensors(arrays):
    return tuple(None if array is None else torch.from_numpy(array) for array in arrays)


def test_log_prob_and_entropy_equal_torch_distributions():
    sampler, numbers, masks = example()
    drawn, drawn_log_prob = sampler.sample(numbers, masks, np.random.default_rng(0))
    logits, actions, legal = torch.from_numpy(numbers), tensors(drawn), tensors(masks)
    a, normal, b = reference(logits, legal[2])
    unit = (actions[1] - torch.tensor([0.0, 5.0])) / torch.tensor([2.0, 5.0])
    expected = a.log_prob(actions[0]) + normal.log_prob(unit).sum(1) + b.log_prob(actions[2])
    torch.testing.assert_close(torch.from_numpy(drawn_log_prob), expected, rtol=1e-4, atol=1e-4)
    scored, entropy = ActionDistribution(HEADS).log_prob_and_entropy(logits, actions, legal)
    torch.testing.assert_close(scored, expected, rtol=1e-4, atol=1e-4)
    of_b = -(b.probs * b.logits.masked_fill(~legal[2], 0.0)).sum(1)
    torch.testing.assert_close(entropy, a.entropy() + normal.entropy().sum(1) + of_b, rtol=1e-4, atol=1e-4)


def test_types_are_those_that_a_game_is_promised():
    sampler, logits, masks = example(5)
    for actions in (
        sampler.sample(logits, masks, np.random.default_rng(0)).actions,
        sampler.greedy(logits, masks),
    ):
        assert [(a.dtype, a.shape) for a in actions] == [
            (np.int64, (5,)),
            (np.float32, (5, 2)),
            (np.int64, (5,)),
        ]


def test_no_illegal_action_in_a_million_draws():
    sampler, logits, masks = example(1000)
    rng, rows = np.random.default_rng(1), np.arange(1000)
    for _ in range(1000):
        actions, _ = sampler.sample(logits, masks, rng)
        assert masks[2][rows, actions[2]].all()
    assert masks[2][rows, sampler.greedy(logits, masks)[2]].all()


def test_the_likeliest_action_is_the_mode():
    sampler, numbers, masks = example()
    a, normal, b = reference(torch.from_numpy(numbers), torch.from_numpy(masks[2]))
    greedy = sampler.greedy(numbers, masks)
    np.testing.assert_array_equal(greedy[0], a.probs.argmax(1))
    np.testing.assert_allclose(
        greedy[1], normal.mean * torch.tensor([2.0, 5.0]) + torch.tensor([0.0, 5.0]), rtol=1e-5
    )
    np.testing.assert_array_equal(greedy[2], b.probs.argmax(1))


def test_frequencies_follow_the_probabilities():
    sampler = ActionSampler((DiscreteHead(name="a", n=4),))
    logits = np.array([[0.0, 1.0, 2.0, -1.0]], np.float32)
    draws = 200_000
    actions, _ = sampler.sample(logits.repeat(draws, 0), (None,), np.random.default_rng(2))
    counts = np.bincount(actions[0], minlength=4)
    expected = np.exp(logits[0]) / np.exp(logits[0]).sum() * draws
    assert ((counts - expected) ** 2 / expected).sum() < 16.27  # the 99.9 % point with 3 degrees of freedom


def test_continuous_actions_cover_the_range_around_its_middle():
    sampler = ActionSampler((ContinuousHead(name="c", low=(2.0,), high=(6.0,)),))
    logits = np.array([[0.5, math.log(0.25)]], np.float32).repeat(100_000, 0)
    actions, _ = sampler.sample(logits, (None,), np.random.default_rng(4))
    assert abs(actions[0].mean() - (4.0 + 0.5 * 2.0)) < 0.01
    assert abs(actions[0].std() - 0.25 * 2.0) < 0.01
