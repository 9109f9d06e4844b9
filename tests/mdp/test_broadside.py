"""Broadside shows the whole interface, and its clock waits for nobody."""

from collections.abc import Callable

import numpy as np
import pytest

from lamarckian_cli.errors import ConfigError, MDPError
from lamarckian_cli.mdp.broadside import (
    HOLD_FIRE,
    NO_OP,
    RANGE,
    SALUTE,
    TICK_S,
    Broadside,
    BroadsideMatch,
    Helm,
)
from lamarckian_cli.mdp.check import check_mdp
from lamarckian_cli.mdp.scheduler import Scheduler, sleep
from lamarckian_cli.records import Action, ContinuousHead, DiscreteHead, State

Chooser = Callable[[State], Action]


async def in_time(controller: Helm, choose: Chooser, log: list[tuple]) -> None:
    """As an actor drives: the script where there is one, nothing where nothing is decided."""
    outcome = None
    while outcome is None or not outcome.terminated:
        state = controller.state()
        action = (state.script or choose(state)) if state.decision else None
        outcome = await controller.act(action)
        log.append((state, action, controller.reward(), outcome))


async def late(controller: Helm, choose: Chooser, log: list[tuple]) -> None:
    """Thinks about every order for two and a half ticks."""
    outcome = None
    while outcome is None or not outcome.terminated:
        state = controller.state()
        await sleep(2.5 * TICK_S)
        outcome = await controller.act(state.script or (choose(state) if state.decision else None))
        log.append((state, None, controller.reward(), outcome))


async def gone(controller: Helm, choose: Chooser, log: list[tuple]) -> None:
    """Plays three steps and is not heard of again."""
    for _ in range(3):
        state = controller.state()
        await controller.act(choose(state) if state.decision else None)


def run(match: BroadsideMatch, *players: tuple) -> list[list[tuple]]:
    """Run (driver, chooser) for each controller beside the game's clock, until all is done."""
    logs: list[list[tuple]] = [[] for _ in players]
    scheduler = Scheduler()
    for controller, (drive, choose), log in zip(match.controllers, players, logs, strict=True):
        scheduler.spawn(drive(controller, choose, log))
    for tick in match.ticks:
        scheduler.spawn(tick)
    scheduler.run()
    while scheduler.advance():
        scheduler.run()
    for task in scheduler.failed:
        raise task.error
    return logs


def chance(seed: int) -> Chooser:
    """Random legal actions."""
    rng = np.random.default_rng(seed)

    def choose(state: State) -> Action:
        legal = np.flatnonzero(state.masks[1])
        return (int(rng.integers(3)), int(rng.choice(legal)), rng.uniform(-1, 1, 1).astype(np.float32))

    return choose


def good(state: State) -> Action:
    """The best shot that can be seen, with the wind allowed for."""
    bridge, chart = state.inputs
    ship = int(chart[1].argmax())
    values = [worth * (RANGE - abs(ship - place)) for place, worth in enumerate(chart[0].tolist())]
    best = int(np.argmax(values))
    helm = 0 if best == ship else 1 if best > ship else 2
    return (helm, 1 + best if values[best] > 0 else HOLD_FIRE, bridge[2:3].copy())


def idle(state: State) -> Action:
    return NO_OP


def assert_same(one: list[tuple], other: list[tuple]) -> None:
    """Equal to the bit: what was seen, done, and earned."""
    assert len(one) == len(other)
    for (state, action, *rest), (state_2, action_2, *rest_2) in zip(one, other, strict=True):
        assert [a.tobytes() for a in state.inputs] == [a.tobytes() for a in state_2.inputs]
        assert state.masks[1].tobytes() == state_2.masks[1].tobytes()
        assert state.decision == state_2.decision
        assert repr(state.script) == repr(state_2.script)
        assert repr(action) == repr(action_2)
        assert rest == rest_2


def test_it_is_a_good_mdp() -> None:
    check_mdp(Broadside())
    check_mdp(Broadside(length=2))


