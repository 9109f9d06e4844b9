"""Networks: shapes, the flat vector, and what precision may change."""

import numpy as np
import pytest
import torch

from lamarckian_cli.errors import ConfigError
from lamarckian_cli.model.architecture import Architecture
from lamarckian_cli.model.flat import FlatParameters
from lamarckian_cli.model.network import Network
from lamarckian_cli.records import ContinuousHead, DiscreteHead, InputSpec, RewardHead, SeatSpec

VECTOR = InputSpec(name="v", shape=(5,), dtype="float32")
IMAGE = InputSpec(name="i", shape=(2, 20, 20), dtype="uint8")
COUNTS = InputSpec(name="n", shape=(2, 3), dtype="int64")


def seat(*inputs, rewards=2):
    heads = (DiscreteHead(name="d", n=3), ContinuousHead(name="c", low=(-1.0, -1.0), high=(1.0, 1.0)))
    return SeatSpec(
        inputs=inputs, heads=heads, rewards=tuple(RewardHead(name=str(k)) for k in range(rewards))
    )


def some(inputs, n=6):
    generator = torch.Generator().manual_seed(0)
    made = {
        "float32": lambda shape: torch.randn(n, *shape, generator=generator),
        "uint8": lambda shape: torch.randint(0, 256, (n, *shape), dtype=torch.uint8, generator=generator),
        "int64": lambda shape: torch.randint(0, 9, (n, *shape), generator=generator),
    }
    return tuple(made[spec.dtype](spec.shape) for spec in inputs)


SMALL = Architecture(policy=(16, 8), critic=(8,), conv=((4, 4, 2), (4, 3, 1)))


@pytest.mark.parametrize("inputs", [(VECTOR,), (IMAGE,), (IMAGE, VECTOR, COUNTS)])
@pytest.mark.parametrize("shared", [True, False])
def test_outputs_have_their_shapes_and_every_parameter_learns(inputs, shared):
    arch = Architecture(policy=(16, 8), critic=(8,), conv=((4, 4, 2),), shared=shared)
    network = Network(seat(*inputs), arch)
    flat = FlatParameters(network, bf16=False)
    outputs = network(some(inputs))
    assert outputs.logits.shape == (6, 3 + 2 * 2)
    assert outputs.value.shape == (6, 2)
    ((outputs.logits + 1).square().sum() + outputs.value.square().sum()).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad.abs().sum() > 0, name
    assert flat.gradient.abs().sum() > 0


def test_the_vector_moves_the_network_and_back():
    spec = seat(IMAGE, VECTOR)
    first, second = Network(spec, SMALL), Network(spec, SMALL)
    one, two = FlatParameters(first, bf16=False), FlatParameters(second, bf16=False)
    x = some(spec.inputs)
    assert not torch.equal(first(x).logits, second(x).logits)
    two.load(one.snapshot())
    assert torch.equal(first(x).logits, second(x).logits)
    assert torch.equal(first(x).value, second(x).value)


def test_bf16_has_the_same_layout_and_nearly_the_same_outputs_and_gradients():
    spec = seat(VECTOR)
    arch = Architecture(policy=(64, 64), critic=(64,))
    exact, rough = Network(spec, arch), Network(spec, arch)
    one, two = FlatParameters(exact, bf16=False), FlatParameters(rough, bf16=True)
    two.load(one.snapshot())
    np.testing.assert_array_equal(one.snapshot(), two.snapshot())
    x = some(spec.inputs, 256)
    a, b = exact(x), rough(x)
    torch.testing.assert_close(a.value, b.value, rtol=0.05, atol=0.05)
    for out in (a, b):
        (out.logits.sum() + out.value.square().sum()).backward()
    one.gather_gradient()
    two.gather_gradient()
    cosine = torch.nn.functional.cosine_similarity(one.gradient, two.gradient, dim=0)
    assert cosine > 0.999


def test_a_vector_of_another_network_is_refused():
    flat = FlatParameters(Network(seat(VECTOR), SMALL), bf16=False)
    with pytest.raises(ValueError, match="for a network of"):
        flat.load(np.zeros(3, np.float32))


def test_normalised_observations_are_those_of_the_statistics():
    network = Network(seat(VECTOR), SMALL)
    network.body.normalizes = True
    plain = Network(seat(VECTOR), SMALL)
    FlatParameters(plain, bf16=False).load(FlatParameters(network, bf16=False).snapshot())
    mean, deviation = torch.arange(5.0), torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    network.body.mean.copy_(mean)
    network.body.inverse_deviation.copy_(1 / deviation)
    x = torch.randn(7, 5)
    torch.testing.assert_close(network((x * deviation + mean,)).value, plain((x,)).value)


def test_an_image_too_small_for_the_convolutions_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"model\.conv shrinks input 'i'"):
        Network(seat(IMAGE), Architecture())
