"""Google Research Football on the real engine."""

import itertools
import os
import signal
import time

import numpy as np
import pytest
from football import missing

from lamarckian_cli.actor.players import RandomPolicy
from lamarckian_cli.actor.rollout import Rollout
from lamarckian_cli.errors import ConfigError, MDPError, MissingPackage
from lamarckian_cli.launch.job import MDPFactory
from lamarckian_cli.mdp.check import check_mdp
from lamarckian_cli.mdp.football import mdp as adapter
from lamarckian_cli.mdp.football import scenario
from lamarckian_cli.mdp.football.mdp import Football
from lamarckian_cli.mdp.football.process import EngineFailure, EngineProcess
from lamarckian_cli.mdp.football.raw import AGENTS
from lamarckian_cli.mdp.scheduler import Scheduler
from lamarckian_cli.records import RUNNING, TERMINATED

needs_engine = pytest.mark.skipif(bool(missing()), reason=missing())
CLOSE = "academy_empty_goal_close"
RIGHT, SHOT, SPRINT = 5, 12, 13


@pytest.fixture
def make(no_children_left):
    """Makes MDPs, which are closed after the test."""
    made = []

    def new(*arguments, **keys):
        made.append(Football(*arguments, **keys))
        return made[-1]

    yield new
    for mdp in made:
        mdp.close()


def play(match, choose, steps):
    """Drive all controllers; each one's inputs, rewards and outcomes, and the first error."""
    logs = [[] for _ in match.controllers]

    async def drive(controller, log, index):
        for step in range(steps):
            state = controller.state()
            outcome = await controller.act((choose(step, index, state),))
            log.append((state.inputs[0], controller.reward(), outcome))
            if outcome is not RUNNING:
                return

    scheduler = Scheduler()
    for index, (controller, log) in enumerate(zip(match.controllers, logs, strict=True)):
        scheduler.spawn(drive(controller, log, index))
    scheduler.run()
    while scheduler.advance():
        scheduler.run()
    if scheduler.failed:
        raise scheduler.failed[0].error
    return logs


def random_legal(seed):
    rng = np.random.default_rng(seed)
    return lambda step, index, state: int(rng.choice(np.flatnonzero(state.masks[0])))


@needs_engine
def test_passes_the_check_in_an_exercise(make):
    report = check_mdp(make(CLOSE), matches=2)
    assert report.env_steps > 50


@needs_engine
def test_passes_the_check_with_players_on_both_sides(make, monkeypatch):
    # A whole match takes minutes: the whistle after 40 steps.
    game = adapter.FootballMatch
    take = game._take

    def short(self, reply):
        take(self, reply)
        if self.steps >= 40:
            self.outcome = TERMINATED

    monkeypatch.setattr(game, "_take", short)
    mdp = make("5_vs_5", left_players=2, right_players=1, observation="floats", frames_per_step=2)
    check_mdp(mdp, matches=1)


@needs_engine
def test_a_shot_at_the_empty_goal_scores(make):
    match = make(CLOSE).reset((0,), 1)
    (log,) = play(match, lambda step, *_: RIGHT if step < 12 else SHOT if step < 14 else 0, 200)
    rewards = np.array([reward for _, reward, _ in log])
    assert log[-1][2] is TERMINATED
    assert rewards[:, 0].sum() == 1.0
    assert rewards[:, 1].sum() == pytest.approx(1.0)  # all checkpoints
    result = match.controllers[0].result()
    assert (result["score_self"], result["score_enemy"], result["win"]) == (1.0, 0.0, 1.0)
    assert 0.0 < result["possession"] <= 1.0
    with pytest.raises(MDPError, match="after the end"):
        play(match, lambda *_: 0, 1)


@needs_engine
def test_same_seed_same_match_in_one_engine_or_several_isolated_or_not(make):
    seed = 11
    one = make(CLOSE, observation="floats")
    first = play(one.reset((0,), seed), random_legal(0), 60)
    play(one.reset((0,), 12), random_legal(1), 20)
    reused = one.reset((0,), 13)
    reused.close()
    again = play(one.reset((0,), seed), random_legal(0), 60)
    local = play(make(CLOSE, observation="floats", isolated=False).reset((0,), seed), random_legal(0), 60)
    other = play(one.reset((0,), 14), random_legal(0), 60)
    for log in (again, local):
        assert len(log[0]) == len(first[0])
        for (seen, *rest), (seen_again, *rest_again) in zip(first[0], log[0], strict=True):
            np.testing.assert_array_equal(seen, seen_again)
            assert rest == rest_again
    assert any(not np.array_equal(a[0], b[0]) for a, b in zip(first[0], other[0], strict=False))


