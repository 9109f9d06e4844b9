"""Policy and critic of one seat, built from its spec and an Architecture.

Inputs become features (images through convolutions, everything else flattened, normalised
where asked for), features pass the shared layers, the policy's heads and the critic stand
on top. Only the layers in between may run in bfloat16: the first layer on numbers and the
last layers, which need the digits, stay in float32.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from lamarckian_cli.errors import ConfigError
from lamarckian_cli.model.architecture import Architecture
from lamarckian_cli.model.inference import LEAK, NORMALIZED_LIMIT
from lamarckian_cli.model.sampling import head_parts
from lamarckian_cli.records import ContinuousHead, InputSpec, SeatSpec


class Outputs(NamedTuple):
    logits: Tensor  # [N, L] float32, laid out as `sampling.py` says
    value: Tensor  # [N, K] float32


class Network(nn.Module):
    """Call it for `Outputs`; `policy` gives the logits alone, which is all that an actor needs."""

    def __init__(self, seat: SeatSpec, architecture: Architecture) -> None:
        super().__init__()
        self.seat = seat
        self.architecture = architecture
        self.low_precision = torch.float32  # of the layers in between; see FlatParameters
        self.body = Body(seat.inputs, architecture)
        self.critic_body = None if architecture.shared else Body(seat.inputs, architecture)
        self.critic_hidden = Layers(self.body.width, architecture.critic, architecture.activation)
        width = head_parts(seat.heads)[-1].stop
        continuous = [head for head in seat.heads if isinstance(head, ContinuousHead)]
        self.logits = nn.Linear(self.body.width, width - sum(head.size for head in continuous))
        start = math.log(architecture.initial_deviation)
        self.log_deviation = nn.Parameter(torch.full((sum(h.size for h in continuous),), start))
        self.value = nn.Linear(self.critic_hidden.width, len(seat.rewards))
        _initialize(self)

    def forward(self, inputs: tuple[Tensor, ...]) -> Outputs:
        """Inputs: one tensor [N, *shape] per InputSpec, in its dtype."""
        hidden = self.body(inputs, self.low_precision)
        critic = hidden if self.critic_body is None else self.critic_body(inputs, self.low_precision)
        value = functional.linear(
            self.critic_hidden(critic, self.low_precision).float(), self.value.weight, self.value.bias
        )
        return Outputs(self._logits(hidden), value)

    def policy(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """Logits [N, L] float32."""
        return self._logits(self.body(inputs, self.low_precision))

    def _logits(self, hidden: Tensor) -> Tensor:
        numbers: Tensor = self.logits(hidden.float())
        if self.log_deviation.numel() == 0:
            return numbers
        pieces, at, deviation_at = [], 0, 0
        for head in self.seat.heads:
            width = head.size if isinstance(head, ContinuousHead) else head.n
            pieces.append(numbers[:, at : at + width])
            at += width
            if isinstance(head, ContinuousHead):
                deviation = self.log_deviation[deviation_at : deviation_at + width]
                pieces.append(deviation.expand(numbers.shape[0], -1))
                deviation_at += width
        return torch.cat(pieces, dim=1)

    def low_precision_parameters(self) -> set[str]:
        """Names of the parameters that may be kept in bfloat16."""
        full = {"log_deviation", "logits.weight", "logits.bias", "value.weight", "value.bias"}
        for name in ("body", "critic_body"):
            body = getattr(self, name)
            if body is not None and not body.images:
                full |= {f"{name}.hidden.layers.0.weight", f"{name}.hidden.layers.0.bias"}
        return {name for name, _ in self.named_parameters()} - full


class Body(nn.Module):
    """From a seat's inputs to hidden features [N, width]."""

    mean: Tensor  # [numbers] of the observations, which travel with the weights
    inverse_deviation: Tensor  # [numbers]

    def __init__(self, inputs: tuple[InputSpec, ...], architecture: Architecture) -> None:
        super().__init__()
        self.inputs = inputs
        self.images = any(spec.is_image for spec in inputs)
        self.convolutions = nn.ModuleList(
            Convolutions(spec, architecture) for spec in inputs if spec.is_image
        )
        numbers = sum(math.prod(spec.shape) for spec in inputs if not spec.is_image)
        self.register_buffer("mean", torch.zeros(numbers))
        self.register_buffer("inverse_deviation", torch.ones(numbers))
        self.normalizes = False
        features = numbers + sum(part.width for part in self.convolutions)  # type: ignore[misc]
        self.hidden = Layers(features, architecture.policy, architecture.activation)
        self.width = self.hidden.width

    def forward(self, inputs: tuple[Tensor, ...], low_precision: torch.dtype) -> Tensor:
        images, numbers = [], []
        convolutions = iter(self.convolutions)
        for spec, x in zip(self.inputs, inputs, strict=True):
            if spec.is_image:
                images.append(next(convolutions)(x, low_precision))
            else:
                numbers.append(x.flatten(1).float())
        if numbers:
            flat = numbers[0] if len(numbers) == 1 else torch.cat(numbers, dim=1)
            if self.normalizes:
                flat = ((flat - self.mean) * self.inverse_deviation).clamp(
                    -NORMALIZED_LIMIT, NORMALIZED_LIMIT
                )
            if not images:
                return self.hidden(flat, low_precision, first_in_full=True)  # type: ignore[no-any-return]
            images.append(flat.to(low_precision))
        features = images[0] if len(images) == 1 else torch.cat(images, dim=1)
        return self.hidden(features, low_precision)  # type: ignore[no-any-return]