def test_it_shows_every_part_of_the_interface() -> None:
    for seat in Broadside().describe().seats:
        assert [(i.shape, i.dtype) for i in seat.inputs] == [((6,), "float32"), ((3, 6), "int64")]
        helm, target, elevation = seat.heads
        assert isinstance(helm, DiscreteHead)
        assert isinstance(target, DiscreteHead)
        assert isinstance(elevation, ContinuousHead)
        assert (helm.n, helm.masked, target.n, target.masked, elevation.size) == (3, False, 7, True, 1)
        assert [reward.discount for reward in seat.rewards] == [0.9, 0.99]
    (log,) = run(Broadside().reset((0,), 1), (in_time, good))
    assert len(log) == 40
    assert sum(state.script is not None for state, *_ in log) == 4
    skipped = [not state.decision for state, *_ in log]
    assert skipped[0]  # there is no step before it, yet it has a reward
    assert log[0][2][0] > 0
    assert sum(skipped) > 10
    assert any(state.masks[1].sum() < 7 for state, *_ in log)
    assert any(reward[0] > 0 for (state, _, reward, _) in log[1:] if not state.decision)


@pytest.mark.parametrize("absent", [late, gone])
@pytest.mark.parametrize("seat", [0, 1])
def test_a_player_in_time_does_not_notice_who_is_gone(absent: Callable, seat: int) -> None:
    """Gone after three steps equals holding course and fire from then on; late, wherever it is late."""
    seats = (seat, 1 - seat)
    match = Broadside().reset(seats, 9)
    orders: dict[int, Action] = {}  # by tick, the other player's orders that arrived in time
    take = match.controllers[1].take_order

    def taken() -> Action:
        orders[match.time] = take()
        return orders[match.time]

    match.controllers[1].take_order = taken
    log, _ = run(match, (in_time, chance(1)), (absent, good))
    assert len(log) == 40
    assert sum(repr(order) == repr(NO_OP) for order in orders.values()) > 20
    assert sum(repr(order) != repr(NO_OP) for order in orders.values()) >= 1

    again = Broadside().reset(seats, 9)
    replay, _ = run(again, (in_time, chance(1)), (in_time, lambda state: orders[again.time]))
    assert_same(log, replay)


def test_a_late_player_loses_no_reward_and_is_told_of_the_end() -> None:
    match = Broadside().reset((0, 1), 2)
    _, log = run(match, (in_time, good), (late, good))
    assert len(log) < 20
    assert sum(reward[0] for _, _, reward, _ in log) == pytest.approx(match.scores[1])
    assert [outcome.terminated for *_, outcome in log] == [False] * (len(log) - 1) + [True]
    assert log[-1][2][1] in (-1.0, 1.0)
    assert match.controllers[1].result()["score_self"] < match.controllers[0].result()["score_self"]


@pytest.mark.parametrize("seat", [0, 1])
def test_a_squall_sails_the_ship_of_a_player_who_is_gone(seat: int) -> None:
    match = Broadside(length=11).reset((seat,), 0)
    match.ships[seat] = 5
    run(match, (gone, idle))
    assert match.ships[seat] == 4


def test_the_last_shot_counts_at_once() -> None:
    """In a match of two ticks it is fired in the last one."""
    match = Broadside(length=2).reset((0,), 0)
    run(match, (in_time, good))
    assert match.scores[0] > SALUTE


def test_a_late_order_for_a_sunk_buoy_holds_fire() -> None:
    """It was legal when the player looked, so this is no fault of the player's."""
    match = Broadside().reset((0,), 0)
    controller = match.controllers[0]
    match.time = 1
    target = int(np.flatnonzero(controller.state().masks[1])[-1])
    match.sunk[target - 1] = 2
    waiting = controller.act((0, target, np.zeros(1, np.float32)))
    waiting.send(None)
    match._tick()
    waiting.close()
    match.close()
    assert match.loaded[0]
    assert match.time == 2


def test_the_same_seed_and_actions_give_the_same_match() -> None:
    one, again, other = (run(Broadside().reset((1,), s), (in_time, chance(0)))[0] for s in (5, 5, 6))
    assert_same(one, again)
    assert one[1][0].inputs[0].tobytes() != other[1][0].inputs[0].tobytes()


