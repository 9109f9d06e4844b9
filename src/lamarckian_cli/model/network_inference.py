"""Inference by the learner's own network, in torch: for seats that see images."""

from __future__ import annotations

import numpy as np
import torch

from lamarckian_cli.model.architecture import Architecture
from lamarckian_cli.model.flat import FlatParameters
from lamarckian_cli.model.network import Network
from lamarckian_cli.records import SeatSpec


class NetworkInference:
    """An Inference; weights are random before the first `load`."""

    def __init__(self, seat: SeatSpec, architecture: Architecture, *, normalizes: bool, bf16: bool) -> None:
        self.network = Network(seat, architecture)
        self.network.body.normalizes = normalizes
        self._parameters = FlatParameters(self.network, bf16=bf16)

    def load(self, vector: np.ndarray) -> None:
        self._parameters.load(vector)

    @torch.inference_mode()
    def __call__(self, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
        logits: np.ndarray = self.network.policy(tuple(torch.from_numpy(x) for x in inputs)).numpy()
        return logits