@needs_engine
def test_both_sides_play_and_rewards_are_opposite(make):
    mdp = make("1_vs_1_easy", left_players=1, right_players=1, opponent="idle")
    match = mdp.reset((1, 0), 2)
    assert [controller.side for controller in match.controllers] == [1, 0]
    # Both run to what is the right for them: the fields of view stay alike.
    logs = play(match, lambda *_: RIGHT, 30)
    own = [log[-1][0][0] for log in logs]
    first = [log[0][0][0] for log in logs]
    assert all(now > before for now, before in zip(own, first, strict=True))
    for right, left in zip(*logs, strict=True):
        assert right[1][0] == -left[1][0]


@needs_engine
def test_a_seat_alone_plays_against_scripts(make):
    ends = []
    for opponent in ("builtin", "idle", "chase"):
        mdp = make("1_vs_1_easy", right_players=1, opponent=opponent)
        match = mdp.reset((0,), 2)
        (log,) = play(match, lambda *_: 0, 40)
        ends.append(log[-1][0][44:46])
        held = match.raw[AGENTS].reshape(2, 11, 11)[1, 0, 1:]
        assert held.any() == (opponent == "chase")
    assert not any(np.array_equal(one, two) for one, two in itertools.combinations(ends, 2))
    assert len(play(mdp.reset((1,), 2), lambda *_: 0, 5)[0]) == 5


