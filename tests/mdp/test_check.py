"""`check_mdp` accepts games that keep the interface and refuses broken ones by naming the fault."""

import asyncio
import itertools
import random
from dataclasses import replace

import numpy as np
import pytest

from lamarckian_cli.errors import ConfigError, MDPError
from lamarckian_cli.mdp.check import check_mdp
from lamarckian_cli.mdp.scheduler import Signal, sleep
from lamarckian_cli.records import (
    RUNNING,
    TERMINATED,
    TRUNCATED,
    ContinuousHead,
    DiscreteHead,
    InputSpec,
    MDPSpec,
    Outcome,
    RewardHead,
    SeatSpec,
    State,
)

SEAT = SeatSpec(
    inputs=(
        InputSpec(name="near", shape=(3,), dtype="float32"),
        InputSpec(name="far", shape=(2, 2), dtype="uint8"),
    ),
    heads=(
        DiscreteHead(name="move", n=4, masked=True),
        ContinuousHead(name="aim", low=(-1.0,), high=(2.0,)),
    ),
    rewards=(RewardHead(name="win"), RewardHead(name="style", discount=0.9)),
)
LENGTH = 6


class Game:
    """A sound game of two seats with everything in it; tests break one part each."""

    external = False
    spec = MDPSpec(name="game", seats=(SEAT, SEAT), builtin_seats=(0, 1), results=("score",))

    def describe(self):
        return self.spec

    def reset(self, seats, seed):
        return GameMatch(self, seats, seed)

    def close(self):
        pass

    # What a test may break. `c` is the controller.

    def inputs(self, c):
        return (np.full(3, c.steps + c.luck, np.float32), np.full((2, 2), c.steps, np.uint8))

    def masks(self, c):
        return (np.array([True, c.steps % 2 == 0, True, False]), None)

    def script(self, c):
        return (2, np.array([0.5], np.float32)) if c.steps == 1 else None

    def state(self, c):
        return State(self.inputs(c), self.masks(c), self.script(c), c.steps != 3)

    async def act(self, c, action):
        c.play(action)
        return self.outcome(c)

    def outcome(self, c):
        return (TERMINATED if c.luck < 0.5 else TRUNCATED) if c.steps == LENGTH else RUNNING

    def reward(self, c):
        return (0.5 * c.steps, c.luck)

    def result(self, c):
        return {"score": c.steps}

    def ticks(self, match):
        return ()

    def close_match(self, match):
        pass


class GameMatch:
    def __init__(self, game, seats, seed):
        self.game = game
        self.random = random.Random(seed)
        self.controllers = [GameController(game, self.random.random()) for _ in seats]
        self.ticks = game.ticks(self)

    def close(self):
        self.game.close_match(self)


class GameController:
    def __init__(self, game, luck):
        self.game = game
        self.luck = luck
        self.steps = 0

    def play(self, action):
        if self.steps == LENGTH:
            raise MDPError("the match has ended")
        assert (action is None) == (self.steps == 3)
        if action is not None:
            move, aim = action
            assert type(move) is int
            assert move in (0, 1, 2)
            assert aim.shape == (1,)
            assert aim.dtype == np.float32
        self.steps += 1

    def state(self):
        return self.game.state(self)

    def act(self, action):
        return self.game.act(self, action)

    def reward(self):
        return self.game.reward(self)

    def result(self):
        return self.game.result(self)


class Ticking(Game):
    """The world moves by a tick; players wait for it."""

    def ticks(self, match):
        match.signal = Signal()
        for controller in match.controllers:
            controller.signal = match.signal

        async def tick():
            while True:
                await sleep(0.1)
                match.signal.fire()

        return (tick(),)

    async def act(self, c, action):
        await c.signal.wait()
        return await super().act(c, action)


class External(Game):
    """Answers through asyncio futures."""

    external = True

    def ticks(self, match):
        match.answers = []
        for controller in match.controllers:
            controller.answers = match.answers

        async def tick():
            while True:
                await asyncio.sleep(0)
                waiting, match.answers[:] = list(match.answers), []
                for future in waiting:
                    if not future.done():
                        future.set_result(None)

        return (tick(),)

    async def act(self, c, action):
        future = asyncio.get_running_loop().create_future()
        c.answers.append(future)
        await future
        return await super().act(c, action)