class Layers(nn.Module):
    """Linear layers, each followed by the activation; no layer at all passes its input on."""

    def __init__(self, width: int, sizes: tuple[int, ...], activation: str) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for size in sizes:
            self.layers.append(nn.Linear(width, size))
            width = size
        self.width = width
        self.activation = activation

    def forward(self, x: Tensor, low_precision: torch.dtype, first_in_full: bool = False) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x if first_in_full and i == 0 else x.to(low_precision))
            x = _activate(x.to(low_precision), self.activation)
        return x


class Convolutions(nn.Module):
    """An image [N, C, H, W] of uint8 to features [N, width]."""

    def __init__(self, spec: InputSpec, architecture: Architecture) -> None:
        super().__init__()
        channels, height, width = spec.shape
        self.layers = nn.ModuleList()
        for depth, kernel, stride in architecture.conv:
            self.layers.append(nn.Conv2d(channels, depth, kernel, stride))
            channels = depth
            height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
            if height < 1 or width < 1:
                raise ConfigError(
                    f"model.conv shrinks input {spec.name!r} {list(spec.shape)} to nothing; "
                    "take fewer convolutions, or smaller kernels and strides"
                )
        self.width = channels * height * width
        self.activation = architecture.activation

    def forward(self, image: Tensor, low_precision: torch.dtype) -> Tensor:
        # Channels-last is what the processor's convolutions want; bytes are cheapest to turn round.
        x = image.contiguous(memory_format=torch.channels_last).to(low_precision).mul_(1 / 255)
        for layer in self.layers:
            x = _activate(layer(x), self.activation)
        return x.flatten(1)


def _activate(x: Tensor, activation: str) -> Tensor:
    if activation == "tanh":
        return torch.tanh(x)
    return functional.leaky_relu_(x, LEAK) if activation == "leaky_relu" else functional.relu_(x)


def _initialize(network: Network) -> None:
    """Orthogonal, gain sqrt 2 inside, 0.01 for the policy's head, 1 for the critic's; biases 0."""
    for name, module in network.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            gain = {"logits": 0.01, "value": 1.0}.get(name, math.sqrt(2))
            nn.init.orthogonal_(module.weight, gain)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
