"""A population's forward pass is each member's own network on its own rows, whoever waits."""

import numpy as np
import pytest
import torch

from lamarckian_cli.model.architecture import Architecture
from lamarckian_cli.model.flat import FlatParameters
from lamarckian_cli.model.network import Network
from lamarckian_cli.model.stacked import make_stacked
from lamarckian_cli.records import ContinuousHead, DiscreteHead, InputSpec, SeatSpec

NUMBERS = SeatSpec(
    inputs=(InputSpec(name="v", shape=(5,), dtype="float32"),),
    heads=(DiscreteHead(name="d", n=3), ContinuousHead(name="c", low=(-1.0, -1.0), high=(1.0, 1.0))),
)
IMAGE = SeatSpec(
    inputs=(InputSpec(name="i", shape=(2, 84, 84), dtype="uint8"),), heads=(DiscreteHead(name="d", n=3),)
)
ARCHITECTURE = Architecture(policy=(16, 8), critic=(8,))
MEMBERS = 4


def population(seat, normalizes):
    """Stacked networks, and each member's own in torch."""
    stacked = make_stacked(seat, ARCHITECTURE, MEMBERS, normalizes=normalizes)
    networks = []
    torch.manual_seed(0)
    for member in range(MEMBERS):
        network = Network(seat, ARCHITECTURE)
        network.body.normalizes = normalizes
        parameters = FlatParameters(network, bf16=False)
        parameters.load(0.3 * np.random.default_rng(member).standard_normal(parameters.vector.numel()))
        stacked.load(member, parameters.snapshot())
        networks.append(network)
    return stacked, networks


def observations(seat, n):
    spec = seat.inputs[0]
    return ((3 * np.abs(np.random.default_rng(n).standard_normal((n, *spec.shape)))).astype(spec.dtype),)


@pytest.mark.parametrize("normalizes", [False, True])
@pytest.mark.parametrize("seat", [NUMBERS, IMAGE], ids=["numbers", "image"])
@pytest.mark.parametrize(
    "rows", [(2, 2, 2, 2), (1, 1, 1, 1), (3, 2, 3, 3), (0, 3, 2, 3), (0, 0, 5, 0), (9, 1, 1, 0)]
)
def test_each_row_is_answered_by_its_member(seat, normalizes, rows):
    stacked, networks = population(seat, normalizes)
    member = np.repeat(np.arange(MEMBERS), rows)
    x = observations(seat, len(member))
    with torch.inference_mode():
        expected = [networks[m].policy((torch.from_numpy(x[0][i : i + 1]),)) for i, m in enumerate(member)]
    np.testing.assert_allclose(stacked(x, member), torch.cat(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seat", [NUMBERS, IMAGE], ids=["numbers", "image"])
def test_without_members_rows_are_shared_out_evenly(seat):
    stacked, _ = population(seat, normalizes=False)
    x = observations(seat, 3 * MEMBERS)
    expected = stacked(x, np.repeat(np.arange(MEMBERS), 3)).copy()
    np.testing.assert_array_equal(stacked(x, None), expected)


@pytest.mark.parametrize("seat", [NUMBERS, IMAGE], ids=["numbers", "image"])
def test_a_members_weights_are_a_copy_and_change_nobody_elses_answers(seat):
    stacked, _ = population(seat, normalizes=False)
    x = observations(seat, MEMBERS)
    before = stacked(x, None).copy()
    size = FlatParameters(Network(seat, ARCHITECTURE), bf16=False).vector.numel()
    vector = np.ones(size, np.float32)
    stacked.load(2, vector)
    changed = stacked(x, None).copy()
    vector[:] = 7
    np.testing.assert_array_equal(stacked(x, None), changed)
    np.testing.assert_array_equal(np.delete(changed, 2, axis=0), np.delete(before, 2, axis=0))
    assert not np.array_equal(changed[2], before[2])


@pytest.mark.parametrize("seat", [NUMBERS, IMAGE], ids=["numbers", "image"])
def test_a_vector_of_another_network_is_refused(seat):
    stacked, _ = population(seat, normalizes=False)
    with pytest.raises(ValueError, match="for a network of"):
        stacked.load(0, np.zeros(3, np.float32))
