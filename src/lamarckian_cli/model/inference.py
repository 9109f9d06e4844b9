"""From observations to logits where nothing is learned: what actors, `eval` and `play` run.

Small layers on numbers run in NumPy: an actor's batches are small, and between them games run,
so that torch's code for each operation is out of the processor's caches whenever it is needed
(measured at 128 observations: 200 µs in a tight loop, 400 µs between games; NumPy 150 µs). It
also spares an actor the import of torch. Images, whose convolutions are the work, run in torch.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np

from lamarckian_cli.model.architecture import Architecture
from lamarckian_cli.model.sampling import head_parts
from lamarckian_cli.records import ContinuousHead, SeatSpec

NORMALIZED_LIMIT = 10.0  # normalised observations are clipped to this many deviations
LEAK = 0.01  # slope of the leaky ReLU below 0


class Inference(Protocol):
    def load(self, vector: np.ndarray) -> None:
        """Take over a flat vector [P] float32; ValueError for one of another network."""

    def __call__(self, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
        """Logits [N, L] float32, valid until the next call, of one array [N, *shape] an input."""


def make_inference(
    seat: SeatSpec, architecture: Architecture, *, normalizes: bool = False, bf16: bool = False
) -> Inference:
    """The faster one for this seat; `bf16` concerns images alone."""
    if any(spec.is_image for spec in seat.inputs):
        from lamarckian_cli.model.network_inference import NetworkInference

        return NetworkInference(seat, architecture, normalizes=normalizes, bf16=bf16)
    return NumpyInference(seat, architecture, normalizes=normalizes)


class Place(NamedTuple):
    """Where an array lies in the flat vector."""

    start: int
    shape: tuple[int, ...]

    @property
    def end(self) -> int:
        return self.start + math.prod(self.shape)


def vector_layout(seat: SeatSpec, architecture: Architecture) -> dict[str, Place]:
    """The flat vector of a network on numbers, by the names of its parts, as FlatParameters lays it out."""
    numbers = sum(math.prod(spec.shape) for spec in seat.inputs)
    deviations = sum(head.size for head in seat.heads if isinstance(head, ContinuousHead))
    logits = head_parts(seat.heads)[-1].stop - deviations
    bodies = ("body",) if architecture.shared else ("body", "critic_body")
    statistics = [(f"{body}.{part}", (numbers,)) for body in bodies for part in ("mean", "inverse_deviation")]
    full: list[tuple[str, tuple[int, ...]]] = [("log_deviation", (deviations,))]
    low: list[tuple[str, tuple[int, ...]]] = []
    for body in bodies:
        layers = _linear(f"{body}.hidden.layers.", numbers, architecture.policy)
        full += layers[:2]
        low += layers[2:]
    hidden = (numbers, *architecture.policy)[-1]
    low += _linear("critic_hidden.layers.", hidden, architecture.critic)
    full += [("logits.weight", (logits, hidden)), ("logits.bias", (logits,))]
    width = (hidden, *architecture.critic)[-1]
    full += [("value.weight", (len(seat.rewards), width)), ("value.bias", (len(seat.rewards),))]
    places, at = {}, 0
    for name, shape in [*statistics, *full, *low]:
        places[name] = Place(at, shape)
        at = places[name].end
    return places


def _linear(prefix: str, width: int, sizes: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes of linear layers one after the other, from `width` features on."""
    parts: list[tuple[str, tuple[int, ...]]] = []
    for i, size in enumerate(sizes):
        parts += [(f"{prefix}{i}.weight", (size, width)), (f"{prefix}{i}.bias", (size,))]
        width = size
    return parts


class Layers(NamedTuple):
    """A network's arrays, as views of its flat vector; with a leading axis [M, ...] of M networks."""

    hidden: list[tuple[np.ndarray, np.ndarray]]  # weight [in, out] and bias [1, out] of each
    head: tuple[np.ndarray, np.ndarray]
    log_deviation: np.ndarray  # [1, D] of all continuous heads together
    mean: np.ndarray  # [1, numbers], as inverse_deviation
    inverse_deviation: np.ndarray

    def of(self, member: int) -> Layers:
        """One of the M networks."""
        return Layers(
            [(weight[member], bias[member]) for weight, bias in self.hidden],
            (self.head[0][member], self.head[1][member]),
            self.log_deviation[member],
            self.mean[member],
            self.inverse_deviation[member],
        )


