"""The shape of a network, as `conf/model/*.yaml` gives it."""

from __future__ import annotations

from dataclasses import dataclass

from lamarckian_cli.errors import require

ACTIVATIONS = ("leaky_relu", "relu", "tanh")


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Convolutions for images, then layers shared by policy and critic, then the critic's own.

    The paper's Table III writes policy 256-128 and critic 256-128-128-64: the critic stands
    on top of the policy's layers, so here `policy=[256, 128]` and `critic=[128, 64]`.
    """

    policy: tuple[int, ...] = (256, 128)
    critic: tuple[int, ...] = (128, 64)
    shared: bool = True  # False: the critic has layers of its own from the inputs on
    conv: tuple[tuple[int, int, int], ...] = ((32, 4, 2),) * 4  # (channels, kernel, stride), images only
    activation: str = "leaky_relu"
    initial_deviation: float = 1.0  # of a continuous head's actions, in units of half its range

    def __post_init__(self) -> None:
        for key, sizes in (("model.policy", self.policy), ("model.critic", self.critic)):
            require(
                all(isinstance(n, int) and n >= 1 for n in sizes),
                key,
                list(sizes),
                "each layer needs at least 1 unit",
            )
        require(
            all(len(layer) == 3 and min(layer) >= 1 for layer in self.conv),
            "model.conv",
            [list(layer) for layer in self.conv],
            "give [channels, kernel, stride] a layer, each at least 1",
        )
        require(
            self.activation in ACTIVATIONS,
            "model.activation",
            self.activation,
            f"choose one of {', '.join(ACTIVATIONS)}",
        )
        require(
            self.initial_deviation > 0,
            "model.initial_deviation",
            self.initial_deviation,
            "it must be above 0",
        )
