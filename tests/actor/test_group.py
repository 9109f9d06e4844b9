"""A group answers each player by its own member, and keeps what each recorded apart."""

import numpy as np
import pytest
import torch

from lamarckian_cli.actor.buffers import UnrollBuffer
from lamarckian_cli.actor.group import PolicyGroup
from lamarckian_cli.actor.rollout import Rollout
from lamarckian_cli.mdp.broadside import Broadside
from lamarckian_cli.mdp.pong import Pong
from lamarckian_cli.model.architecture import Architecture
from lamarckian_cli.model.distribution import ActionDistribution
from lamarckian_cli.model.flat import FlatParameters
from lamarckian_cli.model.inference import NumpyInference
from lamarckian_cli.model.network import Network
from lamarckian_cli.records import Weights

NAMES = ("m0", "m1", "m2")
MATCHES, T = 6, 5
ARCHITECTURE = Architecture(policy=(16, 8), critic=(8,))


class Shuffled(PolicyGroup):
    """Players come to wait in any order, and not all at once."""

    def answer(self):
        np.random.default_rng(len(self.waiting)).shuffle(self.waiting)
        late = [self.waiting.pop()] if len(self.waiting) > 1 else []
        super().answer()
        self.waiting = late


def play(mdp, rounds, group_class=PolicyGroup, seed=0):
    """Unrolls and results of a group of three over some rounds, and the members' vectors."""
    seat = mdp.describe().seats[0]
    size = FlatParameters(Network(seat, ARCHITECTURE), bf16=False).vector.numel()
    rng = np.random.default_rng(3)
    vectors = {name: 0.5 * rng.standard_normal(size).astype(np.float32) for name in NAMES}
    group = group_class(
        NAMES,
        seat,
        ARCHITECTURE,
        slots=MATCHES,
        seed=1,
        buffer=UnrollBuffer("group", seat, MATCHES, T),
    )
    for version, (name, vector) in enumerate(vectors.items()):
        group.load(Weights(policy=name, version=10 + version, vector=vector))
    rollout = Rollout(mdp, {0: group}, matches=MATCHES, seed=seed)
    unrolls, results = [], []
    for _ in range(rounds):
        rollout.step()
        unrolls += rollout.take(1)
        results += rollout.pop_results()
    rollout.close()
    return seat, vectors, unrolls, results


@pytest.mark.parametrize(
    ("mdp", "group_class"),
    [(Pong, PolicyGroup), (Broadside, PolicyGroup), (Pong, Shuffled)],
    ids=["together", "each in its own time", "in any order"],
)
def test_recorded_probabilities_are_those_of_the_members_own_network(mdp, group_class):
    seat, vectors, unrolls, _ = play(mdp(), 400, group_class)
    distribution = ActionDistribution(seat.heads, "cpu")
    seen = set()
    for one in unrolls:
        own = NumpyInference(seat, ARCHITECTURE)
        own.load(vectors[one.policy])
        steps = one.reward.shape[0] * T
        inputs = tuple(x[:, :T].reshape(steps, *x.shape[2:]) for x in one.inputs)
        expected, _ = distribution.log_prob_and_entropy(
            torch.from_numpy(own(inputs).copy()),
            tuple(torch.from_numpy(a.reshape(steps, *a.shape[2:])) for a in one.actions),
            tuple(None if m is None else torch.from_numpy(m.reshape(steps, -1)) for m in one.masks),
        )
        decided = one.decided.reshape(-1)  # where a script chose, the probability is nobody's
        np.testing.assert_allclose(one.log_prob.reshape(-1)[decided], expected[decided], rtol=1e-3, atol=1e-4)
        assert (one.version == 10 + NAMES.index(one.policy)).all()
        seen.add(one.policy)
    assert seen == set(NAMES)


def test_results_go_by_the_name_and_version_of_the_member():
    _, _, _, results = play(Pong(), 3000)
    played = {name: [r for r in results if r.policy == name] for name in NAMES}
    assert all(len(of_one) >= 2 for of_one in played.values())
    assert {r.version for r in played["m2"]} == {12}


def test_members_hand_over_only_what_reaches_the_minimum():
    seat, _, _, _ = play(Pong(), 1)
    buffer = UnrollBuffer("group", seat, MATCHES, T)
    group = PolicyGroup(NAMES, seat, ARCHITECTURE, slots=MATCHES, seed=1, buffer=buffer)
    rollout = Rollout(Pong(), {0: group}, matches=MATCHES, seed=0)
    for _ in range(T + 1):
        rollout.step()
    each = MATCHES // len(NAMES)
    assert group.take(each + 1) == []
    assert [(u.policy, len(u.reward)) for u in group.take(each)] == [(name, each) for name in NAMES]
    assert group.take(1) == []


def test_players_that_cannot_be_shared_out_are_refused():
    seat = Pong().describe().seats[0]
    with pytest.raises(ValueError, match="7 players cannot be shared out evenly among 3"):
        PolicyGroup(NAMES, seat, ARCHITECTURE, slots=7, seed=0)
