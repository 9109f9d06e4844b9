"""The learner against a plain re-implementation of one update, and what it promises besides."""

import copy
import math

import numpy as np
import pytest
import torch

from lamarckian_cli.errors import ConfigError, MDPError, RunError
from lamarckian_cli.learner.batch import UnrollQueue, to_batch
from lamarckian_cli.learner.impala import IMPALA
from lamarckian_cli.learner.learner import Learner
from lamarckian_cli.learner.ppo import PPO
from lamarckian_cli.learner.statistics import RunningMoments
from lamarckian_cli.model.architecture import Architecture
from lamarckian_cli.records import DiscreteHead, InputSpec, RewardHead, SeatSpec, Unrolls

SEAT = SeatSpec(
    inputs=(InputSpec(name="v", shape=(4,), dtype="float32"),),
    heads=(DiscreteHead(name="a", n=3), DiscreteHead(name="b", n=5, masked=True)),
    rewards=(RewardHead(name="x", discount=0.9, weight=2.0), RewardHead(name="y", gae_lambda=0.5)),
)
ARCH = Architecture(policy=(16,), critic=(8,))
B, T = 6, 8


def unrolls(seed=0, b=B, version=0):
    rng = np.random.default_rng(seed)
    truncated = rng.random((b, T)) < 0.1
    terminated = (rng.random((b, T)) < 0.1) & ~truncated
    index = np.argwhere(truncated).astype(np.int64)
    mask = rng.random((b, T, 5)) < 0.6
    mask[..., 0] = True
    second = np.array([[rng.choice(np.flatnonzero(m)) for m in row] for row in mask])
    return Unrolls(
        policy="main",
        inputs=(rng.normal(size=(b, T + 1, 4)).astype(np.float32),),
        masks=(None, mask),
        actions=(rng.integers(3, size=(b, T)), second.astype(np.int64)),
        log_prob=(-2.5 + 0.3 * rng.normal(size=(b, T))).astype(np.float32),
        reward=rng.normal(size=(b, T, 2)).astype(np.float32),
        terminated=terminated,
        truncated=truncated,
        decided=rng.random((b, T)) < 0.9,
        version=np.full((b, T), version, np.int64),
        final_inputs=(rng.normal(size=(len(index), 4)).astype(np.float32),),
        final_index=index,
    )


def algorithm(cls=PPO, **changes):
    keys = {"batch_size": B * T, "unroll": T, "precision": "fp32", "lr": 1e-3, "max_grad_norm": 0.7}
    return cls(**{**keys, **changes})


def reference_update(learner, data, algo):
    """One PPO update, step by step in plain PyTorch; returns the gradient, flat, before clipping."""
    network = copy.deepcopy(learner.network)
    for p in network.parameters():
        p.grad = None
    gamma, lam, weight = [0.9, algo.discount], [algo.gae_lambda, 0.5], [2.0, 1.0]
    x = torch.from_numpy(data.inputs[0])
    out = network((x.reshape(-1, 4),))
    value = out.value.view(B, T + 1, 2)
    advantage = torch.zeros(B, T, 2)
    with torch.no_grad():
        for b in range(B):
            for k in range(2):
                running = 0.0
                for t in reversed(range(T)):
                    following = value[b, t + 1, k]
                    if data.truncated[b, t]:
                        i = [tuple(r) for r in data.final_index.tolist()].index((b, t))
                        final = torch.from_numpy(data.final_inputs[0][i : i + 1])
                        following = network((final,)).value[0, k]
                    if data.terminated[b, t]:
                        following = 0.0
                    delta = data.reward[b, t, k] + gamma[k] * following - value[b, t, k]
                    if data.terminated[b, t] or data.truncated[b, t]:
                        running = 0.0
                    running = delta + gamma[k] * lam[k] * running
                    advantage[b, t, k] = running
        target = advantage + value[:, :-1]
        joint = sum(weight[k] * advantage[..., k] for k in range(2))
        decided = torch.from_numpy(data.decided)
        chosen = joint[decided]
        joint = (joint - chosen.mean()) / (chosen.std(unbiased=False) + 1e-8)
    logits = out.logits.view(B, T + 1, 8)[:, :-1]
    first = torch.log_softmax(logits[..., :3], -1)
    second = torch.log_softmax(logits[..., 3:].masked_fill(~torch.from_numpy(data.masks[1]), -math.inf), -1)
    log_prob = (
        first.gather(-1, torch.from_numpy(data.actions[0])[..., None])
        + second.gather(-1, torch.from_numpy(data.actions[1])[..., None])
    )[..., 0]
    plogp = second.exp() * second.masked_fill(~torch.from_numpy(data.masks[1]), 0.0)
    entropy = -(first.exp() * first).sum(-1) - plogp.sum(-1)
    ratio = (log_prob - torch.from_numpy(data.log_prob)).exp()
    surrogate = torch.minimum(ratio * joint, ratio.clamp(1 - algo.clip, 1 + algo.clip) * joint)
    value_loss = sum(0.5 * weight[k] * (value[:, :-1, k] - target[..., k]).square().mean() for k in range(2))
    loss = (
        -algo.policy_weight * surrogate[decided].mean()
        + algo.value_weight * value_loss
        - algo.entropy_weight * entropy[decided].mean()
    )
    loss.backward()
    return loss.item(), {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}