class NumpyLayers:
    """Layers on numbers: what `NumpyInference` does for one network, and `stacked` for many."""

    def __init__(self, seat: SeatSpec, architecture: Architecture, *, normalizes: bool = False) -> None:
        self.seat = seat
        self._activation = architecture.activation
        self._normalizes = normalizes
        self._layout = vector_layout(seat, architecture)
        self._size = max(place.end for place in self._layout.values())
        self._hidden_layers = len(architecture.policy)
        self._width = head_parts(seat.heads)[-1].stop
        self._buffers: list[np.ndarray] = []
        self._scratch: np.ndarray = np.empty(0, np.float32)

    def _check(self, vector: np.ndarray) -> None:
        if vector.shape != (self._size,):
            raise ValueError(f"a vector {list(vector.shape)} for a network of [{self._size}]")

    def _layers(self, vectors: np.ndarray) -> Layers:
        """Views of [P], or of [M, P]."""

        def part(name: str) -> np.ndarray:
            place = self._layout[name]
            return vectors[..., place.start : place.end].reshape(*vectors.shape[:-1], *place.shape)

        def row(name: str) -> np.ndarray:
            return part(name)[..., None, :]

        def layer(name: str) -> tuple[np.ndarray, np.ndarray]:
            return part(f"{name}.weight").swapaxes(-1, -2), row(f"{name}.bias")

        return Layers(
            [layer(f"body.hidden.layers.{i}") for i in range(self._hidden_layers)],
            layer("logits"),
            row("log_deviation"),
            row("body.mean"),
            row("body.inverse_deviation"),
        )

    def _numbers(self, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
        flat = [x.reshape(len(x), -1).astype(np.float32, copy=False) for x in inputs]
        return flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)

    def _forward(self, x: np.ndarray, layers: Layers) -> np.ndarray:
        """Logits [..., N, L] of numbers [..., N, numbers], in buffers that the next call writes again."""
        if self._normalizes:
            x = (x - layers.mean) * layers.inverse_deviation
            np.clip(x, -NORMALIZED_LIMIT, NORMALIZED_LIMIT, out=x)
        lead = x.shape[:-1]
        count = math.prod(lead)
        if not self._buffers or count > len(self._buffers[0]):
            self._allocate(count, layers)
        for (weight, bias), buffer in zip(layers.hidden, self._buffers[1:], strict=True):
            x = np.matmul(x, weight, out=buffer[:count].reshape(*lead, -1))
            x += bias
            self._activate(x)
        weight, bias = layers.head
        numbers = np.matmul(x, weight, out=self._buffers[0][:count].reshape(*lead, -1))
        numbers += bias
        return self._with_deviations(numbers, layers) if layers.log_deviation.size else numbers

    def _activate(self, x: np.ndarray) -> None:
        if self._activation == "tanh":
            np.tanh(x, out=x)
        elif self._activation == "relu":
            np.maximum(x, np.float32(0), out=x)
        else:
            leak = self._scratch[: x.size].reshape(x.shape)
            np.multiply(x, np.float32(LEAK), out=leak)
            np.maximum(x, leak, out=x)

    def _allocate(self, count: int, layers: Layers) -> None:
        """Room for `count` rows: fresh memory at every call would cost more than some layers."""
        widths = [bias.shape[-1] for _, bias in (layers.head, *layers.hidden)]
        self._buffers = [np.empty((count, width), np.float32) for width in widths]
        self._scratch = np.empty(count * max(widths), np.float32)

    def _with_deviations(self, numbers: np.ndarray, layers: Layers) -> np.ndarray:
        logits = np.empty((*numbers.shape[:-1], self._width), np.float32)
        at = to = deviation_at = 0
        for head in self.seat.heads:
            width = head.size if isinstance(head, ContinuousHead) else head.n
            logits[..., to : to + width] = numbers[..., at : at + width]
            at, to = at + width, to + width
            if isinstance(head, ContinuousHead):
                deviation = layers.log_deviation[..., deviation_at : deviation_at + width]
                logits[..., to : to + width] = deviation
                to, deviation_at = to + width, deviation_at + width
        return logits


class NumpyInference(NumpyLayers):
    """Layers on numbers; all logits are 0 before the first `load`."""

    def __init__(self, seat: SeatSpec, architecture: Architecture, *, normalizes: bool = False) -> None:
        super().__init__(seat, architecture, normalizes=normalizes)
        self._mine = self._layers(np.zeros(self._size, np.float32))

    def load(self, vector: np.ndarray) -> None:
        self._check(vector)
        self._mine = self._layers(np.array(vector, np.float32))

    def __call__(self, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
        return self._forward(self._numbers(inputs), self._mine)
