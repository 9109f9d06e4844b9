"""The policy's distribution over actions: several heads, discrete and continuous, with masks.

A network writes all heads' numbers side by side into `logits` [N, L]: n for a discrete
head; D means, then D log deviations, for a continuous one. Means and deviations are in
units of half the head's range, counted from its middle.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from lamarckian_cli.records import ContinuousHead, DiscreteHead, Head

ILLEGAL = -1e9  # a logit so low that its probability is exactly 0, yet 0 * ILLEGAL stays finite
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


class Sampled(NamedTuple):
    actions: tuple[Tensor, ...]  # per head int64 [N] or float32 [N, D]
    log_prob: Tensor  # [N], summed over heads


class ActionDistribution:
    """Samples, scores and compares the joint action of one seat's heads."""

    def __init__(self, heads: tuple[Head, ...], device: torch.device | str = "cpu") -> None:
        self.heads = heads
        self.parts: list[slice] = []
        self._middle: list[Tensor | None] = []
        self._half: list[Tensor | None] = []
        start = 0
        for head in heads:
            width = head.n if isinstance(head, DiscreteHead) else 2 * head.size
            self.parts.append(slice(start, start + width))
            start += width
            middle, half = _range(head, device)
            self._middle.append(middle)
            self._half.append(half)
        self.width = start

    def sample(
        self, logits: Tensor, masks: tuple[Tensor | None, ...], generator: torch.Generator | None
    ) -> Sampled:
        """Random actions; masks per head bool [N, n] or None."""
        actions, log_prob = [], torch.zeros(logits.shape[0], device=logits.device)
        for i in range(len(self.heads)):
            part, middle, half = logits[:, self.parts[i]], self._middle[i], self._half[i]
            if middle is None or half is None:
                action, score = _sample_discrete(_legal(part, masks[i]), generator)
            else:
                mean, log_deviation = part.chunk(2, dim=1)
                noise = torch.empty_like(mean).normal_(generator=generator)
                action = torch.addcmul(middle, half, torch.addcmul(mean, log_deviation.exp(), noise))
                score = _normal_log_prob(noise, log_deviation)
            actions.append(action)
            log_prob += score
        return Sampled(tuple(actions), log_prob)

    def greedy(self, logits: Tensor, masks: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
        """The likeliest action of each head."""
        actions = []
        for i in range(len(self.heads)):
            part, middle, half = logits[:, self.parts[i]], self._middle[i], self._half[i]
            if middle is None or half is None:
                actions.append(_legal(part, masks[i]).argmax(1))
            else:
                actions.append(torch.addcmul(middle, half, part.chunk(2, dim=1)[0]))
        return tuple(actions)

    def log_prob_and_entropy(
        self, logits: Tensor, actions: tuple[Tensor, ...], masks: tuple[Tensor | None, ...]
    ) -> tuple[Tensor, Tensor]:
        """Both [N], summed over heads; an illegal choice adds nothing to the entropy."""
        log_prob = torch.zeros(logits.shape[0], device=logits.device)
        entropy = torch.zeros_like(log_prob)
        for i in range(len(self.heads)):
            part, middle, half = logits[:, self.parts[i]], self._middle[i], self._half[i]
            if middle is None or half is None:
                scores = torch.log_softmax(_legal(part, masks[i]), dim=1)
                log_prob = log_prob + scores.gather(1, actions[i].unsqueeze(1)).squeeze(1)
                entropy = entropy - (scores.exp() * scores).sum(1)
            else:
                mean, log_deviation = part.chunk(2, dim=1)
                noise = ((actions[i] - middle) / half - mean) * (-log_deviation).exp()
                log_prob = log_prob + _normal_log_prob(noise, log_deviation)
                entropy = entropy + (log_deviation + 0.5 + _LOG_SQRT_2PI).sum(1)
        return log_prob, entropy


def _range(head: Head, device: torch.device | str) -> tuple[Tensor | None, Tensor | None]:
    if not isinstance(head, ContinuousHead):
        return None, None
    low, high = torch.tensor(head.low, device=device), torch.tensor(head.high, device=device)
    return (low + high) / 2, (high - low) / 2


def _legal(logits: Tensor, mask: Tensor | None) -> Tensor:
    return logits if mask is None else logits.masked_fill(~mask, ILLEGAL)


def _sample_discrete(logits: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """argmax p / e with e exponential draws from the categorical p (the exponential race)."""
    scores = torch.log_softmax(logits, dim=1)
    race = torch.empty_like(scores).exponential_(generator=generator).clamp_(min=1e-20)
    action = scores.exp().div_(race).argmax(1)
    return action, scores.gather(1, action.unsqueeze(1)).squeeze(1)


def _normal_log_prob(noise: Tensor, log_deviation: Tensor) -> Tensor:
    return (-0.5 * noise.square() - log_deviation - _LOG_SQRT_2PI).sum(1)