def test_an_update_at_once_has_the_gradient_of_the_plain_formula():
    algo = algorithm()
    learner = Learner("main", SEAT, ARCH, algo, seed=0)
    learner._piece = 17  # several pieces, none of them a multiple of an unroll
    data = unrolls()
    before = learner.parameters.snapshot()
    loss, gradients = reference_update(learner, data, algo)
    norm = torch.cat([g.reshape(-1) for g in gradients.values()]).norm().item()
    learner.put(data)
    assert learner.ready()
    report = learner.update()
    assert report["loss"] == pytest.approx(loss, rel=1e-4)
    assert report["grad_norm"] == pytest.approx(norm, rel=1e-3)
    scale = min(1.0, 0.7 / norm)
    for name, parameter in learner.network.named_parameters():
        if name in gradients:
            torch.testing.assert_close(parameter.grad, gradients[name] * scale, rtol=2e-3, atol=1e-6)
    moved = learner.parameters.snapshot() - before
    assert np.abs(moved).max() == pytest.approx(algo.lr, rel=0.05), "Adam's first step is lr in size"
    assert learner.version == 1


def test_one_minibatch_of_the_whole_batch_learns_the_same_as_at_once():
    results = []
    for at_once in (True, False):
        learner = Learner("main", SEAT, ARCH, algorithm(), seed=0)
        batch = to_batch(unrolls(), "cpu")
        learner._set_learning_rate()
        (learner._learn_at_once if at_once else learner._learn_in_minibatches)(batch)
        results.append(learner.parameters.gradient.clone())
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cls", [PPO, IMPALA])
def test_a_restored_learner_goes_on_bit_for_bit(cls):
    algo = algorithm(
        cls,
        minibatch_size=12,
        reuse=2,
        normalize_observations=True,
        normalize_returns=True,
        lr_schedule="linear",
    )

    def make():
        return Learner("main", SEAT, ARCH, algo, seed=0, total_env_steps=1000)

    unbroken, first = make(), make()
    for seed in range(2):
        for learner in (unbroken, first):
            learner.put(unrolls(seed))
            learner.update()
    second = make()
    second.restore(copy.deepcopy(first.state()))
    for seed in range(2, 4):
        reports = []
        for learner in (unbroken, second):
            learner.put(unrolls(seed))
            reports.append(learner.update())
        assert reports[0] == reports[1]
    np.testing.assert_array_equal(unbroken.parameters.snapshot(), second.parameters.snapshot())
    assert unbroken.version == second.version == 4 * 2 * 4


def test_scripted_steps_train_the_value_alone():
    algo = algorithm(entropy_weight=0.0)
    data = unrolls()
    data.decided[:] = False
    learner = Learner("main", SEAT, ARCH, algo, seed=0)
    learner.put(data)
    learner.update()
    gradients = dict(learner.network.named_parameters())
    assert gradients["logits.weight"].grad.abs().sum() == 0
    assert gradients["value.weight"].grad.abs().sum() > 0


@pytest.mark.parametrize("what", ["a reward", "input 'v'"])
def test_numbers_of_the_game_that_are_not_finite_are_blamed_on_the_game(what):
    data = unrolls()
    (data.reward if what == "a reward" else data.inputs[0])[2, 3, 1] = np.inf
    learner = Learner("main", SEAT, ARCH, algorithm(), seed=0)
    learner.put(data)
    with pytest.raises(MDPError, match=f"the game of policy 'main' gave {what} of inf \\(1 such number"):
        learner.update()