def test_both_players_see_the_same_world_from_their_own_side() -> None:
    match = Broadside().reset((0, 1), 3)
    run_log = run(match, (in_time, chance(1)), (in_time, chance(2)))
    for (one, *_), (other, *_) in zip(*run_log, strict=True):
        np.testing.assert_array_equal(one.inputs[1][[0, 2, 1]], other.inputs[1])
        np.testing.assert_array_equal(one.inputs[0][[1, 0, 2, 4]], other.inputs[0][[0, 1, 2, 4]])
        assert one.inputs[0][5] == -other.inputs[0][5]


def test_rewards_add_up_to_the_result() -> None:
    match = Broadside().reset((0, 1), 7)
    logs = run(match, (in_time, good), (in_time, chance(2)))
    for controller, log in zip(match.controllers, logs, strict=True):
        points, victory = np.sum([reward for _, _, reward, _ in log], axis=0)
        result = controller.result()
        assert points == pytest.approx(result["score_self"])
        assert victory == 2.0 * result["win"] - 1.0
        assert set(result) == set(Broadside().describe().results)


def test_good_play_beats_chance_by_far_and_each_head_counts() -> None:
    def blunt(head: int) -> Chooser:
        """Plays one head by chance, and the others well."""
        random = chance(1)

        def choose(state: State) -> Action:
            action = list(good(state))
            action[head] = random(state)[head]
            return tuple(action)

        return choose

    def score(choose: Chooser) -> float:
        total = 0.0
        for seed in range(30):
            match = Broadside().reset((0,), seed)
            run(match, (in_time, choose))
            total += match.scores[0] / 30
        return total

    best, worst = score(good), score(chance(1))
    assert best > 3 * worst
    for head in range(3):
        assert score(blunt(head)) < 0.9 * best


def test_the_built_in_player_is_as_good_as_its_skill() -> None:
    scores = []
    for skill in (0.0, 0.5, 1.0):
        total = 0.0
        for seed in range(30):
            match = Broadside(skill=skill).reset((0,), seed)
            run(match, (in_time, idle))
            total += match.scores[1]
        scores.append(total)
    assert scores == sorted(scores)
    assert scores[2] > 1.5 * scores[0]


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ((3, 0, np.zeros(1)), "seat 1 of broadside: head 'helm' is 3"),
        ((0, 2, np.zeros(1)), "seat 1 of broadside: head 'target' is 2; legal are"),
        ((0, 7, np.zeros(1)), "head 'target' is 7"),
        ((0, 0, np.zeros(2)), "head 'elevation' is"),
        ((0, 0, np.full(1, np.nan)), "head 'elevation' is"),
        ((0, 0), "the action is"),
        (None, "the action is None"),
    ],
)
def test_an_illegal_action_names_seat_head_and_action(action: Action, message: str) -> None:
    match = Broadside().reset((1,), 0)
    match.time, match.sunk[1] = 1, 2
    with pytest.raises(MDPError, match=message):
        match.controllers[0].act(action).send(None)
    match.close()


def test_after_the_end_there_is_a_final_view_but_no_action() -> None:
    match = Broadside(length=9).reset((0,), 0)  # the next tick would be a squall
    run(match, (in_time, good))
    controller = match.controllers[0]
    state = controller.state()
    assert state.inputs[0][4] == 0.0
    assert state.script is None
    with pytest.raises(MDPError, match="seat 0 of broadside acted after the end"):
        controller.act(NO_OP).send(None)


def test_a_match_may_be_closed_before_it_began() -> None:
    Broadside().reset((0, 1), 0).close()  # a warning of a coroutine never awaited would fail this


def test_bad_seats_and_values_are_refused() -> None:
    with pytest.raises(MDPError, match="broadside has seats 0 and 1"):
        Broadside().reset((2,), 0)
    with pytest.raises(ConfigError, match=r"env\.length is 1"):
        Broadside(length=1)
    with pytest.raises(ConfigError, match=r"env\.skill is 2"):
        Broadside(skill=2)


def test_the_bay_is_drawn_as_text() -> None:
    match = Broadside().reset((0,), 0)
    assert match.text().count("▲") == 2
    assert len(match.text().splitlines()) == 7
    match.close()
