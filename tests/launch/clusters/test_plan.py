"""The numbers of a plan, against the same sums done by hand."""

from __future__ import annotations

from typing import Any
from unittest.mock import ANY

import pytest

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.assembly import build_learners
from lamarckian_cli.launch.casting import cast_players
from lamarckian_cli.launch.clusters.plan import plan_of
from lamarckian_cli.launch.clusters.plan_text import lines
from lamarckian_cli.launch.wiring import job_of

LINK = {"bandwidth_gbit_per_s": 8.0, "latency_us": 100.0}  # a gigabyte a second
SMALL = ("env=pong", "algo.minibatch_size=null", "algo.reuse=1")


def plan(*overrides: str, **keys: Any) -> dict[str, Any]:
    return plan_of(job_of([*SMALL, *overrides]), **{**LINK, **keys})


@pytest.mark.parametrize(
    ("name", "workers", "fanout", "layers"),
    [("10cores", 1, 1, 2), ("80cores", 2, 1, 3), ("2000cores", 50, 7, 3), ("6000cores", 150, 12, 3)],
)
def test_machines_and_tree_of_the_named_sizes(name: str, workers: int, fanout: int, layers: int) -> None:
    found = plan(f"cluster={name}")
    assert found["machines"]["total"] == workers + 1
    assert found["machines"]["actors"] == int(name.removesuffix("cores"))
    assert (found["tree"]["fanout"], found["tree"]["layers"]) == (fanout, layers)
    ranks = [rank for children in found["tree"]["children"].values() for rank in children]
    assert sorted(ranks) == list(range(1, workers + 1))


def test_weights_are_those_of_the_network() -> None:
    job = job_of([*SMALL, "cluster=80cores"])
    (learner,) = build_learners(job, cast_players(job, job.env.make_mdp().describe())).values()
    size = learner.weights().vector.nbytes
    assert plan("cluster=80cores")["weights"]["bytes"] == size
    assert plan("cluster=80cores", "cluster.half_precision=true")["weights"]["wire_bytes"] == size / 2


def test_traffic_and_time_of_a_broadcast() -> None:
    size = plan("cluster=6000cores")["weights"]["bytes"]
    flat = plan("cluster=6000cores", "cluster.broadcast=flat", update_s=0.1)
    assert flat["tree"]["broadcast_s"] == pytest.approx(150 * size / 1e9 + 1e-4)
    assert flat["egress"]["per_version_bytes"] == 150 * size
    tree = plan("cluster=6000cores", update_s=0.1)
    assert tree["egress"]["per_version_bytes"] == 12 * size
    assert tree["egress"]["bytes_per_s"] == pytest.approx(10 * 12 * size)
    assert tree["tree"]["flat_s"] == flat["tree"]["broadcast_s"]
    assert tree["tree"]["broadcast_s"] < flat["tree"]["broadcast_s"] / 5
    slow = plan("cluster=6000cores", update_s=0.1, bandwidth_gbit_per_s=0.01)
    assert slow["egress"]["of_link"] == 1


def test_rates_and_staleness() -> None:
    keys = ("cluster=20cores", "algo.batch_size=8192", "algo.unroll=64")
    keys += ("cluster.matches=32", "cluster.queue_batches=1")
    by_actors = plan(*keys, env_steps_per_s=1000.0, update_s=0.1)
    assert by_actors["rates"]["limit"] == "actors"
    assert by_actors["rates"]["env_steps_per_s"] == 20_000
    updates = 20_000 / 8192
    staleness = by_actors["staleness"]
    assert staleness["update"] == pytest.approx(0.1 * updates)
    assert staleness["unroll"] == pytest.approx(64 * 32 / 1000 / 2 * updates)
    assert staleness["queue"] == 0
    assert staleness["paper"] == pytest.approx(1 + staleness["mean"])
    by_learner = plan(*keys, env_steps_per_s=10_000.0, update_s=0.1)
    assert by_learner["rates"]["limit"] == "learner"
    assert by_learner["rates"]["actors_that_suffice"] == 9
    # What is under way, over a batch: half of each actor's unrolls.
    assert by_learner["staleness"]["unroll"] == pytest.approx(20 * 64 * 32 / 2 / 8192)
    assert by_learner["staleness"]["update"] == by_learner["staleness"]["queue"] == pytest.approx(1)
    several = plan(*keys, "algo.reuse=2", env_steps_per_s=10_000.0, update_s=0.1)["staleness"]
    assert several["mean"] == pytest.approx(2 * by_learner["staleness"]["mean"])
    assert several["paper"] == pytest.approx(by_learner["staleness"]["paper"])


def test_one_machine_needs_no_tree() -> None:
    found = plan()
    assert found["tree"]["machines"] == found["egress"]["per_version_bytes"] == 0
    assert (found["machines"]["total"], found["machines"]["learner"]["actors"]) == (1, 2)
    assert ("weights travel", "inside the machine alone") in lines(found)


def test_images_need_more_memory() -> None:
    plain = plan("cluster=40cores")["machines"]["workers"][0]["memory_bytes"]
    images = plan_of(job_of(["env=pong_image", "cluster=40cores"]), **LINK)["machines"]["workers"][0]
    assert plain < 40 * 130e6
    assert images["memory_bytes"] > plain


def test_a_cluster_without_a_size_has_no_plan() -> None:
    with pytest.raises(
        ClusterError, match=r"cluster\.cores is null, so this cluster has no size; .*cluster\.actors=N"
    ):
        plan("cluster=auto")
    assert plan("cluster=auto", "cluster.actors=100")["machines"]["total"] == 4


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ("cluster=auto", "cluster.actors=10000000"),
            r"cluster\.actors is 10,000,000; a plan is made for at",
        ),
        (("cluster=auto", "cluster.cores=10000000"), r"cluster\.cores is 10,000,000; a plan is made for at"),
        (("cluster=80cores", "cluster.cores=10000000", "cluster.actors=1"), r"cluster\.cores is 10,000,000"),
        (
            ("cluster=auto", "cluster.actors=100001", "cluster.cores_per_machine=1"),
            r"cluster\.cores_per_machine is 1, which makes 100,001 machines; .* at most 100,000",
        ),
        (
            ("cluster=80cores", "cluster.queue_batches=1e308"),
            r"cluster\.queue_batches is 1e\+308: .* exbibyte",
        ),
        (("cluster=80cores", f"cluster.matches={10**400}"), r"cluster\.matches is 10000.* exbibyte"),
        (
            ("cluster=local", "cluster.actors=10000000"),
            r"cluster\.actors is 10,000,000; .* at most 1,000,000",
        ),
    ],
)
def test_a_cluster_beyond_all_sizes_has_no_plan(overrides: tuple[str, ...], said: str) -> None:
    with pytest.raises(ClusterError, match=said):
        plan(*overrides)


def test_the_largest_plan() -> None:
    machines = plan("cluster=auto", "cluster.actors=1000000")["machines"]
    assert machines["workers"] == [{"machines": 25_000, "actors": 40, "memory_bytes": ANY}]


@pytest.mark.parametrize("name", ["10cores", "80cores", "6000cores"])
def test_the_text_is_short(name: str) -> None:
    text = lines(plan(f"cluster={name}"))
    assert len(text) < 30
    assert all(len(what) + len(value) < 100 for what, value in text)
    assert any("Gbit/s (--bandwidth)" in value for _, value in text)
