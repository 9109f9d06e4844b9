"""The simulated cluster in cases that can be worked out by hand, and against itself."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from lamarckian_cli.bench.simulation import Costs, Figures, Setup, simulate
from lamarckian_cli.bench.simulation_network import (
    Broadcast,
    Handling,
    Plan,
    Transport,
    broadcast_plan,
    dealt_out,
    slowed,
)
from lamarckian_cli.errors import ConfigError
from lamarckian_cli.transport.tree import Wire, children, predicted_s, square_root_fanout

INSTANT = Wire(bytes_per_s=math.inf)
TEN_GBIT = Wire(bytes_per_s=1.25e9, latency_s=5e-5)
GAME = Costs(
    step_rate=1000,
    forward_rate=4000,
    bytes_per_step=500,
    weights_bytes=1e6,
    matches=4,
    unroll=32,
    batch_size=1024,
    update_s=0.01,
)
STEADY = Setup(cores=1, deviation=0.0, unevenness=0.0)
SERVICE_RATE = 800.0  # env steps a second of one actor of GAME


def run(costs: Costs = GAME, wire: Wire = INSTANT, **setup: object) -> Figures:
    return simulate(costs, replace(STEADY, **setup), wire=wire)


def test_one_actor_without_a_network_gives_its_service_rate() -> None:
    figures = run(queue_batches=3.0)
    assert figures.env_steps_per_s == pytest.approx(SERVICE_RATE)
    assert figures.cpu_use == pytest.approx(1 / 40)
    assert figures.learner_use == pytest.approx(SERVICE_RATE / 1024 * 0.01)


def test_what_handing_over_costs_is_added_to_the_service_time() -> None:
    transport = Transport(actor=Handling(message_s=0.01, byte_s=1e-8))
    figures = simulate(GAME, replace(STEADY, queue_batches=3.0), wire=INSTANT, transport=transport)
    unroll_s = 128 / SERVICE_RATE + 0.01 + 128 * 500 * 1e-8
    assert figures.env_steps_per_s == pytest.approx(128 / unroll_s)


def test_many_actors_are_bound_by_the_learner() -> None:
    slow = replace(GAME, update_s=0.5)
    figures = run(slow, cores=40, queue_batches=3.0)
    assert figures.env_steps_per_s == pytest.approx(1024 / 0.5)
    assert figures.learner_use == pytest.approx(1.0)
    assert figures.cpu_use == pytest.approx(1024 / 0.5 / SERVICE_RATE / 40, rel=0.02)


def test_many_actors_are_bound_by_the_learners_link() -> None:
    wire = Wire(bytes_per_s=2e6)
    figures = run(cores=80, cores_per_machine=10, wire=wire, queue_batches=3.0)
    assert figures.env_steps_per_s == pytest.approx(2e6 / 500, rel=0.01)


def test_or_by_what_the_learner_spends_on_each_message() -> None:
    transport = Transport(learner=Handling(message_s=0.05))
    setup = replace(STEADY, cores=40, cores_per_machine=10, queue_batches=3.0)
    figures = simulate(GAME, setup, wire=INSTANT, transport=transport)
    assert figures.env_steps_per_s == pytest.approx(128 / 0.05, rel=0.01)


@pytest.mark.parametrize("cores", [8, 80])
def test_fresh_data_where_nothing_is_sampled_ahead(cores: int) -> None:
    """All actors together sample exactly a batch, wait for its update, and go on with new weights.

    Each then plays the action that it chose before the wait.
    """
    costs = replace(GAME, batch_size=cores * 4 * 32)
    figures = run(costs, cores=cores, queue_batches=0.0)
    stale_share = 1 / costs.unroll  # the first action was chosen before the wait
    assert figures.staleness_mean == pytest.approx(stale_share)
    assert figures.staleness_paper == pytest.approx(1 + stale_share)
    assert figures.env_steps_per_s == pytest.approx(costs.batch_size / (0.01 + costs.sampling_s), rel=0.01)


def test_the_paper_counts_batches_and_begins_at_one() -> None:
    figures = run(replace(GAME, optimizer_steps=4), cores=16)
    assert figures.staleness_mean > 0
    assert figures.staleness_paper == pytest.approx(1 + figures.staleness_mean / 4)


@pytest.mark.parametrize("layout", ["flat", "tree", "per_actor"])
def test_egress_is_the_fan_out_times_the_size(layout: str) -> None:
    figures = run(cores=90, cores_per_machine=10, layout=layout, wire=TEN_GBIT)
    copies = {"flat": 9, "tree": square_root_fanout(9), "per_actor": 90}[layout]
    assert figures.machines == 9
    assert figures.egress_bytes_per_version == copies * 1e6
    versions_per_s = figures.env_steps_per_s / 1024 * figures.versions_sent
    assert figures.egress_bytes_per_s == pytest.approx(versions_per_s * copies * 1e6)


def test_versions_that_do_not_fit_the_link_are_skipped() -> None:
    slow = Wire(bytes_per_s=1e8)
    free = replace(GAME, bytes_per_step=0.0)
    figures = run(free, cores=400, cores_per_machine=10, layout="flat", wire=slow, queue_batches=math.inf)
    assert figures.versions_sent < 0.1
    assert figures.egress_bytes_per_s == pytest.approx(1e8, rel=0.05)


@pytest.mark.parametrize(
    "setup", [{"cores": 7}, {"cores": 200, "lockstep": 8}, {"cores": 500, "layout": "flat"}]
)
def test_no_unroll_is_lost_or_made_up(setup: dict[str, object]) -> None:
    figures = run(wire=TEN_GBIT, deviation=0.2, **setup)
    assert figures.sampled_unrolls == figures.learned_unrolls + figures.waiting_unrolls


def test_the_same_seed_gives_the_same_figures() -> None:
    setup = Setup(cores=100, deviation=0.1)
    first, second, other = (simulate(GAME, setup, wire=TEN_GBIT, seed=seed) for seed in (1, 1, 2))
    assert first == second
    assert first != other


@pytest.mark.parametrize("update_s", [0.001, 0.1], ids=["bound by sampling", "bound by the learner"])
@pytest.mark.parametrize("layout", ["flat", "tree"])
def test_neighbours_in_lockstep_are_like_single_actors(layout: str, update_s: float) -> None:
    costs = replace(GAME, update_s=update_s, batch_size=16_384)
    one, all_of_a_machine = (
        simulate(
            costs,
            Setup(cores=320, cores_per_machine=20, layout=layout, lockstep=lockstep),
            wire=TEN_GBIT,
            transport=Transport(agent=Handling(message_s=2e-4, byte_s=1e-9)),
        )
        for lockstep in (1, 20)
    )
    assert all_of_a_machine.members == 20
    assert all_of_a_machine.env_steps_per_s == pytest.approx(one.env_steps_per_s, rel=0.05)
    assert all_of_a_machine.cpu_use == pytest.approx(one.cpu_use, rel=0.05)
    assert all_of_a_machine.staleness_mean == pytest.approx(one.staleness_mean, rel=0.05, abs=0.1)


def test_lockstep_never_spans_machines() -> None:
    assert Setup(cores=100_000).members == 40
    assert Setup(cores=100).members == 1
    assert Setup(cores=100_000, cores_per_machine=8).members == 8


@pytest.mark.parametrize("layout", ["flat", "tree"])
def test_more_cores_give_no_less_and_a_slower_learner_no_more(layout: str) -> None:
    rates = [
        run(cores=n, layout=layout, wire=TEN_GBIT, queue_batches=3.0).env_steps_per_s for n in (1, 8, 64, 512)
    ]
    assert all(more >= 0.99 * less for less, more in itertools.pairwise(rates))
    updates = [
        run(replace(GAME, update_s=s), cores=64, layout=layout, wire=TEN_GBIT) for s in (0.01, 0.1, 1.0)
    ]
    rates = [figures.env_steps_per_s for figures in updates]
    assert rates == sorted(rates, reverse=True)


def test_the_tree_is_fresher_where_the_link_is_short() -> None:
    """Enough copies for a flat broadcast to take longer than an update; nobody is held back by it."""
    costs = replace(GAME, bytes_per_step=10, update_s=0.05, batch_size=65_536)
    tree, flat, per_actor = (
        run(costs, cores=800, layout=layout, wire=Wire(bytes_per_s=1.25e8), queue_batches=math.inf)
        for layout in ("tree", "flat", "per_actor")
    )
    assert tree.staleness_mean < flat.staleness_mean < per_actor.staleness_mean
    assert tree.egress_bytes_per_version < flat.egress_bytes_per_version < per_actor.egress_bytes_per_version


def test_a_game_that_only_waits_takes_no_processor() -> None:
    waiting = replace(GAME, step_rate=100, forward_rate=1e9, step_cpu=0.0)
    figures = run(
        waiting, cores=8, cores_per_machine=2, wire=Wire(bytes_per_s=1.25e7), queue_batches=math.inf
    )
    assert figures.env_steps_per_s == pytest.approx(8 * 100, rel=0.01)
    assert figures.cpu_use == pytest.approx(0.0, abs=1e-4)


def test_weights_that_come_slowly_but_regularly_make_nobody_impatient() -> None:
    """Patience grows with the time between them: only full queues hold actors back."""
    slow = replace(GAME, update_s=10.0)
    patient, ordinary = (
        run(slow, cores=40, queue_batches=0.0, patience_s=patience_s) for patience_s in (1000.0, 1.0)
    )
    assert ordinary.staleness_mean == pytest.approx(patient.staleness_mean)
    assert ordinary.env_steps_per_s == pytest.approx(patient.env_steps_per_s)


def test_the_version_of_each_step_is_the_one_that_was_there_before_its_round() -> None:
    """Of one actor whose unroll is a batch: the last batch's update ends within the eleventh of 32 rounds.

    The first action was chosen in the round before, and those of the rounds that had begun by then follow.
    """
    costs = replace(GAME, matches=4, batch_size=4 * 32, update_s=10.3 * GAME.sampling_s / 32)
    figures = run(costs, queue_batches=math.inf)
    assert figures.staleness_mean == pytest.approx((1 + 11) / 32, abs=0.01)


# ------------------------------------------------------------------ the network alone


@pytest.mark.parametrize("machines", [1, 2, 3, 9, 150, 2500])
def test_a_tree_is_there_when_its_arithmetic_says(machines: int) -> None:
    plan = broadcast_plan("tree", (40,) * machines, 1e6, TEN_GBIT)
    fanout = square_root_fanout(machines)
    assert plan.copies == fanout
    assert max(plan.delay_s) == pytest.approx(predicted_s(1_000_000, machines, fanout, TEN_GBIT))
    assert plan.copies + sum(plan.relayed) == machines
    assert max(plan.relayed) <= plan.copies


def test_a_flat_broadcast_takes_its_copies_one_after_the_other() -> None:
    plan = broadcast_plan("flat", (40, 40, 20), 1e6, TEN_GBIT)
    assert plan.delay_s == pytest.approx((3e6 / 1.25e9 + 5e-5,) * 3)
    assert broadcast_plan("per_actor", (40, 40, 20), 1e6, TEN_GBIT).copies == 100


def test_a_machine_has_a_version_from_its_arrival_on() -> None:
    plan = Plan(copies=1, delay_s=(1.0, 3.0), period_s=4.0, relayed=(1, 0))
    broadcast = Broadcast(plan, unevenness=0.0, rng=np.random.default_rng(0))
    assert broadcast.branches == [[0, 1]]
    for start, version in ((10.0, 2), (20.0, 6)):
        broadcast.newest = version
        assert broadcast.idle() == [0]
        assert broadcast.begin(start, 0) == start + 4
        assert broadcast.idle() == []
        assert not broadcast.end(0)
    assert broadcast.sent == 2
    assert [broadcast.version(0, t) for t in (10.9, 11.0, 20.9, 21.0)] == [0, 2, 2, 6]
    assert broadcast.version(1, 21.0) == 2
    assert broadcast.arrived_at(1, 22.0) == 13.0
    assert [broadcast.between_s(0, t) for t in (10.9, 11.0, 21.0)] == [0.0, 11.0, 10.0]
    assert broadcast.arrival_of(3, 1) == 23.0
    assert broadcast.arrival_of(7, 1) is None
    mean = (broadcast.integral(0, 22.0) - broadcast.integral(0, 20.0)) / 2
    assert mean == pytest.approx((2 + 6) / 2)


def test_a_branch_is_a_relay_with_its_leaves() -> None:
    plan = broadcast_plan("tree", (40,) * 8, 1e6, TEN_GBIT)
    broadcast = Broadcast(plan, unevenness=0.0, rng=np.random.default_rng(0))
    assert broadcast.branches == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert [1 + len(children(rank, 3, 8)) for rank in (1, 2, 3)] == [3, 3, 2]


def test_on_a_full_link_each_branch_gets_versions_at_moments_of_its_own_and_as_many() -> None:
    plan = broadcast_plan("flat", (40,) * 4, 1e6, Wire(bytes_per_s=4e6))
    broadcast = Broadcast(plan, unevenness=0.2, rng=np.random.default_rng(0))
    free = [0.0] * 4
    while min(free) < 1000:
        branch = free.index(min(free))
        broadcast.newest += 1
        free[branch] = broadcast.begin(free[branch], branch)
        assert broadcast.end(branch) is False
    arrivals = [broadcast.arrived_at(machine, 500.0) for machine in range(4)]
    assert len(set(arrivals)) == 4
    assert broadcast.sent_off == pytest.approx([1000] * 4, rel=0.05)
    assert broadcast.sent == pytest.approx(1000, rel=0.05)


def test_a_link_is_as_fast_as_who_fills_it() -> None:
    assert slowed(TEN_GBIT, Handling(byte_s=2e-9)).bytes_per_s == pytest.approx(5e8)
    assert slowed(TEN_GBIT, Handling()).bytes_per_s == pytest.approx(1.25e9)


def test_actors_are_dealt_out_evenly() -> None:
    assert dealt_out(60, 40) == (30, 30)
    assert dealt_out(41, 40) == (21, 20)
    assert dealt_out(7, 40) == (7,)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"step_rate": 0}, "costs.step_rate is 0; it must be above 0"),
        ({"update_s": -1.0}, "costs.update_s is -1.0"),
        ({"matches": 0}, "costs.matches is 0"),
        ({"bytes_per_step": -1}, "costs.bytes_per_step is -1"),
        ({"step_cpu": 2}, "costs.step_cpu is 2"),
        ({"batch_size": 1000}, "costs.batch_size is 1000; it must be a multiple"),
    ],
)
def test_costs_that_cannot_be_are_named(change: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replace(GAME, **change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cores": 0}, "setup.cores is 0"),
        ({"queue_batches": -1}, "setup.queue_batches is -1"),
        ({"patience_s": 0}, "setup.patience_s is 0"),
        ({"lockstep": 0}, "setup.lockstep is 0"),
    ],
)
def test_setups_that_cannot_be_are_named(change: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replace(STEADY, **change)
    with pytest.raises(ConfigError, match="layout is 'star'; choose one of flat"):
        run(layout="star")
