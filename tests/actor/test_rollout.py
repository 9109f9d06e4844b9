"""What actors record is what the games did: every row is re-derived from the game's rules."""

import itertools
import sys
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
import torch
from clockwork import Clockwork, ClockworkController, ClockworkMatch, reward_of

from lamarckian_cli.actor.buffers import UnrollBuffer
from lamarckian_cli.actor.players import RandomPolicy
from lamarckian_cli.actor.policy import Policy
from lamarckian_cli.actor.rollout import Rollout
from lamarckian_cli.errors import MDPError
from lamarckian_cli.model.architecture import Architecture
from lamarckian_cli.model.distribution import ActionDistribution
from lamarckian_cli.model.flat import FlatParameters
from lamarckian_cli.model.network import Network
from lamarckian_cli.records import RUNNING, DiscreteHead, Weights

ARCH = Architecture(policy=(8,), critic=())
T = 5


def recorder(game, slots, name="main", seat=0):
    spec = game.describe().seats[seat]
    return Policy(name, spec, ARCH, seed=1, buffer=UnrollBuffer(name, spec, slots, T))


def sample(game, seats, *, matches, rounds, seed=4):
    rollout = Rollout(game, seats, matches=matches, seed=seed)
    unrolls = []
    for _ in range(rounds):
        rollout.step()
        unrolls += rollout.take(1)
    return rollout, unrolls


def lengths(rollout):
    return {result.result["length"] for _, result in rollout.results}


def test_every_step_is_recorded_with_its_own_observation_action_reward_and_end():
    game = Clockwork()
    policy = recorder(game, 4)
    rollout, unrolls = sample(game, {0: policy}, matches=4, rounds=60)
    assert len(unrolls) > 5
    ends = {"terminated": 0, "truncated": 0}
    for unroll in unrolls:
        (where,) = unroll.inputs
        for b in range(len(where)):
            for t in range(T):
                match, step = int(where[b, t, 0]), int(where[b, t, 1])
                action = (int(unroll.actions[0][b, t]),)
                np.testing.assert_allclose(unroll.reward[b, t], reward_of(match, step, action), rtol=1e-6)
                over = unroll.terminated[b, t] or unroll.truncated[b, t]
                if over:
                    assert where[b, t + 1, 1] == 0, "after an end comes the first step of the next match"
                    assert where[b, t + 1, 0] != match
                else:
                    assert where[b, t + 1].tolist() == [match, step + 1]
                ends["terminated"] += unroll.terminated[b, t]
                ends["truncated"] += unroll.truncated[b, t]
        for (b, t), final in zip(unroll.final_index, unroll.final_inputs[0], strict=True):
            assert unroll.truncated[b, t]
            assert final.tolist() == [where[b, t, 0], where[b, t, 1] + 1]
        assert unroll.truncated.sum() == len(unroll.final_index)
    assert min(ends.values()) > 3
    assert len(lengths(rollout)) > 3


def test_log_probabilities_are_the_networks_own():
    game = Clockwork()
    policy = recorder(game, 3)
    network = Network(policy.seat, ARCH)
    policy.load(Weights(policy="main", version=1, vector=FlatParameters(network, bf16=False).snapshot()))
    _, unrolls = sample(game, {0: policy}, matches=3, rounds=20)
    joint = ActionDistribution(policy.seat.heads)
    for unroll in unrolls:
        flat = torch.from_numpy(unroll.inputs[0][:, :-1].reshape(-1, 2))
        action = torch.from_numpy(unroll.actions[0].reshape(-1))
        with torch.no_grad():
            expected, _ = joint.log_prob_and_entropy(network.policy((flat,)), (action,), (None,))
        np.testing.assert_allclose(unroll.log_prob.reshape(-1), expected.numpy(), rtol=1e-4, atol=1e-5)
        assert unroll.decided.all()


def test_unrolls_of_a_slot_follow_each_other_without_a_gap():
    game = Clockwork()
    _, unrolls = sample(game, {0: recorder(game, 1)}, matches=1, rounds=50)
    for before, after in itertools.pairwise(unrolls):
        assert before.inputs[0][-1, -1].tolist() == after.inputs[0][0, 0].tolist()


def test_skipped_steps_are_not_recorded_and_their_reward_goes_to_the_decision_before():
    game = Clockwork(skip_every=3)
    rollout, unrolls = sample(game, {0: recorder(game, 1)}, matches=1, rounds=90)
    gained = defaultdict(dict)  # match -> step -> what was recorded
    for unroll in unrolls:
        for (match, step), reward in zip(unroll.inputs[0][0, :-1], unroll.reward[0], strict=True):
            gained[int(match)][int(step)] = reward[0]
    complete = sorted(gained)[:-1]
    assert len(complete) > 10
    for match in complete:
        expected = defaultdict(float)
        for step in range(int(rollout.results[match - 1][1].result["length"])):
            skipped = step % 3 == 0
            expected[max(1, step - skipped)] += match + step / 100  # step 0 has only a decision after it
        assert gained[match] == pytest.approx(expected), match


