"""A network's parameters and statistics as one flat float32 vector.

One vector is what an optimizer steps, what is published, and what a checkpoint holds. It is
laid out the same for everybody, whatever precision they compute in:

    [ observation statistics | parameters kept in float32 | parameters that may be bfloat16 ]

With `bf16` the last part is mirrored by a bfloat16 vector that the network computes with;
gradients are gathered in float32.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from lamarckian_cli.model.network import Network


class FlatParameters:
    """Points every parameter of `network` into one vector; `vector` [P], `gradient` [P - statistics]."""

    def __init__(self, network: Network, *, bf16: bool, device: torch.device | str = "cpu") -> None:
        network.to(device)
        self.network = network
        low = network.low_precision_parameters()
        named = dict(network.named_parameters())
        full_names = [name for name in named if name not in low]
        low_names = [name for name in named if name in low]
        buffers = list(network.named_buffers())
        self.statistics = sum(b.numel() for _, b in buffers)
        self.full_end = self.statistics + sum(named[name].numel() for name in full_names)
        tensors = [b for _, b in buffers] + [named[name] for name in full_names + low_names]
        self.vector: Tensor = torch.cat([t.detach().reshape(-1).float() for t in tensors])
        self.gradient = torch.zeros(self.vector.numel() - self.statistics, device=device)
        self.mirror = self.vector[self.full_end :].bfloat16() if bf16 else None
        self.mirror_gradient = None if self.mirror is None else torch.zeros_like(self.mirror)
        network.low_precision = torch.bfloat16 if bf16 else torch.float32

        at = 0
        for name, buffer in buffers:
            _set_buffer(network, name, self.vector[at : at + buffer.numel()].view_as(buffer))
            at += buffer.numel()
        for name in full_names:
            at = self._point(named[name], self.vector, self.gradient, at, self.statistics)
        at = 0 if bf16 else at
        for name in low_names:
            if self.mirror is not None and self.mirror_gradient is not None:
                at = self._point(named[name], self.mirror, self.mirror_gradient, at, 0)
            else:
                at = self._point(named[name], self.vector, self.gradient, at, self.statistics)

    @staticmethod
    def _point(parameter: nn.Parameter, vector: Tensor, gradient: Tensor, at: int, shift: int) -> int:
        end = at + parameter.numel()
        parameter.data = vector[at:end].view(parameter.shape)
        parameter.grad = gradient[at - shift : end - shift].view(parameter.shape)
        return end

    @property
    def trained(self) -> Tensor:
        """The part that the optimizer steps: a view."""
        return self.vector[self.statistics :]

    def refresh(self) -> None:
        """After the vector changed: bring the bfloat16 mirror up to date."""
        if self.mirror is not None:
            self.mirror.copy_(self.vector[self.full_end :])

    def gather_gradient(self) -> None:
        """Add what backward left in the bfloat16 gradients to the float32 gradient, and clear it."""
        if self.mirror_gradient is not None:
            self.gradient[self.full_end - self.statistics :] += self.mirror_gradient
            self.mirror_gradient.zero_()

    def zero_gradient(self) -> None:
        self.gradient.zero_()
        if self.mirror_gradient is not None:
            self.mirror_gradient.zero_()

    def load(self, vector: np.ndarray) -> None:
        """Take over a vector [P] float32 of the same network."""
        if vector.shape != (self.vector.numel(),):
            raise ValueError(f"a vector {list(vector.shape)} for a network of [{self.vector.numel()}]")
        with torch.no_grad():
            self.vector.copy_(torch.from_numpy(np.array(vector, dtype=np.float32)))
        self.refresh()

    def snapshot(self) -> np.ndarray:
        """A copy of the vector, [P] float32."""
        return self.vector.detach().cpu().numpy().copy()


def _set_buffer(network: nn.Module, name: str, tensor: Tensor) -> None:
    path, _, leaf = name.rpartition(".")
    network.get_submodule(path)._buffers[leaf] = tensor
