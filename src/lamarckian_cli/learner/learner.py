"""The update: unrolls in, new weights out. The same for every algorithm.

For each batch the current network values all observations, the algorithm estimates
advantages from these values, and the loss is minimised over the batch's steps. Where a batch
is one optimizer step (the paper's PPO), one forward pass serves both: the network runs in
pieces that fit the caches, the loss is taken over the whole, and its gradient with respect to
the outputs is led back through each piece.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lamarckian_cli.errors import MDPError, RunError
from lamarckian_cli.estimators.losses import normalized, shares
from lamarckian_cli.learner.adam import Adam
from lamarckian_cli.learner.algorithm import Algorithm, EstimateInputs, Steps
from lamarckian_cli.learner.batch import Batch, UnrollQueue, to_batch
from lamarckian_cli.learner.statistics import RunningMoments
from lamarckian_cli.model.architecture import Architecture
from lamarckian_cli.model.distribution import ActionDistribution
from lamarckian_cli.model.flat import FlatParameters
from lamarckian_cli.model.network import Network, Outputs
from lamarckian_cli.model.precision import uses_bf16
from lamarckian_cli.records import SeatSpec, Unrolls, Weights
from lamarckian_cli.seeding import derive_seed

IMAGE_PIECE = 256  # rows of a forward pass that keep activations near the caches
VECTOR_PIECE = 2048  # rows whose activations stay in a core's second-level cache
BF16_ROWS = 2048  # on numbers alone, bfloat16 pays from about this many rows a step on


class Learner:
    """Learns one policy."""

    def __init__(
        self,
        policy: str,
        seat: SeatSpec,
        architecture: Architecture,
        algorithm: Algorithm,
        *,
        seed: int,
        total_env_steps: int | None = None,
        device: str = "cpu",
    ) -> None:
        self.policy = policy
        self.seat = seat
        self._architecture = architecture
        self.algorithm = algorithm
        self.device = device
        self.version = 0
        self.env_steps = 0
        self.dropped_env_steps = 0
        self.total_env_steps = total_env_steps
        self.queue = UnrollQueue()
        self.bf16 = uses_bf16(algorithm.precision, device)
        rows = algorithm.minibatch_size or algorithm.batch_size
        if algorithm.precision == "auto" and rows < BF16_ROWS and not any(i.is_image for i in seat.inputs):
            self.bf16 = False
        torch.manual_seed(derive_seed(seed, ("network", policy)))
        self.network = Network(seat, architecture)
        self.network.body.normalizes = algorithm.normalize_observations
        if self.network.critic_body is not None:
            self.network.critic_body.normalizes = algorithm.normalize_observations
        self.parameters = FlatParameters(self.network, bf16=self.bf16, device=device)
        self.distribution = ActionDistribution(seat.heads, device)
        self._optimizer = Adam(
            self.parameters.trained, self.parameters.gradient, lr=algorithm.lr, epsilon=algorithm.adam_epsilon
        )
        self._piece = IMAGE_PIECE if self.network.body.images else VECTOR_PIECE
        self._rng = np.random.Generator(np.random.PCG64(derive_seed(seed, ("minibatches", policy))))
        self._observations = RunningMoments(self.network.body.mean.numel())
        self._returns = RunningMoments(len(seat.rewards))
        self._set_per_head()

    # -------------------------------------------------------------- in and out

    def put(self, unrolls: Unrolls) -> None:
        """Take in unrolls of this policy."""
        self.queue.put(unrolls)

    def ready(self) -> bool:
        """Whether a batch is there, after dropping what is too stale."""
        limit = self.algorithm.max_staleness
        if limit is not None:
            self.dropped_env_steps += self.queue.drop_older(self.version - limit)
        return self.queue.count >= self.algorithm.unrolls_per_batch

    def take(self) -> Unrolls:
        """The unrolls of one batch, oldest first. Call it only when `ready`."""
        unrolls = self.queue.take(self.algorithm.unrolls_per_batch)
        if unrolls is None:
            raise RuntimeError("take() before a whole batch was there")
        return unrolls

    def update(self) -> dict[str, float]:
        """`take` and `learn` in one; returns what to report."""
        return self.learn(to_batch(self.take(), self.device))

    def weights(self) -> Weights:
        """A copy of what is to be published."""
        return Weights(policy=self.policy, version=self.version, vector=self.parameters.snapshot())

    def learn(self, batch: Batch) -> dict[str, float]:
        """All optimizer steps on one batch; returns scalars for the log."""
        staleness = self.version - batch.version
        self._set_learning_rate()
        if self.algorithm.normalize_observations:
            self._normalize_observations(batch)
        if self.algorithm.optimizer_steps_per_batch == 1:
            parts = self._learn_at_once(batch)
        else:
            parts = self._learn_in_minibatches(batch)
        self.env_steps += batch.steps
        report = {name: float(value) for name, value in parts.items()}
        report["staleness_mean"] = float(staleness.mean())
        report["staleness_max"] = float(staleness.max())
        report["lr"] = self._optimizer.lr
        if not math.isfinite(report["loss"]):
            self._look_for_what_is_not_finite(batch)
            raise RunError(
                f"the loss of policy {self.policy!r} became {report['loss']} at version {self.version}; "
                "lower algo.lr, or set algo.max_grad_norm=0.5 and algo.precision=fp32"
            )
        return report

    def _look_for_what_is_not_finite(self, batch: Batch) -> None:
        """Raise an MDPError where the game gave such a number; it, not the learning, is to blame."""
        given = [(f"input {spec.name!r}", x) for spec, x in zip(self.seat.inputs, batch.inputs, strict=True)]
        for what, numbers in [*given, ("a reward", batch.reward)]:
            wrong = ~numbers.float().isfinite()
            if wrong.any():
                raise MDPError(
                    f"the game of policy {self.policy!r} gave {what} of {numbers[wrong][0].item()} "
                    f"({int(wrong.sum())} such numbers in a batch); check_mdp() shows where"
                )

    # -------------------------------------------------------------- what evolution changes

    def adopt(self, algorithm: Algorithm, head_weights: tuple[float, ...] | None = None) -> None:
        """Learn by other hyperparameters from the next batch on; `head_weights` [K] of the reward heads.

        What shapes batches and unrolls must stay: raises ValueError where `unroll` or `batch_size` differ.
        """
        for name in ("unroll", "batch_size"):
            if getattr(algorithm, name) != getattr(self.algorithm, name):
                raise ValueError(f"{name} cannot change while a policy learns")
        self.algorithm = algorithm
        self._optimizer.epsilon = algorithm.adam_epsilon
        self._set_per_head(head_weights)

    def inherit(self, state: dict[str, Any]) -> None:
        """Take over weights, optimizer and statistics from another learner's `state()`, as copies.

        The version goes on counting: whatever was sampled before stays older than what comes.
        """
        version, env_steps, dropped = self.version, self.env_steps, self.dropped_env_steps
        rng = self._rng.bit_generator.state
        self.restore({**state, "rng": rng})
        self.version, self.env_steps, self.dropped_env_steps = version + 1, env_steps, dropped

    def begin_anew(self, seed: int) -> None:
        """Weights as those of a new learner with that seed, an optimizer and statistics that know nothing."""
        fresh = Learner(
            self.policy, self.seat, self._architecture, self.algorithm, seed=seed, device=self.device
        )
        self.inherit(fresh.state())

    # -------------------------------------------------------------- one optimizer step a batch

    def _learn_at_once(self, batch: Batch) -> dict[str, Tensor]:
        pieces = [self.network(inputs) for inputs in self._pieces(batch.inputs)]
        whole = Outputs(
            torch.cat([piece.logits for piece in pieces]).detach().requires_grad_(),
            torch.cat([piece.value for piece in pieces]).detach().requires_grad_(),
        )
        rows = batch.acted()
        steps = self._steps(batch, whole, rows)
        loss = self.algorithm.loss(Outputs(whole.logits[rows], whole.value[rows]), steps, self.distribution)
        self.parameters.zero_gradient()
        loss.total.backward()
        at = 0
        for piece in pieces:
            end = at + len(piece.logits)
            torch.autograd.backward(
                [piece.logits, piece.value],
                [whole.logits.grad[at:end], whole.value.grad[at:end]],  # type: ignore[index]
            )
            self.parameters.gather_gradient()
            at = end
        norm = self._step()
        return {"loss": loss.total.detach(), **loss.parts, "grad_norm": norm}

    # -------------------------------------------------------------- several

    def _learn_in_minibatches(self, batch: Batch) -> dict[str, Tensor]:
        with torch.no_grad():
            pieces = [self.network(inputs) for inputs in self._pieces(batch.inputs)]
        rows = batch.acted()
        whole = Outputs(torch.cat([p.logits for p in pieces]), torch.cat([p.value for p in pieces]))
        steps = self._steps(batch, whole, rows)
        size = self.algorithm.minibatch_size or batch.steps
        reports = []
        for _ in range(self.algorithm.reuse):
            order = torch.from_numpy(self._rng.permutation(batch.steps)).to(self.device)
            shuffled, shuffled_rows = steps.at(order), rows[order]
            for start in range(0, batch.steps, size):
                part = slice(start, start + size)
                inputs = tuple(x[shuffled_rows[part]] for x in batch.inputs)
                reports.append(self._learn_minibatch(inputs, shuffled.at(part)))
        return {name: torch.stack([r[name] for r in reports]).mean() for name in reports[0]}

    def _learn_minibatch(self, inputs: tuple[Tensor, ...], steps: Steps) -> dict[str, Tensor]:
        self.parameters.zero_gradient()
        loss = self.algorithm.loss(self.network(inputs), steps, self.distribution)
        loss.total.backward()
        self.parameters.gather_gradient()
        norm = self._step()
        return {"loss": loss.total.detach(), **loss.parts, "grad_norm": norm}

    # -------------------------------------------------------------- parts of an update

    def _pieces(self, inputs: tuple[Tensor, ...]) -> Iterator[tuple[Tensor, ...]]:
        for at in range(0, len(inputs[0]), self._piece):
            yield tuple(x[at : at + self._piece] for x in inputs)

    @torch.no_grad()
    def _steps(self, batch: Batch, outputs: Outputs, rows: Tensor) -> Steps:
        """Estimates from the current outputs, laid out as flat steps."""
        unrolls, length = batch.unrolls, batch.length
        log_prob, _ = self.distribution.log_prob_and_entropy(outputs.logits[rows], batch.actions, batch.masks)
        # A script's action has no behaviour probability: its importance weight is 1.
        behaviour = torch.where(batch.decided > 0, batch.log_prob, log_prob)
        scale = self._return_scale()
        values = outputs.value * scale
        ordinary = values[: unrolls * (length + 1)].view(unrolls, length + 1, -1).transpose(0, 1)
        next_value = ordinary[1:].clone()
        if len(batch.final_index):
            unroll, step = batch.final_index.unbind(1)
            first = unrolls * (length + 1)
            next_value[step, unroll] = values[first : first + len(batch.final_index)]
        targets = self.algorithm.estimate(
            EstimateInputs(
                log_ratio=(log_prob - behaviour).view(unrolls, length).t().unsqueeze(2),
                reward=batch.reward,
                value=ordinary[:-1],
                next_value=next_value,
                terminated=batch.terminated,
                ended=batch.ended,
                discount=self._discount,
                lam=self._lam,
            )
        )

        def flat(x: Tensor) -> Tensor:
            return x.transpose(0, 1).reshape(unrolls * length, -1)

        share = shares(batch.decided)
        advantage = (flat(targets.advantage) * self._head_weight).sum(1)
        if self.algorithm.normalize_advantages:
            advantage = normalized(advantage, share)
        target = flat(targets.value)
        old_value = outputs.value[rows]
        if self.algorithm.normalize_returns:
            self._returns.update(target.cpu().numpy())
            scale_now = self._return_scale()
            target, old_value = target / scale_now, old_value * scale / scale_now
        return Steps(
            actions=batch.actions,
            masks=batch.masks,
            log_prob=behaviour,
            advantage=advantage,
            target=target,
            old_value=old_value,
            share=share,
            head_weight=self._head_weight,
        )

    def _step(self) -> Tensor:
        gradient = self.parameters.gradient
        norm = gradient.norm()
        limit = self.algorithm.max_grad_norm
        if limit is not None:
            gradient.mul_((limit / (norm + 1e-6)).clamp(max=1.0))
        self._optimizer.step()
        self.parameters.refresh()
        self.version += 1
        return norm

    def _set_learning_rate(self) -> None:
        share = 1.0
        if self.algorithm.lr_schedule == "linear" and self.total_env_steps:
            share = max(0.0, 1.0 - self.env_steps / self.total_env_steps)
        self._optimizer.lr = self.algorithm.lr * share

    def _normalize_observations(self, batch: Batch) -> None:
        numbers = [
            x[: batch.unrolls * (batch.length + 1)].flatten(1).float()
            for spec, x in zip(self.seat.inputs, batch.inputs, strict=True)
            if not spec.is_image
        ]
        if not numbers:
            return
        self._observations.update(torch.cat(numbers, dim=1).cpu().numpy())
        for body in (self.network.body, self.network.critic_body):
            if body is not None:
                body.mean.copy_(torch.from_numpy(self._observations.mean))
                inverse = torch.from_numpy(1.0 / self._observations.deviation)
                body.inverse_deviation.copy_(inverse)

    def _return_scale(self) -> Tensor:
        """[K] what the critic's numbers are multiplied with to give returns."""
        if not self.algorithm.normalize_returns:
            return torch.ones_like(self._head_weight)
        return torch.tensor(self._returns.deviation, dtype=torch.float32, device=self.device)

    def _set_per_head(self, weights: tuple[float, ...] | None = None) -> None:
        heads, algorithm = self.seat.rewards, self.algorithm
        self._discount = self._per_head([h.discount for h in heads], algorithm.discount)
        self._lam = self._per_head([h.gae_lambda for h in heads], algorithm.gae_lambda)
        self._head_weight = self._per_head(
            [h.weight for h in heads] if weights is None else list(weights), 1.0
        )

    def _per_head(self, own: list[float | None] | list[float], default: float) -> Tensor:
        values = [default if value is None else value for value in own]
        return torch.tensor(values, dtype=torch.float32, device=self.device)

    # -------------------------------------------------------------- state

    def state(self) -> dict[str, Any]:
        """Everything that a resumed run needs, as arrays and numbers."""
        return {
            "version": self.version,
            "env_steps": self.env_steps,
            "dropped_env_steps": self.dropped_env_steps,
            "vector": self.parameters.snapshot(),
            "adam": self._optimizer.state(),
            "observations": self._observations.state(),
            "returns": self._returns.state(),
            "rng": self._rng.bit_generator.state,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from `state`; raises RunError where it is another network's."""
        if len(state["vector"]) != self.parameters.vector.numel():
            raise RunError(
                f"the checkpoint's policy {self.policy!r} has {len(state['vector'])} parameters, this "
                f"configuration's has {self.parameters.vector.numel()}; use the run's own model and env"
            )
        self.version = int(state["version"])
        self.env_steps = int(state["env_steps"])
        self.dropped_env_steps = int(state["dropped_env_steps"])
        self.parameters.load(state["vector"])
        self._optimizer.restore(state["adam"])
        self._observations.restore(state["observations"])
        self._returns.restore(state["returns"])
        self._rng.bit_generator.state = state["rng"]
