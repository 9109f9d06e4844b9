"""What actors compute with is the learner's network: the same logits from the same vector."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from lamarckian_cli.model.architecture import Architecture
from lamarckian_cli.model.flat import FlatParameters
from lamarckian_cli.model.inference import NumpyInference, make_inference, vector_layout
from lamarckian_cli.model.network import Network
from lamarckian_cli.records import ContinuousHead, DiscreteHead, InputSpec, RewardHead, SeatSpec

VECTOR = InputSpec(name="v", shape=(5,), dtype="float32")
COUNTS = InputSpec(name="n", shape=(2, 3), dtype="int64")
IMAGE = InputSpec(name="i", shape=(2, 20, 20), dtype="uint8")
CHOICE = DiscreteHead(name="d", n=3)
FORCE = ContinuousHead(name="c", low=(-1.0, -1.0), high=(1.0, 1.0))
PUSH = ContinuousHead(name="p", low=(0.0,), high=(1.0,))
REWARDS = (RewardHead(name="x"), RewardHead(name="y"))

SEATS = {
    "choice": SeatSpec(inputs=(VECTOR,), heads=(CHOICE,)),
    "force": SeatSpec(inputs=(VECTOR,), heads=(FORCE,)),
    "everything": SeatSpec(inputs=(VECTOR, COUNTS), heads=(FORCE, CHOICE, PUSH), rewards=REWARDS),
}
ARCHITECTURES = {
    "shared": Architecture(policy=(16, 8), critic=(8,)),
    "apart": Architecture(policy=(16, 8), critic=(8, 4), shared=False, activation="tanh"),
    "deep": Architecture(policy=(16, 8, 12), critic=(), activation="relu"),
    "straight": Architecture(policy=(), critic=(8,)),
}


def trained(seat, architecture, normalizes=False):
    """A network none of whose parts is at its start, and its vector."""
    torch.manual_seed(0)
    network = Network(seat, architecture)
    network.body.normalizes = normalizes
    parameters = FlatParameters(network, bf16=False)
    parameters.vector.copy_(torch.randn_like(parameters.vector))
    return network, parameters


def observations(seat, n, seed=0):
    rng = np.random.default_rng(seed)
    return tuple((3 * rng.standard_normal((n, *spec.shape))).astype(spec.dtype) for spec in seat.inputs)


@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=ARCHITECTURES)
@pytest.mark.parametrize("seat", SEATS.values(), ids=SEATS)
@pytest.mark.parametrize("normalizes", [False, True])
def test_numpy_gives_the_networks_logits(seat, architecture, normalizes):
    network, parameters = trained(seat, architecture, normalizes)
    inference = NumpyInference(seat, architecture, normalizes=normalizes)
    inference.load(parameters.snapshot())
    for n in (1, 7, 3, 200):
        x = observations(seat, n, seed=n)
        with torch.no_grad():
            expected = network.policy(tuple(torch.from_numpy(part) for part in x)).numpy()
        np.testing.assert_allclose(inference(x), expected, rtol=2e-4, atol=2e-4 * np.abs(expected).max())


@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=ARCHITECTURES)
@pytest.mark.parametrize("seat", SEATS.values(), ids=SEATS)
def test_the_layout_names_every_number_of_the_flat_vector(seat, architecture):
    network, parameters = trained(seat, architecture)
    layout = vector_layout(seat, architecture)
    parts = {**dict(network.named_buffers()), **dict(network.named_parameters())}
    assert set(layout) == set(parts)
    vector = parameters.snapshot()
    for name, place in layout.items():
        np.testing.assert_array_equal(
            vector[place.start : place.end].reshape(place.shape), parts[name].detach().numpy()
        )
    assert sum(place.end - place.start for place in layout.values()) == len(vector)


@pytest.mark.parametrize("inputs", [(VECTOR,), (IMAGE, VECTOR)], ids=["numbers", "image"])
def test_a_vector_of_another_network_is_refused(inputs):
    inference = make_inference(SeatSpec(inputs=inputs, heads=(CHOICE,)), Architecture(conv=((4, 4, 2),)))
    with pytest.raises(ValueError, match="for a network of"):
        inference.load(np.zeros(3, np.float32))


def test_images_run_in_the_network_itself():
    seat = SeatSpec(inputs=(IMAGE, VECTOR), heads=(CHOICE,))
    architecture = Architecture(policy=(16,), critic=(), conv=((4, 4, 2),))
    network, parameters = trained(seat, architecture)
    inference = make_inference(seat, architecture)
    inference.load(parameters.snapshot())
    rng = np.random.default_rng(0)
    x = (rng.integers(0, 256, (6, *IMAGE.shape), dtype=np.uint8), rng.standard_normal((6, 5), np.float32))
    with torch.no_grad():
        expected = network.policy(tuple(torch.from_numpy(part) for part in x)).numpy()
    np.testing.assert_allclose(inference(x), expected, rtol=1e-5)


def test_an_actor_on_numbers_never_loads_torch():
    code = (
        "import sys, lamarckian_cli.launch.actor_host as host\n"
        "from lamarckian_cli.launch.assembly import build_rollout\n"
        "from lamarckian_cli.launch.casting import cast_players\n"
        "from lamarckian_cli.launch.wiring import job_of\n"
        "job = job_of(['env=pong', 'run.dir=unused'])\n"
        "mdp = job.env.make_mdp()\n"
        "rollout = build_rollout(job, mdp, cast_players(job, mdp.describe()), actor=0)\n"
        "rollout.step()\n"
        "sys.exit(sum(name in sys.modules for name in ('torch', 'ray')))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