@pytest.mark.parametrize("game", [Game, Ticking, External])
def test_accepts_a_sound_game(game):
    report = check_mdp(game(), matches=2)
    # Both seats, and each alone; each match twice by itself, beside another, and closed early.
    assert report.matches == 3 * 2 * 5
    assert report.env_steps == 2 * LENGTH * 4 * (2 + 1 + 1)


def test_accepts_the_built_in_pong():
    pong = pytest.importorskip("lamarckian_cli.mdp.pong")
    check_mdp(pong.Pong(rounds=2))


# ------------------------------------------------------------------ broken games


def broken(**parts):
    """A game with parts replaced; a part is an attribute or a method."""
    return type("Broken", (Game,), parts)()


def respec(**changes):
    return replace(Game.spec, **changes)


def reseat(**changes):
    return respec(seats=(replace(SEAT, **changes), SEAT))


def with_input(near=None, far=None):
    def inputs(self, c):
        right = Game.inputs(self, c)
        return (right[0] if near is None else near, right[1] if far is None else far)

    return broken(inputs=inputs)


def with_masks(masks):
    return broken(masks=lambda self, c: masks)


def with_script(script):
    return broken(script=lambda self, c: script)


def with_outcome(outcome):
    return broken(outcome=lambda self, c: outcome)


def with_reward(reward):
    return broken(reward=lambda self, c: reward)


def with_result(result):
    return broken(result=lambda self, c: result)


def boom(*_):
    raise RuntimeError("boom")


LEGAL = np.ones(4, bool)
AIM = np.zeros(1, np.float32)

SIMPLE = {
    "no_spec": (broken(spec={}), r"describe\(\): it returned dict, expected an MDPSpec"),
    "no_seats": (broken(spec=respec(seats=())), "names no seats"),
    "no_frames": (broken(spec=respec(frames_per_step=0)), "frames_per_step is 0"),
    "builtin_seat": (broken(spec=respec(builtin_seats=(2,))), r"builtin_seats names \[2\]"),
    "return": (broken(spec=respec(results=("return",))), "'return'"),
    "no_inputs": (broken(spec=reseat(inputs=())), "seat 0: it has no input"),
    "same_names": (broken(spec=reseat(rewards=(RewardHead(), RewardHead()))), "not all different"),
    "dtype_name": (
        broken(spec=reseat(inputs=(InputSpec(name="near", shape=(3,), dtype="float"),))),
        "dtype 'float'",
    ),
    "zero_size": (
        broken(spec=reseat(inputs=(InputSpec(name="near", shape=(0,), dtype="float32"),))),
        r"shape \(0,\)",
    ),
    "bounds": (
        broken(spec=reseat(heads=(ContinuousHead(name="aim", low=(1.0,), high=(1.0,)),))),
        "head aim has low",
    ),
    "choices": (broken(spec=reseat(heads=(DiscreteHead(name="move", n=0),))), "head move has n=0"),
    "not_a_state": (
        broken(state=lambda self, c: self.inputs(c)),
        r"state\(\) returned tuple, expected a State",
    ),
    "one_input": (broken(inputs=lambda self, c: (AIM,)), "State.inputs is 1, expected a tuple of 2"),
    "shape": (
        with_input(near=np.zeros(4, np.float32)),
        r"seat 0, step 0: input near has shape \(4,\), expected \(3,\)",
    ),
    "dtype": (with_input(far=np.zeros((2, 2), np.int64)), "input far has dtype int64, expected uint8"),
    "list": (with_input(near=[0.0, 0.0, 0.0]), "input near is list, expected an array"),
    "nan": (with_input(near=np.float32([0, np.nan, 0])), r"input near has nan at \(1,\)"),
    "no_mask": (with_masks(None), "head move is described as masked"),
    "mask_count": (with_masks((LEGAL,)), "State.masks is 1"),
    "mask_dtype": (with_masks((np.ones(4, np.int8), None)), r"dtype int8, expected \(4,\) and bool"),
    "mask_shape": (with_masks((np.ones(3, bool), None)), r"shape \(3,\)"),
    "none_legal": (with_masks((np.zeros(4, bool), None)), "leaves no legal action"),
    "mask_unmasked": (with_masks((LEGAL, np.ones(1, bool))), "head aim has a mask"),
    "decision": (broken(state=lambda self, c: State(self.inputs(c), None, None, 1)), "State.decision is 1"),
    "script_heads": (with_script((1,)), "expected a tuple of 2"),
    "script_range": (with_script((4, AIM)), "the script plays 4 in head move, expected one of 0 to 3"),
    "script_mask": (with_script((3, AIM)), "the script plays 3 in head move, which the mask says is illegal"),
    "script_bounds": (with_script((0, AIM + 3)), "the script plays .* in head aim"),
    "script_shape": (with_script((0, np.zeros(2, np.float32))), r"expected float32 of shape \(1,\)"),
    "outcome": (with_outcome(None), r"act\(\) led to None"),
    "outcome_ints": (with_outcome(Outcome(0, 0)), "whose terminated is 0"),
    "outcome_numpy": (with_outcome(Outcome(False, np.bool_(0))), "whose truncated is"),
    "one_reward": (with_reward((1.0,)), r"reward\(\) returned 1 numbers, expected 2 \(win, style\)"),
    "bare_reward": (with_reward(1.0), r"reward\(\) returned 1.0, expected 2"),
    "nan_reward": (with_reward((0.0, float("nan"))), "reward style is nan"),
    "text_reward": (with_reward((0.0, "1")), "reward style is '1'"),
    "no_end": (with_outcome(RUNNING), r"step 6: act\(.*\): it raised MDPError: the match has ended"),
    "no_result": (with_result({}), r"result\(\) lacks \['score'\]"),
    "text_result": (with_result({"score": "high"}), r"result\(\) has 'score': 'high'"),
    "list_result": (with_result([1]), r"result\(\) returned list"),
    "own_return": (with_result({"score": 1, "return": 2}), "result\\(\\) has 'return'"),
    "close_match": (broken(close_match=boom), r"match.close\(\): it raised RuntimeError: boom"),
    "close": (broken(close=boom), r"close\(\): it raised RuntimeError: boom"),
    "reset": (broken(reset=boom), r"reset\(\(0, 1\)\): it raised RuntimeError: boom"),
    "state_raises": (broken(state=boom), r"state\(\): it raised RuntimeError: boom"),
    "act_raises": (broken(act=boom), r"seat 0, step 0: act\(.*\): it raised RuntimeError: boom"),
    "act_no_await": (broken(act=lambda self, c, action: RUNNING), "expected something to await"),
    "external": (broken(external=None), "its attribute external is None"),
    "no_coroutine": (
        broken(ticks=lambda self, match: (boom,)),
        r"ticks\[0\] is function, expected a coroutine",
    ),
}