def test_scripted_steps_play_the_script_and_are_marked():
    game = Clockwork(script_every=3)
    _, unrolls = sample(game, {0: recorder(game, 2)}, matches=2, rounds=40)
    for unroll in unrolls:
        scripted = unroll.inputs[0][:, :-1, 1] % 3 == 1
        np.testing.assert_array_equal(unroll.decided, ~scripted)
        assert (unroll.actions[0][scripted] == 2).all()
        assert (unroll.reward[..., 1][scripted] == 2).all()


@pytest.mark.parametrize("shared", [True, False])
def test_two_seats_train_one_shared_policy_or_two(shared):
    game = Clockwork(seats=2)
    first = recorder(game, 6 if shared else 3)
    second = first if shared else recorder(game, 3, name="other", seat=1)
    rollout, unrolls = sample(game, {0: first, 1: second}, matches=3, rounds=40)
    assert {u.policy for u in unrolls} == ({"main"} if shared else {"main", "other"})
    for unroll in unrolls:
        step = unroll.inputs[0][..., 1]
        over = unroll.terminated | unroll.truncated
        assert ((step[:, 1:] == step[:, :-1] + 1) | over).all()
    assert {r.seat for _, r in rollout.results} == {0, 1}


def test_sparring_agents_record_nothing():
    game = Clockwork(seats=2)
    policy = recorder(game, 3)
    spar = RandomPolicy(game.describe().seats[1], 0)
    rollout, unrolls = sample(game, {0: policy, 1: spar}, matches=3, rounds=40)
    assert {u.policy for u in unrolls} == {"main"}
    assert rollout.env_steps == 3 * 40


def test_the_same_seed_gives_the_same_unrolls():
    def digest(seed):
        game = Clockwork()
        _, unrolls = sample(game, {0: recorder(game, 4)}, matches=4, rounds=30, seed=seed)
        return [(u.actions[0].tolist(), u.reward.tolist()) for u in unrolls]

    assert digest(4) == digest(4)
    assert digest(4) != digest(5)


def test_a_match_that_fails_is_replaced_and_the_first_error_kept():
    game = Clockwork(fail_at={2, 5})
    rollout, unrolls = sample(game, {0: recorder(game, 4)}, matches=4, rounds=60)
    assert rollout.failures == 2
    assert "the game went away" in rollout.first_failure
    for unroll in unrolls:
        assert not np.isin(unroll.inputs[0][..., 0], [2, 5]).any(), "rows of a failed match are given up"
    rollout.close()
    assert game.open == 0


def test_a_game_that_always_fails_is_given_up_with_its_first_error():
    game = Clockwork(fail_at=range(10_000))
    with pytest.raises(MDPError, match=r"10 matches in a row failed; the first error: .*the game went away"):
        sample(game, {0: recorder(game, 1)}, matches=1, rounds=100)


def test_a_game_in_which_nobody_is_ever_woken_is_named():
    game = Clockwork(hang_at=2)
    with pytest.raises(MDPError, match="clockwork hangs"):
        sample(game, {0: recorder(game, 2)}, matches=2, rounds=10)


def test_a_wrong_shape_is_told_with_seat_expected_and_actual():
    game = Clockwork(shape=(3,))
    with pytest.raises(MDPError, match=r"seat 0 gave input 'where' of shape \[2\]; describe\(\) says \[3\]"):
        sample(game, {0: recorder(game, 1)}, matches=1, rounds=5)


class ScalarReward(ClockworkController):
    def reward(self):
        return 1.0


class TooManyRewards(ClockworkController):
    def reward(self):
        return (1.0, 1.0, 1.0)


class TooFewRewards(ClockworkController):
    def reward(self):
        return (1.0,)


class NoOutcome(ClockworkController):
    async def act(self, action):
        await super().act(action)


class PlainAct(ClockworkController):
    def act(self, action):
        return RUNNING


class Quits(ClockworkController):
    async def act(self, action):
        sys.exit(3)


class Broken(ClockworkController):
    async def act(self, action):
        return {}["speed"]


