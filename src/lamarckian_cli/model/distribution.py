"""The policy's distribution over actions as the learner needs it: scored, and differentiable.

`sampling.py` says how logits [N, L] are laid out, and draws from the same distribution.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lamarckian_cli.model.sampling import ILLEGAL, LOG_SQRT_2PI, head_parts, middle_and_half
from lamarckian_cli.records import DiscreteHead, Head


class ActionDistribution:
    """Scores the joint action of one seat's heads."""

    def __init__(self, heads: tuple[Head, ...], device: torch.device | str = "cpu") -> None:
        self.heads = heads
        self._parts = head_parts(heads)
        self._ranges = [_range(head, device) for head in heads]

    def log_prob_and_entropy(
        self, logits: Tensor, actions: tuple[Tensor, ...], masks: tuple[Tensor | None, ...]
    ) -> tuple[Tensor, Tensor]:
        """Both [N], summed over heads; an illegal choice adds nothing to the entropy.

        `logits` [N, L]; per head, `actions` int64 [N] or float32 [N, D], `masks` bool [N, n] or None.
        """
        log_probs, entropies = [], []
        for part, span, action, mask in zip(self._parts, self._ranges, actions, masks, strict=True):
            numbers = logits[:, part]
            if span is None:
                legal = numbers if mask is None else numbers.masked_fill(~mask, ILLEGAL)
                scores = torch.log_softmax(legal, dim=1)
                log_probs.append(scores.gather(1, action.unsqueeze(1)).squeeze(1))
                entropies.append(-(scores.exp() * scores).sum(1))
            else:
                middle, half = span
                mean, log_deviation = numbers.chunk(2, dim=1)
                noise = ((action - middle) / half - mean) * (-log_deviation).exp()
                log_probs.append((-0.5 * noise.square() - log_deviation - LOG_SQRT_2PI).sum(1))
                entropies.append((log_deviation + 0.5 + LOG_SQRT_2PI).sum(1))
        return _sum(log_probs), _sum(entropies)


def _range(head: Head, device: torch.device | str) -> tuple[Tensor, Tensor] | None:
    if isinstance(head, DiscreteHead):
        return None
    middle, half = middle_and_half(head)
    return torch.from_numpy(middle).to(device), torch.from_numpy(half).to(device)


def _sum(parts: list[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