def test_batches_come_in_few_sizes_however_many_matches_were_truncated():
    sizes = {len(to_batch(unrolls(seed), "cpu").inputs[0]) for seed in range(20)}
    assert len({len(unrolls(seed).final_index) for seed in range(20)}) > 3
    assert sizes <= {B * (T + 1), B * (T + 1) + 64}


def test_the_learning_rate_falls_to_zero_at_the_budget():
    algo = algorithm(lr_schedule="linear")
    learner = Learner("main", SEAT, ARCH, algo, seed=0, total_env_steps=4 * B * T)
    rates = []
    for seed in range(5):
        learner.put(unrolls(seed))
        rates.append(learner.update()["lr"] / algo.lr)
    np.testing.assert_allclose(rates, [1, 0.75, 0.5, 0.25, 0])


def test_stale_unrolls_are_dropped_and_counted():
    learner = Learner("main", SEAT, ARCH, algorithm(max_staleness=2), seed=0)
    learner.version = 5
    learner.put(unrolls(0, version=2))
    learner.put(unrolls(1, b=2, version=3))
    assert not learner.ready()
    assert learner.dropped_env_steps == B * T
    learner.put(unrolls(2, version=4))
    assert learner.ready()
    report = learner.update()
    assert report["staleness_max"] == 2
    assert report["staleness_mean"] == pytest.approx((2 * 2 + 4 * 1) / 6)


def test_the_queue_cuts_and_joins_without_mixing_rows():
    queue = UnrollQueue()
    parts = [unrolls(seed, b) for seed, b in enumerate((4, 1, 5, 3))]
    for part in parts:
        queue.put(part)
    assert queue.take(14) is None
    taken = [queue.take(3), queue.take(6), queue.take(4)]
    together = np.concatenate([p.inputs[0] for p in parts])
    np.testing.assert_array_equal(np.concatenate([t.inputs[0] for t in taken]), together)
    for unroll in taken:
        assert unroll.truncated.sum() == len(unroll.final_index)
        for b, t in unroll.final_index:
            assert unroll.truncated[b, t]
    finals = np.concatenate([t.final_inputs[0] for t in taken])
    np.testing.assert_array_equal(finals, np.concatenate([p.final_inputs[0] for p in parts]))


def test_a_loss_that_is_not_a_number_ends_the_run_with_a_remedy():
    learner = Learner("main", SEAT, ARCH, algorithm(), seed=0)
    data = unrolls()
    learner.parameters.vector.fill_(np.nan)
    learner.put(data)
    with pytest.raises(RunError, match=r"loss of policy 'main' became nan.*lower algo\.lr"):
        learner.update()


def test_a_checkpoint_of_another_network_is_refused():
    other = Learner("main", SEAT, Architecture(policy=(4,), critic=()), algorithm(), seed=0)
    with pytest.raises(RunError, match="use the run's own model and env"):
        Learner("main", SEAT, ARCH, algorithm(), seed=0).restore(other.state())


def test_running_moments_equal_those_of_all_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal(3.0, [1.0, 5.0, 0.1], size=(1000, 3))
    moments = RunningMoments(3)
    for part in np.array_split(rows, [10, 11, 500]):
        moments.update(part)
    np.testing.assert_allclose(moments.mean, rows.mean(0))
    np.testing.assert_allclose(moments.deviation, rows.std(0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": -1.0}, r"algo\.lr is -1\.0; it must lie in \(0, 10\]"),
        ({"unroll": 0}, r"algo\.unroll is 0; it must be at least 1"),
        ({"batch_size": 50}, r"algo\.batch_size is 50; it must be a multiple of algo\.unroll \(8\)"),
        ({"minibatch_size": 7}, r"algo\.minibatch_size is 7; it must divide"),
        ({"clip": 0.0}, r"algo\.clip is 0\.0"),
        ({"discount": 1.5}, r"algo\.discount is 1\.5"),
        ({"precision": "fp8"}, r"algo\.precision is 'fp8'; choose auto, fp32 or bf16"),
    ],
)
def test_bad_values_are_refused_by_name(changes, message):
    with pytest.raises(ConfigError, match=message):
        algorithm(**changes)