@pytest.mark.parametrize("name", SIMPLE)
def test_names_the_fault(name):
    game, message = SIMPLE[name]
    with pytest.raises(MDPError, match=message):
        check_mdp(game, matches=1, max_steps=20)


def test_a_match_without_end():
    async def act(self, c, action):
        c.steps = (c.steps + 1) % 3
        return RUNNING

    with pytest.raises(MDPError, match="seat 0: it neither terminated nor truncated within max_steps=20"):
        check_mdp(broken(act=act), max_steps=20)


def test_acting_after_the_end():
    async def act(self, c, action):
        c.steps = min(LENGTH, c.steps + 1)
        return self.outcome(c)

    with pytest.raises(MDPError, match=r"after the end \(step 5\): a further act\(\) was accepted"):
        check_mdp(broken(act=act))


def test_looking_that_changes_the_state():
    def inputs(self, c):
        c.luck += 1.0
        return Game.inputs(self, c)

    with pytest.raises(MDPError, match=r"state\(\) changed without act\(\): two calls in a row differ"):
        check_mdp(broken(inputs=inputs))


def test_a_description_that_changes():
    count = itertools.count()

    def describe(self):
        return replace(Game.spec, frames_per_step=1 + next(count))

    with pytest.raises(MDPError, match=r"describe\(\): it changed between two calls"):
        check_mdp(broken(describe=describe))


def test_chance_that_no_seed_governs():
    chance = random.Random(0)

    def inputs(self, c):
        c.drawn = getattr(c, "drawn", None) or chance.random()
        return (np.full(3, c.drawn, np.float32), np.zeros((2, 2), np.uint8))

    with pytest.raises(
        MDPError, match="player 0, step 0: input near differs when it is played again from its seed"
    ):
        check_mdp(broken(inputs=inputs))
    check_mdp(broken(inputs=inputs), deterministic=False)


