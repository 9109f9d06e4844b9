"""What every actor-critic algorithm here shares: its hyperparameters, checked once.

An algorithm is a frozen dataclass: its fields are the keys of `conf/algo/*.yaml`; its
`estimate` turns values into advantages and its `policy_loss` says what to do with them. The
update loop (`learner.py`) is the same for all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lamarckian_cli.errors import require
from lamarckian_cli.estimators.losses import shares, value_error

if TYPE_CHECKING:  # hyperparameters are checked where torch is not needed, and takes seconds to import
    from torch import Tensor

    from lamarckian_cli.model.distribution import ActionDistribution
    from lamarckian_cli.model.network import Outputs

BATCH_MAX = 2**28  # env steps


class EstimateInputs(NamedTuple):
    """A batch in time order, valued by the current network. T steps, B unrolls, K reward heads."""

    log_ratio: Tensor  # [T, B, 1] log pi - log mu; 0 where a script chose
    reward: Tensor  # [T, B, K]
    value: Tensor  # [T, B, K]
    next_value: Tensor  # [T, B, K]; of the final observation where the match was truncated
    terminated: Tensor  # [T, B, 1] bool
    ended: Tensor  # [T, B, 1] bool
    discount: Tensor  # [K]
    lam: Tensor  # [K]


class Targets(NamedTuple):
    advantage: Tensor  # [T, B, K]
    value: Tensor  # [T, B, K]


class Steps(NamedTuple):
    """N steps to learn from, in any order."""

    actions: tuple[Tensor, ...]  # per head [N] or [N, D]
    masks: tuple[Tensor | None, ...]
    log_prob: Tensor  # [N] of the behaviour policy
    advantage: Tensor  # [N] weighted over reward heads, normalised if so configured
    target: Tensor  # [N, K] in the critic's units
    old_value: Tensor  # [N, K] in the critic's units
    share: Tensor  # [N] float32 of each step in the policy's means: 0 where a script chose
    head_weight: Tensor  # [K]

    def at(self, where: Tensor | slice) -> Steps:
        """Some of the steps: copies at an index tensor, views in a slice."""
        return Steps(
            actions=tuple(action[where] for action in self.actions),
            masks=tuple(None if mask is None else mask[where] for mask in self.masks),
            log_prob=self.log_prob[where],
            advantage=self.advantage[where],
            target=self.target[where],
            old_value=self.old_value[where],
            share=self.share[where],
            head_weight=self.head_weight,
        )


class Loss(NamedTuple):
    total: Tensor
    parts: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC):
    """Hyperparameters of the update loop; a subclass adds those of its loss."""

    lr: float = 5e-4  # of Adam
    lr_schedule: str = "constant"  # or linear: to 0 at budget.env_steps
    adam_epsilon: float = 1e-5
    batch_size: int = 8192  # env steps a batch
    unroll: int = 64  # env steps of one unroll
    reuse: int = 1  # passes over each batch
    minibatch_size: int | None = None  # env steps an optimizer step; None: the whole batch
    discount: float = 0.99
    gae_lambda: float = 0.95
    policy_weight: float = 1.0
    value_weight: float = 0.5
    entropy_weight: float = 0.01
    max_grad_norm: float | None = 0.5  # None: gradients are not clipped
    normalize_advantages: bool = True  # per batch
    normalize_observations: bool = False  # running mean and deviation, which travel with the weights
    normalize_returns: bool = False  # the critic learns returns over their running deviation
    max_staleness: int | None = None  # unrolls whose mean staleness is above are dropped; None: no limit
    precision: str = "auto"  # fp32, bf16, or auto: bf16 where the processor multiplies it natively

    def __post_init__(self) -> None:
        require(0 < self.lr <= 10, "algo.lr", self.lr, "it must lie in (0, 10] (5e-4 suits most games)")
        require(
            self.lr_schedule in ("constant", "linear"),
            "algo.lr_schedule",
            self.lr_schedule,
            "choose constant or linear",
        )
        require(self.adam_epsilon > 0, "algo.adam_epsilon", self.adam_epsilon, "it must be above 0 (1e-5)")
        require(self.unroll >= 1, "algo.unroll", self.unroll, "it must be at least 1 (64 suits most games)")
        require(
            self.batch_size >= self.unroll and self.batch_size % self.unroll == 0,
            "algo.batch_size",
            self.batch_size,
            f"it must be a multiple of algo.unroll ({self.unroll})",
        )
        require(
            self.batch_size <= BATCH_MAX,
            "algo.batch_size",
            self.batch_size,
            f"it must be at most {BATCH_MAX} env steps (8192 suits most games)",
        )
        require(self.reuse >= 1, "algo.reuse", self.reuse, "it must be at least 1")
        if self.minibatch_size is not None:
            require(
                1 <= self.minibatch_size <= self.batch_size and self.batch_size % self.minibatch_size == 0,
                "algo.minibatch_size",
                self.minibatch_size,
                f"it must divide algo.batch_size ({self.batch_size}), or be null for the whole batch",
            )
        require(0 <= self.discount <= 1, "algo.discount", self.discount, "it must lie in [0, 1] (0.99)")
        require(0 <= self.gae_lambda <= 1, "algo.gae_lambda", self.gae_lambda, "it must lie in [0, 1] (0.95)")
        for name in ("policy_weight", "value_weight", "entropy_weight"):
            require(getattr(self, name) >= 0, f"algo.{name}", getattr(self, name), "it must be 0 or more")
        if self.max_grad_norm is not None:
            require(
                self.max_grad_norm > 0,
                "algo.max_grad_norm",
                self.max_grad_norm,
                "it must be above 0, or null for no clipping",
            )
        if self.max_staleness is not None:
            require(
                self.max_staleness >= 0,
                "algo.max_staleness",
                self.max_staleness,
                "it must be 0 or more, or null for no limit",
            )
        require(
            self.precision in ("auto", "fp32", "bf16"),
            "algo.precision",
            self.precision,
            "choose auto, fp32 or bf16",
        )

    @property
    def unrolls_per_batch(self) -> int:
        return self.batch_size // self.unroll

    @property
    def optimizer_steps_per_batch(self) -> int:
        return self.reuse * (self.batch_size // (self.minibatch_size or self.batch_size))

    @abstractmethod
    def estimate(self, x: EstimateInputs) -> Targets:
        """Advantages and value targets of a batch, from current values; called once a batch."""

    @abstractmethod
    def policy_loss(self, log_prob: Tensor, steps: Steps) -> Tensor:
        """The policy's part of the loss, before its weight."""

    def value_loss(self, value: Tensor, steps: Steps) -> Tensor:
        """The critic's part of the loss, before its weight; value [N, K] in the critic's units."""
        return value_error(value, steps.target, steps.head_weight)

    def loss(self, outputs: Outputs, steps: Steps, distribution: ActionDistribution) -> Loss:
        """The loss to minimise on some steps, and its parts."""
        share = shares(steps.share)
        steps = steps._replace(share=share)
        log_prob, entropies = distribution.log_prob_and_entropy(outputs.logits, steps.actions, steps.masks)
        policy = self.policy_loss(log_prob, steps)
        value = self.value_loss(outputs.value, steps)
        entropy = entropies.dot(share)
        total = self.policy_weight * policy + self.value_weight * value - self.entropy_weight * entropy
        log_ratio = log_prob.detach() - steps.log_prob
        divergence = (log_ratio.expm1() - log_ratio).dot(share)
        parts = {"policy_loss": policy, "value_loss": value, "entropy": entropy, "kl": divergence}
        return Loss(total, {name: part.detach() for name, part in parts.items()})