@needs_engine
def test_frame_skip_sums_rewards(make):
    steady = [RIGHT] * 12 + [SHOT] * 4 + [0] * 40
    plain = play(make(CLOSE).reset((0,), 1), lambda step, *_: steady[step], 56)
    skipped = play(make(CLOSE, frames_per_step=4).reset((0,), 1), lambda step, *_: steady[4 * step], 14)
    assert len(skipped[0]) == -(-len(plain[0]) // 4)
    for index, (seen, reward, _) in enumerate(skipped[0]):
        part = plain[0][4 * index : 4 * index + 4]
        np.testing.assert_array_equal(seen, part[0][0])
        np.testing.assert_allclose(reward, np.sum([r for _, r, _ in part], axis=0), atol=1e-6)


@needs_engine
def test_a_saved_match_goes_on_as_it_would_have(make):
    mdp = make("5_vs_5", left_players=2, right_players=1)
    match = mdp.reset((0, 1, 2), 3)
    play(match, random_legal(0), 30)
    saved = match.save()
    went_on = play(match, random_legal(1), 20)
    other = mdp.reset((0, 1, 2), 3)
    for target in (match, other):  # in another engine as well
        target.load(saved)
        again = play(target, random_legal(1), 20)
        for log, log_again in zip(went_on, again, strict=True):
            for (seen, reward, _), (seen_again, reward_again, _) in zip(log, log_again, strict=True):
                np.testing.assert_array_equal(seen, seen_again)
                assert reward == reward_again


@needs_engine
def test_a_killed_engine_costs_its_matches_and_another_is_started(make):
    mdp = make(CLOSE)
    match, beside = mdp.reset((0,), 1), mdp.reset((0,), 2)
    play(match, lambda *_: 0, 3)
    os.kill(mdp._engines[0].process.pid, signal.SIGKILL)
    with pytest.raises(EngineFailure, match="killed by signal 9"):
        play(match, lambda *_: 0, 3)
    with pytest.raises(EngineFailure, match="killed by signal 9"):
        play(beside, lambda *_: 0, 3)
    for ended in (match, beside):
        ended.close()
    (log,) = play(mdp.reset((0,), 1), lambda *_: 0, 3)
    assert len(log) == 3


@needs_engine
def test_an_actor_goes_on_after_its_engine_was_killed(make):
    mdp = make(CLOSE)
    rollout = Rollout(mdp, {0: RandomPolicy(mdp.describe().seats[0], 0)}, matches=2, seed=1)
    for _ in range(6):
        rollout.step()
    os.kill(mdp._engines[0].process.pid, signal.SIGKILL)
    results = []
    for _ in range(2000):
        rollout.step()
        results += rollout.pop_results()
        if results:
            break
    assert results
    assert rollout.failures == 2  # both matches that were under way, and no other
    assert "killed by signal 9" in rollout.first_failure


@needs_engine
def test_an_engine_that_hangs_is_given_up_in_time(make):
    mdp = make(CLOSE, timeout_s=5.0)
    match = mdp.reset((0,), 1)
    mdp._engines[0]._socket.settimeout(0.3)
    process = mdp._engines[0].process
    os.kill(process.pid, signal.SIGSTOP)
    begun = time.monotonic()
    with pytest.raises(EngineFailure, match=r"did not answer for 5 s \(env.timeout_s\)"):
        play(match, lambda *_: 0, 3)
    assert time.monotonic() - begun < 4.0
    assert process.poll() is not None
    match.close()
    assert len(play(mdp.reset((0,), 1), lambda *_: 0, 3)[0]) == 3


@needs_engine
def test_a_match_closed_while_its_reply_is_under_way_does_not_leave_it_to_the_next(make):
    mdp = make(CLOSE)
    match = mdp.reset((0,), 1)
    pending = match.controllers[0].act((0,))
    pending.send(None)  # sent, and asleep until the others have sent theirs
    pending.close()
    match.close()
    expected = play(make(CLOSE).reset((0,), 7), lambda *_: RIGHT, 5)
    again = play(mdp.reset((0,), 7), lambda *_: RIGHT, 5)
    np.testing.assert_array_equal(expected[0][-1][0], again[0][-1][0])
    assert not mdp._engines[0]._arrived


@needs_engine
def test_orders_of_all_matches_leave_together_for_every_engine(make, monkeypatch):
    mdp = make(CLOSE, engines=2)
    matches = [mdp.reset((0,), seed) for seed in range(4)]  # two in each engine
    pending = [match.controllers[0].act((0,)) for match in matches]
    sent = []
    flush = EngineProcess.flush

    def noted(self):
        if self._requests:
            sent.append((mdp._engines.index(self), len(self._requests) // 2))
        flush(self)

    monkeypatch.setattr(EngineProcess, "flush", noted)
    for acting in pending:
        acting.send(None)  # asleep until the others have added theirs
    assert sent == []
    with pytest.raises(StopIteration):
        pending[0].send(None)
    assert sent == [(0, 2), (1, 2)]  # the other engine has begun as well
    for acting in pending[1:]:
        with pytest.raises(StopIteration):
            acting.send(None)
    assert len(sent) == 2


@needs_engine
def test_pictures(make):
    match = make("5_vs_5").reset((0,), 1)
    text = match.text()
    assert text.startswith("0:0")
    assert set(text) >= {"o", "x", "*"}
    assert len({len(line) for line in text.splitlines()[1:]}) == 1
    with pytest.raises(ConfigError, match=r"env\.render=true"):
        match.frame()


@needs_engine
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"id": "academy"}, "env.id is 'academy'; known are 11_vs_11_competition"),
        ({"left_players": 0}, "no side has a seat"),
        ({"left_players": 12}, "env.left_players is 12"),
        ({"observation": "pixels"}, "env.observation is 'pixels'; known are simple115, floats, minimap"),
        ({"opponent": "me"}, "env.opponent"),
        ({"frames_per_step": 0}, "env.frames_per_step is 0"),
        ({"score_weight": 0.0, "checkpoint_weight": 0.0}, "no reward is left"),
        ({"engines": 0}, "env.engines is 0"),
        ({"timeout_s": 0.0}, "env.timeout_s"),
    ],
)
def test_what_cannot_work_names_the_key(keys, message):
    with pytest.raises(ConfigError, match=message):
        Football(**keys)


@needs_engine
def test_more_players_than_a_scenario_has(make):
    with pytest.raises(ConfigError, match=r"env\.left_players is 5; 5_vs_5 has 4"):
        make("5_vs_5", left_players=5).reset((0, 1, 2, 3, 4), 0)


@needs_engine
def test_wrong_seats_and_actions(make):
    mdp = make(CLOSE)
    with pytest.raises(MDPError, match="seats 0 to 0"):
        mdp.reset((1,), 0)
    for action in (None, (19,), ("up",)):
        with pytest.raises(MDPError, match="0 to 18"):
            mdp.reset((0,), 0).controllers[0].act(action).send(None)


def test_without_the_engine_the_message_says_what_to_type(monkeypatch):
    monkeypatch.setattr(adapter, "scenario_folder", lambda: None)
    with pytest.raises(MissingPackage, match="make football"):
        Football()
    monkeypatch.setattr("lamarckian_cli.launch.job.find_spec", lambda _: None)
    factory = MDPFactory(spec={"_target_": "lamarckian_cli.mdp.football.mdp.Football"})
    with pytest.raises(MissingPackage, match="not installed: make football"):
        factory.check()
    monkeypatch.setattr(scenario.importlib.util, "find_spec", lambda _: None)
    assert scenario.scenario_folder() is None