def test_rewards_that_no_seed_governs():
    chance = random.Random(0)
    with pytest.raises(MDPError, match="the reward differs when it is played again"):
        check_mdp(broken(reward=lambda self, c: (chance.random(), 0.0)))


def test_matches_that_share_what_they_see():
    shared = np.zeros(3, np.float32)

    def inputs(self, c):
        return (shared, np.zeros((2, 2), np.uint8))

    async def act(self, c, action):
        c.play(action)
        shared[0] = c.steps + 10 * c.luck
        return self.outcome(c)

    def reset(self, seats, seed):
        shared[:] = 0
        return GameMatch(self, seats, seed)

    game = broken(inputs=inputs, act=act, reset=reset, spec=respec(seats=(SEAT,), builtin_seats=()))
    with pytest.raises(MDPError, match="only another match went on; the two share state"):
        check_mdp(game)


def test_matches_that_share_chance():
    chance = random.Random(0)

    def reset(self, seats, seed):
        chance.seed(seed)
        return GameMatch(self, seats, seed)

    async def act(self, c, action):
        c.play(action)
        c.luck = chance.random()
        return TERMINATED if c.steps == LENGTH else RUNNING

    with pytest.raises(MDPError, match="differs when another match runs beside it; the two share state"):
        check_mdp(broken(reset=reset, act=act))


def test_a_player_whom_nobody_wakes():
    async def act(self, c, action):
        await Signal().wait()

    with pytest.raises(
        MDPError, match=r"seat 0, step 0: act\(.*never returns: nobody is left who could wake it"
    ):
        check_mdp(broken(act=act))


def test_a_player_whom_the_tick_forgets(monkeypatch):
    monkeypatch.setattr("lamarckian_cli.mdp.check.ADVANCES", 100)

    async def act(self, c, action):
        await Signal().wait()

    game = type("Broken", (Ticking,), {"act": act})()
    with pytest.raises(MDPError, match="the game's clock went on 100 times without it"):
        check_mdp(game)


def test_an_external_game_that_does_not_answer():
    async def act(self, c, action):
        await asyncio.get_running_loop().create_future()

    game = type("Broken", (External,), {"act": act})()
    with pytest.raises(MDPError, match=r"seat 0, step 0: act\(.*never returns: it waited for 0.05 s"):
        check_mdp(game, deadline_s=0.05)


@pytest.mark.parametrize("base", [Ticking, External])
def test_a_tick_that_fails(base):
    def ticks(self, match):
        base.ticks(self, match)[0].close()

        async def tick():
            await (asyncio.sleep(0) if self.external else sleep(0.1))
            raise RuntimeError("boom")

        return (tick(),)

    with pytest.raises(MDPError, match=r"tick.*: it raised RuntimeError: boom"):
        check_mdp(type("Broken", (base,), {"ticks": ticks})(), deadline_s=0.2)


def test_too_few_controllers():
    def reset(self, seats, seed):
        return GameMatch(self, seats[:1], seed)

    with pytest.raises(MDPError, match=r"reset\(\) gave 1 controllers, expected 2"):
        check_mdp(type("Broken", (Ticking,), {"reset": reset})())


def test_strange_awaits():
    class Strange:
        def __await__(self):
            yield 42

    async def act(self, c, action):
        await Strange()

    with pytest.raises(MDPError, match="awaited 42"):
        check_mdp(broken(act=act))


@pytest.mark.parametrize(
    ("frame", "text", "message"),
    [
        (np.zeros((4, 4), np.uint8), "x", r"frame\(\) has shape \(4, 4\)"),
        (np.zeros((4, 4, 3)), "x", "dtype float64"),
        (np.zeros((4, 4, 3), np.uint8), None, r"text\(\) returned NoneType"),
    ],
)
def test_pictures(frame, text, message):
    def reset(self, seats, seed):
        match = GameMatch(self, seats, seed)
        match.frame, match.text = lambda: frame, lambda: text
        return match

    with pytest.raises(MDPError, match=message):
        check_mdp(broken(reset=reset))


def test_bad_arguments():
    with pytest.raises(ConfigError, match="matches is 0"):
        check_mdp(Game(), matches=0)
    with pytest.raises(ConfigError, match="max_steps is 0"):
        check_mdp(Game(), max_steps=0)
