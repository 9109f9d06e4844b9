"""From unrolls to one batch: exactly `size` unrolls, as tensors on the learner's device."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lamarckian_cli.records import Unrolls

FINAL_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """B unrolls of T steps. Flat tensors have N = B * T rows, unroll after unroll.

    `inputs` hold, one after the other, all B * (T + 1) observations of the unrolls and the F
    final observations of truncated matches, so that one forward pass values them all. Zeros
    follow up to a multiple of FINAL_ROWS: torch keeps code for every number of rows it has met.
    """

    inputs: tuple[Tensor, ...]  # each [B * (T + 1) + F, *shape]
    masks: tuple[Tensor | None, ...]  # per head [N, n] bool, or None
    actions: tuple[Tensor, ...]  # per head [N] int64 or [N, D] float32
    log_prob: Tensor  # [N] of the behaviour policy
    reward: Tensor  # [T, B, K]
    terminated: Tensor  # [T, B, 1] bool
    ended: Tensor  # [T, B, 1] bool: terminated or truncated
    decided: Tensor  # [N] float32: 0 where a script chose
    version: np.ndarray  # [B, T] int64
    final_index: Tensor  # [F, 2] int64: (unroll, step)

    @property
    def steps(self) -> int:
        return int(self.log_prob.shape[0])

    @property
    def unrolls(self) -> int:
        return int(self.reward.shape[1])

    @property
    def length(self) -> int:
        return int(self.reward.shape[0])

    def acted(self) -> Tensor:
        """Rows of `inputs` in which an action was taken, [N]: all but each unroll's last."""
        rows = torch.arange(self.unrolls * (self.length + 1), device=self.log_prob.device)
        return rows.view(self.unrolls, self.length + 1)[:, :-1].reshape(-1)


class UnrollQueue:
    """Unrolls that arrived and are not yet learned from, in order."""

    def __init__(self) -> None:
        self._waiting: deque[Unrolls] = deque()
        self.count = 0

    def clear(self) -> None:
        self._waiting.clear()
        self.count = 0

    def put(self, unrolls: Unrolls) -> None:
        self._waiting.append(unrolls)
        self.count += len(unrolls.reward)

    def take(self, size: int) -> Unrolls | None:
        """Exactly `size` unrolls, oldest first; None while there are fewer."""
        if self.count < size:
            return None
        parts, left = [], size
        while left:
            first = self._waiting.popleft()
            if len(first.reward) > left:
                first, rest = cut(first, left)
                self._waiting.appendleft(rest)
            parts.append(first)
            left -= len(first.reward)
        self.count -= size
        return join(parts)

    def drop_older(self, version: int) -> int:
        """Drop unrolls whose mean version is below `version`; returns their env steps."""
        kept: list[Unrolls] = []
        dropped = 0
        for unrolls in self._waiting:
            fresh = unrolls.version.mean(1) >= version
            if fresh.all():
                kept.append(unrolls)
                continue
            dropped += int((~fresh).sum()) * unrolls.reward.shape[1]
            if fresh.any():
                kept.append(select(unrolls, np.flatnonzero(fresh)))
        self._waiting = deque(kept)
        self.count = sum(len(unrolls.reward) for unrolls in kept)
        return dropped


def to_batch(unrolls: Unrolls, device: torch.device | str) -> Batch:
    """Lay out unrolls for the update."""

    def tensor(array: np.ndarray) -> Tensor:
        if not array.flags.writeable:
            array = array.copy()  # torch wants to own what it may write
        return torch.from_numpy(array).to(device, non_blocking=True)

    inputs = tuple(
        torch.cat([tensor(x).flatten(0, 1), tensor(_padded(final))])
        if len(final)
        else tensor(x).flatten(0, 1)
        for x, final in zip(unrolls.inputs, unrolls.final_inputs, strict=True)
    )
    return Batch(
        inputs=inputs,
        masks=tuple(None if mask is None else tensor(mask).flatten(0, 1) for mask in unrolls.masks),
        actions=tuple(tensor(action).flatten(0, 1) for action in unrolls.actions),
        log_prob=tensor(unrolls.log_prob).flatten(),
        reward=tensor(unrolls.reward).transpose(0, 1).contiguous(),
        terminated=tensor(unrolls.terminated).t().unsqueeze(2),
        ended=tensor(unrolls.terminated | unrolls.truncated).t().unsqueeze(2),
        decided=tensor(unrolls.decided).flatten().float(),
        version=unrolls.version,
        final_index=tensor(unrolls.final_index),
    )


def _padded(final: np.ndarray) -> np.ndarray:
    """[F, *shape] with zeros up to a multiple of FINAL_ROWS rows."""
    rows = -(-len(final) // FINAL_ROWS) * FINAL_ROWS
    padded = np.zeros((rows, *final.shape[1:]), final.dtype)
    padded[: len(final)] = final
    return padded


def select(unrolls: Unrolls, rows: np.ndarray) -> Unrolls:
    """The unrolls at `rows`, in that order."""
    place = {int(row): i for i, row in enumerate(rows)}
    kept = [i for i, (row, _) in enumerate(unrolls.final_index.tolist()) if row in place]
    index = np.array([(place[int(r)], s) for r, s in unrolls.final_index[kept]], np.int64).reshape(-1, 2)
    per_step: dict[str, Any] = {name: getattr(unrolls, name)[rows] for name in _PER_STEP}
    return replace(
        unrolls,
        inputs=tuple(x[rows] for x in unrolls.inputs),
        masks=tuple(None if m is None else m[rows] for m in unrolls.masks),
        actions=tuple(a[rows] for a in unrolls.actions),
        **per_step,
        final_inputs=tuple(x[kept] for x in unrolls.final_inputs),
        final_index=index,
    )


def cut(unrolls: Unrolls, count: int) -> tuple[Unrolls, Unrolls]:
    """The first `count` unrolls, and the rest."""
    rows = np.arange(len(unrolls.reward))
    return select(unrolls, rows[:count]), select(unrolls, rows[count:])


def join(parts: list[Unrolls]) -> Unrolls:
    """All unrolls of one policy, in order."""
    if len(parts) == 1:
        return parts[0]
    first = np.cumsum([0] + [len(p.reward) for p in parts[:-1]])
    index = [p.final_index + np.array([start, 0]) for p, start in zip(parts, first, strict=True)]

    per_step: dict[str, Any] = {name: np.concatenate([getattr(p, name) for p in parts]) for name in _PER_STEP}

    def together(name: str) -> tuple[np.ndarray, ...]:
        return tuple(
            np.concatenate(arrays) for arrays in zip(*(getattr(p, name) for p in parts), strict=True)
        )

    return replace(
        parts[0],
        inputs=together("inputs"),
        masks=tuple(
            None if masks[0] is None else np.concatenate(masks)
            for masks in zip(*(p.masks for p in parts), strict=True)
        ),
        actions=together("actions"),
        **per_step,
        final_inputs=together("final_inputs"),
        final_index=np.concatenate(index),
    )


_PER_STEP = tuple(
    field.name
    for field in fields(Unrolls)
    if field.name not in ("policy", "inputs", "masks", "actions", "final_inputs", "final_index")
)
