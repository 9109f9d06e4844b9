"""PettingZoo: one seat for each agent, and the world moves when all living agents have acted."""

import sys

import gymnasium
import numpy as np
import pytest

from lamarckian_cli.errors import ConfigError, MDPError, MissingPackage
from lamarckian_cli.mdp.check import check_mdp
from lamarckian_cli.mdp.pettingzoo_adapter import PettingZooMDP
from lamarckian_cli.mdp.scheduler import Scheduler
from lamarckian_cli.records import RUNNING, TERMINATED, TRUNCATED

pettingzoo = pytest.importorskip("pettingzoo")


class Relay(pettingzoo.ParallelEnv):
    """Three agents; `first` drops out at step 2, the others go on to step 4, which is the limit."""

    metadata = {"name": "relay"}  # noqa: RUF012 (PettingZoo's own convention)
    possible_agents = ["first", "second", "third"]  # noqa: RUF012

    def __init__(self, render_mode=None, space=None):
        self.render_mode = render_mode
        self.space = space or gymnasium.spaces.Discrete(3)

    def observation_space(self, agent):
        return gymnasium.spaces.Box(-100, 100, (2,), np.float32)

    def action_space(self, agent):
        return self.space

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self.count = 0
        self.start = float(np.random.default_rng(seed).integers(9))
        return {agent: self._see(agent) for agent in self.agents}, {}

    def step(self, actions):
        assert sorted(actions) == sorted(self.agents)
        self.count += 1
        acted = list(self.agents)
        terminated = {agent: agent == "first" and self.count == 2 for agent in acted}
        truncated = dict.fromkeys(acted, self.count == 4)
        self.agents = [agent for agent in acted if not (terminated[agent] or truncated[agent])]
        rewards = {agent: float(actions[agent]) for agent in acted}
        infos = {agent: {"steps": self.count} for agent in acted}
        return {agent: self._see(agent) for agent in acted}, rewards, terminated, truncated, infos

    def render(self):
        return np.zeros((6, 4, 3), np.uint8)

    def close(self):
        pass

    def _see(self, agent):
        return np.array([self.start + self.count, self.possible_agents.index(agent)], np.float32)


def relay(**kwargs):
    return Relay(**kwargs)


def nothing():
    return object()


HERE = __name__


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    # Test files have no package; the adapter finds this one by its name.
    monkeypatch.setitem(sys.modules, HERE, sys.modules.get(HERE) or _this_module())


def _this_module():
    module = type(sys)(HERE)
    module.__dict__.update(globals())
    return module


def drive(match):
    """Every controller plays its seat's number; (reward, outcome) of each step."""
    scheduler = Scheduler()
    seen = [[] for _ in match.controllers]

    async def play(controller, number):
        while True:
            outcome = await controller.act((number,))
            seen[number].append((controller.reward()[0], outcome))
            if outcome is not RUNNING:
                return

    for number, controller in enumerate(match.controllers):
        scheduler.spawn(play(controller, number))
    scheduler.run()
    assert not scheduler.failed, scheduler.failed[0].error
    return seen


def test_agents_leave_one_by_one():
    mdp = PettingZooMDP(f"{HERE}:relay")
    assert [seat.name for seat in mdp.describe().seats] == ["first", "second", "third"]
    match = mdp.reset((0, 1, 2), 0)
    assert drive(match) == [
        [(0.0, RUNNING), (0.0, TERMINATED)],
        [(1.0, RUNNING)] * 3 + [(1.0, TRUNCATED)],
        [(2.0, RUNNING)] * 3 + [(2.0, TRUNCATED)],
    ]
    assert [controller.result() for controller in match.controllers] == [
        {"steps": 2},
        {"steps": 4},
        {"steps": 4},
    ]


def test_the_world_waits_for_the_last():
    match = PettingZooMDP(f"{HERE}:relay").reset((0, 1, 2), 0)
    scheduler = Scheduler()
    tasks = [scheduler.spawn(controller.act((0,))) for controller in match.controllers[:2]]
    scheduler.run()
    assert [task.done for task in tasks] == [False, False]
    assert match.env.count == 0
    scheduler.spawn(match.controllers[2].act((0,)))
    scheduler.run()
    assert all(task.done for task in tasks)
    assert match.env.count == 1


@pytest.mark.parametrize(
    "target",
    [
        "pettingzoo.classic.rps_v2",  # at the same time
        "pettingzoo.classic.tictactoe_v3",  # by turns, with legal actions
        "pettingzoo.classic.connect_four_v3",
        f"{HERE}:relay",
    ],
)
def test_passes_the_check(target):
    if target.startswith("pettingzoo."):
        pytest.importorskip(target, exc_type=ImportError)
    check_mdp(PettingZooMDP(target))


def test_turns_are_decisions_of_one():
    pytest.importorskip("pettingzoo.classic.tictactoe_v3", exc_type=ImportError)
    mdp = PettingZooMDP("pettingzoo.classic.tictactoe_v3")
    assert mdp.describe().seats[0].heads[0].masked
    assert [spec.name for spec in mdp.describe().seats[0].inputs] == ["observation"]
    match = mdp.reset((0, 1), 0)
    one, two = (controller.state() for controller in match.controllers)
    assert (one.decision, two.decision) == (True, False)
    assert one.masks[0].all()
    scheduler = Scheduler()
    scheduler.spawn(match.controllers[0].act((4,)))
    scheduler.spawn(match.controllers[1].act(None))
    scheduler.run()
    one, two = (controller.state() for controller in match.controllers)
    assert (one.decision, two.decision) == (False, True)
    np.testing.assert_array_equal(np.flatnonzero(~two.masks[0]), [4])


def test_pictures_and_pool():
    mdp = PettingZooMDP(f"{HERE}:relay", render=True)
    match = mdp.reset((0, 1, 2), 0)
    assert match.frame().shape == (6, 4, 3)
    assert len(match.text().split("\n")) == 3
    match.close()
    match.close()
    assert mdp.reset((0, 1, 2), 0).env is match.env
    assert mdp.reset((0, 1, 2), 0).env is not match.env
    mdp.close()
    with pytest.raises(MDPError, match="closed"):
        mdp.reset((0, 1, 2), 0)
    with pytest.raises(ConfigError, match=r"env\.render=true"):
        PettingZooMDP(f"{HERE}:relay").reset((0, 1, 2), 0).frame()


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"target": "no_such_game"}, MissingPackage, "pip install no_such_game"),
        ({"target": "math"}, ConfigError, "no parallel_env or env"),
        ({"target": f"{HERE}:other"}, ConfigError, "has no other"),
        ({"target": f"{HERE}:nothing"}, ConfigError, "made object, expected a ParallelEnv"),
        ({"target": f"{HERE}:relay", "kwargs": {"speed": 1}}, ConfigError, r"env\.kwargs=\{'speed': 1\}"),
        (
            {"target": f"{HERE}:relay", "kwargs": {"space": gymnasium.spaces.Text(3)}},
            ConfigError,
            "agent first: action action has the space Text",
        ),
    ],
)
def test_bad_values(arguments, error, message):
    with pytest.raises(error, match=message):
        PettingZooMDP(**arguments)


def test_all_seats_must_be_driven():
    with pytest.raises(MDPError, match=r"seats \(0,\) were asked for, expected all of 0 to 2"):
        PettingZooMDP(f"{HERE}:relay").reset((0,), 0)