@pytest.mark.parametrize(
    ("controller", "message"),
    [
        (ScalarReward, r"seat 0: reward\(\) returned 1\.0; it must return 2 numbers.*as in \(1\.0, 1\.0\)"),
        (TooFewRewards, r"seat 0: reward\(\) returned \(1\.0,\); it must return 2 numbers"),
        (TooManyRewards, r"seat 0: reward\(\) returned \(1\.0, 1\.0, 1\.0\); it must return 2 numbers"),
        (NoOutcome, r"seat 0: act\(\) must return an Outcome"),
        (PlainAct, r"seat 0: act\(\) returned nothing to await; write it as `async def act`"),
        (Quits, r"10 matches in a row.*SystemExit: 3 \(test_rollout\.py, line \d+\)"),
        (Broken, r"10 matches in a row.*KeyError: 'speed' \(test_rollout\.py, line \d+\)"),
    ],
)
def test_what_a_game_does_wrong_is_told_in_its_own_terms(controller, message):
    game = Clockwork(controller=controller)
    with pytest.raises(MDPError, match=message):
        sample(game, {0: recorder(game, 2)}, matches=2, rounds=20)


class Strided(ClockworkController):
    def state(self):
        state = super().state()
        wide = np.zeros(4, np.float32)
        wide[::2] = state.inputs[0]
        return state._replace(inputs=(wide[::2],))


class AsList(ClockworkController):
    def state(self):
        state = super().state()
        return state._replace(inputs=(state.inputs[0].tolist(),)) if self.step else state


@pytest.mark.parametrize("controller", [Strided, AsList])
def test_observations_may_lie_in_memory_as_they_like(controller):
    def taken(controller):
        game = Clockwork(controller=controller)
        _, unrolls = sample(game, {0: recorder(game, 3)}, matches=3, rounds=30)
        return [(u.inputs[0].tolist(), u.reward.tolist()) for u in unrolls]

    assert taken(controller) == taken(ClockworkController)


def test_a_restart_begins_the_games_clock_anew():
    game = Clockwork()
    rollout, _ = sample(game, {0: recorder(game, 2)}, matches=2, rounds=5)
    rollout.scheduler.now_s = 7.0
    rollout.restart(1)
    assert rollout.scheduler.now_s == 0.0
    rollout.step()


class Masked(Clockwork):
    """Its mask comes with every state."""

    def __init__(self, mask):
        super().__init__()
        self.mask = mask

    def describe(self):
        spec = super().describe()
        (seat,) = spec.seats
        return replace(spec, seats=(replace(seat, heads=(DiscreteHead(name="a", n=3, masked=True),)),))

    def reset(self, seats, seed):
        match = super().reset(seats, seed)
        for controller in match.controllers:
            plain = controller.state
            controller.state = lambda plain=plain: plain()._replace(
                masks=None if self.mask is None else (self.mask,)
            )
        return match


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.zeros(3, bool), "seat 0 has no legal choice for head 'a'"),
        (None, "seat 0 gave no mask for head 'a'; describe\\(\\) says that it is masked"),
        (np.ones(2, bool), r"seat 0 gave head 'a' a mask of shape \[2\]; it has 3 choices"),
    ],
)
def test_a_mask_that_cannot_be_is_refused(mask, message):
    game = Masked(mask)
    with pytest.raises(MDPError, match=message):
        sample(game, {0: recorder(game, 2)}, matches=2, rounds=3)


def test_a_mask_may_be_of_numbers():
    game = Masked([0, 1, 0])
    _, unrolls = sample(game, {0: recorder(game, 2)}, matches=2, rounds=20)
    for unroll in unrolls:
        assert (unroll.actions[0] == 1).all()
        assert (unroll.masks[0] == [False, True, False]).all()


def test_a_match_that_cannot_be_closed_is_counted_and_the_next_one_begins(monkeypatch):
    def close(match):
        raise OSError("the game\nkeeps it open")

    monkeypatch.setattr(ClockworkMatch, "close", close)
    game = Clockwork()
    rollout, _ = sample(game, {0: recorder(game, 2)}, matches=2, rounds=40)
    assert rollout.failures > 3
    assert "close: OSError: the game keeps it open (test_rollout.py" in rollout.first_failure
    assert game.started > 4


def test_closing_gives_every_match_back():
    game = Clockwork(seats=2)
    rollout, _ = sample(game, {0: recorder(game, 6), 1: recorder(game, 6, "b")}, matches=6, rounds=7)
    rollout.close()
    assert game.open == 0


def test_a_limit_plays_exactly_that_many_matches():
    game = Clockwork()
    policy = Policy("main", game.describe().seats[0], ARCH, seed=0, greedy=True)
    rollout = Rollout(game, {0: policy}, matches=4, seed=0, limit=11)
    while not rollout.finished:
        rollout.step()
    assert sorted(number for number, _ in rollout.results) == list(range(11))
    assert game.started == 11
