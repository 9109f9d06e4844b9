"""What `env=gfootball` and its scenarios are composed to: the paper's Table III, and ours for exercises."""

import pytest
from football import missing

from lamarckian_cli.config.catalogue import option_names
from lamarckian_cli.launch.wiring import job_of
from lamarckian_cli.mdp.football.scenario import scenario_folder

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.mark.parametrize(
    "overrides",
    [
        ("env=gfootball",),
        ("env=gfootball/11_vs_11_easy_stochastic",),
        ("env=gfootball/11_vs_11_hard_stochastic",),
        ("env=gfootball/5_vs_5",),
        ("experiment=paper/gfootball",),
    ],
    ids=lambda overrides: overrides[0],
)
def test_whole_sides_are_trained_by_the_papers_values(overrides):
    job = job_of([*overrides, "run.dir=x"])
    algo, model = job.algo, job.model
    assert (algo.discount, algo.clip, algo.lr, algo.batch_size, algo.reuse) == (0.993, 0.2, 0.0005, 32768, 2)
    assert (algo.policy_weight, algo.value_weight, algo.entropy_weight) == (1, 0.5, 0.01)
    assert algo.minibatch_size is None
    assert algo.normalize_advantages
    assert (model.policy, model.critic, model.shared) == ((512, 256, 128), (128, 64), True)
    assert model.activation == "leaky_relu"


def test_own_values_win_over_the_papers():
    assert job_of(["env=gfootball", "algo.batch_size=2048", "run.dir=x"]).algo.batch_size == 2048


def test_every_scenario_has_an_option_and_plays_itself():
    scenarios = {path.stem for path in scenario_folder().glob("*.py")} - {"__init__"}
    options = {name.removeprefix("gfootball/") for name in option_names("env") if "gfootball/" in name}
    # gfootball's own tests bring scenarios that are no games.
    assert {name for name in scenarios if not name.startswith("test")} <= options <= scenarios
    for name in options:
        assert job_of([f"env=gfootball/{name}", "run.dir=x"]).env.spec["id"] == name
