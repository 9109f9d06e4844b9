"""Choosing actions: several heads, discrete and continuous, with masks, in NumPy.

A network writes all heads' numbers side by side into `logits` [N, L]: n for a discrete
head; D means, then D log deviations, for a continuous one. Means and deviations are in
units of half the head's range, counted from its middle. `ActionDistribution` scores the
same distribution in torch, where it has to be differentiated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lamarckian_cli.records import ContinuousHead, DiscreteHead, Head

ILLEGAL = -1e9  # a logit so low that its probability is exactly 0, yet 0 * ILLEGAL stays finite
LOG_SQRT_2PI = 0.5 * float(np.log(2 * np.pi))

Masks = tuple[np.ndarray | None, ...]  # per head bool [N, n], or None: all is legal


class Sampled(NamedTuple):
    actions: tuple[np.ndarray, ...]  # per head int64 [N] or float32 [N, D]
    log_prob: np.ndarray  # [N] float32, summed over heads


def head_parts(heads: tuple[Head, ...]) -> list[slice]:
    """Where each head's numbers lie in the logits; the last one's `stop` is L."""
    parts, start = [], 0
    for head in heads:
        width = head.n if isinstance(head, DiscreteHead) else 2 * head.size
        parts.append(slice(start, start + width))
        start += width
    return parts


def middle_and_half(head: ContinuousHead) -> tuple[np.ndarray, np.ndarray]:
    """The middle of a head's range and half its length, [D] float32 each."""
    low, high = np.array(head.low, np.float32), np.array(head.high, np.float32)
    return (low + high) / 2, (high - low) / 2


class ActionSampler:
    """Draws the joint action of one seat's heads, or takes the likeliest."""

    def __init__(self, heads: tuple[Head, ...]) -> None:
        self.heads = heads
        self._parts = head_parts(heads)
        self._ranges = [middle_and_half(h) if isinstance(h, ContinuousHead) else None for h in heads]

    def sample(self, logits: np.ndarray, masks: Masks, rng: np.random.Generator) -> Sampled:
        """Random actions from logits [N, L] float32."""
        actions = []
        log_prob = np.zeros(len(logits), np.float32)
        for part, span, mask in zip(self._parts, self._ranges, masks, strict=True):
            action, score = (
                _race(_legal(logits[:, part], mask), rng)
                if span is None
                else _normal(logits[:, part], *span, rng)
            )
            actions.append(action)
            log_prob += score
        return Sampled(tuple(actions), log_prob)

    def greedy(self, logits: np.ndarray, masks: Masks) -> tuple[np.ndarray, ...]:
        """The likeliest action of each head."""
        actions = []
        for part, span, mask in zip(self._parts, self._ranges, masks, strict=True):
            if span is None:
                actions.append(_legal(logits[:, part], mask).argmax(1))
            else:
                middle, half = span
                actions.append(middle + half * logits[:, part][:, : len(middle)])
        return tuple(actions)


def _legal(logits: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    return logits if mask is None else np.where(mask, logits, np.float32(ILLEGAL))


def _race(logits: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """argmax p / e with e exponential draws from the categorical p (the exponential race)."""
    scores = logits - np.maximum.reduce(logits, axis=1, keepdims=True)
    weights = np.exp(scores)
    race = rng.standard_exponential(weights.shape, dtype=np.float32)
    np.maximum(race, np.float32(1e-20), out=race)
    action = (weights / race).argmax(1)
    return action, scores[np.arange(len(action)), action] - np.log(np.add.reduce(weights, axis=1))


def _normal(
    numbers: np.ndarray, middle: np.ndarray, half: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    size = len(middle)
    mean, log_deviation = numbers[:, :size], numbers[:, size:]
    noise = rng.standard_normal(mean.shape, dtype=np.float32)
    action = middle + half * (mean + np.exp(log_deviation) * noise)
    score = (np.float32(-0.5) * noise * noise - log_deviation - np.float32(LOG_SQRT_2PI)).sum(1)
    return action, score
