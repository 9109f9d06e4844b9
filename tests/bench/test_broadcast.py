"""`lamarck bench broadcast`: what is reported is what was sent and measured, and nothing is left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamarckian_cli.bench import broadcast
from lamarckian_cli.bench.broadcast import Plan, between_machines, measure_broadcast, predicted_staleness
from lamarckian_cli.bench.broadcast_cluster import mean_lag
from lamarckian_cli.bench.broadcast_local import ChannelWay
from lamarckian_cli.bench.hosts import available
from lamarckian_cli.errors import ConfigError

SMALL = Plan(hosts=(3,), mbit_per_s=200, payloads_mb=(0.2,), repeat=1, actors=2)
BETWEEN = {
    "layout",
    "hosts",
    "payload_bytes",
    "last_host_s",
    "egress_bytes",
    "predicted_s",
    "of_predicted",
    "fanout",
    "mbit_per_s",
    "period_s",
    "staleness",
    "predicted_staleness",
}
OF_THE_TREE = {"flat_over_tree", "predicted_flat_over_tree", "stored_flat_over_tree"}
INSIDE = {
    "layout",
    "hosts",
    "actors",
    "payload_bytes",
    "last_host_s",
    "egress_bytes",
    "cpu_s_per_version",
    "predicted_s",
}

INSIDE_ONE = """
import json
from lamarckian_cli.bench.broadcast_local import measure_local
print(json.dumps(measure_local([100_000], actors=2, repeat=1, say=lambda _: None)))
"""


def in_shared_memory() -> set[Path]:
    return set(Path("/dev/shm").glob("lamarck-*"))


@pytest.mark.skipif(bool(available()), reason=f"no hosts can be made here: {available()}")
@pytest.mark.usefixtures("no_children_left")
def test_the_learner_sends_as_many_copies_as_hang_under_it() -> None:
    said: list[str] = []
    flat, tree = between_machines(SMALL, said.append)
    assert set(flat) == BETWEEN
    assert set(tree) == BETWEEN | OF_THE_TREE
    assert [(row["layout"], row["hosts"], row["fanout"]) for row in (flat, tree)] == [
        ("flat", 3, 3),
        ("tree", 3, 2),
    ]
    for row in (flat, tree):
        assert row["payload_bytes"] == 200_000
        copies = row["egress_bytes"] / row["payload_bytes"]
        assert row["fanout"] <= copies < row["fanout"] * 1.001
        assert row["of_predicted"] == row["predicted_s"] / row["last_host_s"]
        assert row["staleness"] > 0
    assert flat["predicted_s"] == pytest.approx(3 * 200_000 * 8 / 200e6)
    assert tree["predicted_flat_over_tree"] == flat["predicted_s"] / tree["predicted_s"]
    assert any("3 hosts, 0.2 MB, tree" in text for text in said)


@pytest.mark.usefixtures("no_children_left")
@pytest.mark.slow
def test_inside_one_machine_three_ways_are_measured() -> None:
    before = in_shared_memory()
    # As from the command line, in a process of its own: Ray starts once in each.
    done = subprocess.run([sys.executable, "-c", INSIDE_ONE], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["layout"] for row in rows] == ["shared-memory", "zmq-per-actor", "ray-object-store"]
    shared, each, store = rows
    for row in rows:
        assert set(row) == INSIDE
        assert row["last_host_s"] > 0
    assert shared["egress_bytes"] == 0
    assert 2 <= each["egress_bytes"] / 100_000 < 2.01
    assert store["egress_bytes"] is None
    assert in_shared_memory() == before


@pytest.mark.usefixtures("no_children_left")
def test_every_version_is_waited_for(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    way = ChannelWay("shared-memory", f"shm://{tmp_path}/weights", actors=2)
    try:
        assert all(way.send(np.zeros(size, np.float32)) > 0 for size in (10, 10, 1000))
        assert len(way.processes()) == 2
    finally:
        way.close()


def test_without_hosts_the_rest_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "available", lambda: "it takes root")
    monkeypatch.setattr(broadcast, "measure_local", lambda *_, **__: [{"layout": "shared-memory"}])
    document = measure_broadcast(SMALL)
    assert document["kind"] == "broadcast"
    assert document["results"] == [{"layout": "shared-memory"}]
    assert document["missing"].endswith("it takes root")
    json.dumps(document)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hosts": (0,)}, "--hosts is 0; each must be from 1"),
        ({"hosts": ()}, r"--hosts is \[\]; give at least one"),
        ({"payloads_mb": (1.0, -1.0)}, r"--payload is -1\.0; each size in MB"),
        ({"payloads_mb": (float("nan"),)}, "--payload is nan"),
        ({"mbit_per_s": 0.0}, r"--mbit is 0\.0; a link's speed"),
        ({"repeat": 0}, "--repeat is 0; it must be at least 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(values: dict[str, Any], message: str) -> None:
    given = {"hosts": (4,), "mbit_per_s": 100.0, "payloads_mb": (1.0,), "repeat": 3} | values
    with pytest.raises(ConfigError, match=message):
        Plan(**given)


def test_lag_is_the_mean_over_time() -> None:
    published = [(7, 10.0), (8, 11.0), (9, 12.0)]
    # 6 is here at first: behind by 1, then by 2; then 8 comes, behind by 0, then by 1
    assert mean_lag(published, [(8, 11.5)], 10.0, 13.0) == pytest.approx((1 + 0.5 * 2 + 0 + 1) / 3)
    assert mean_lag(published, published, 10.0, 13.0) == 0
    assert mean_lag(published, [(8, 11.5)], 12.0, 13.0) == 1


@pytest.mark.parametrize(("broadcast_s", "period_s"), [(0.3, 1.0), (1.0, 1.0), (3.7, 1.0), (16.3, 3.1)])
def test_staleness_is_predicted_as_it_comes_to_be(broadcast_s: float, period_s: float) -> None:
    """Publish on time and carry one version after the other, many times over."""
    published = [(k, k * period_s) for k in range(20_000)]
    arrived, free = [], 0.0
    while free < published[-1][1]:
        newest = int(free / period_s + 1e-9)
        if arrived and arrived[-1][0] == newest:
            newest, free = newest + 1, (newest + 1) * period_s
        free += broadcast_s
        arrived.append((newest, free))
    lag = mean_lag(published, arrived, 10 * (broadcast_s + period_s), published[-1][1])
    assert predicted_staleness(broadcast_s, period_s) == pytest.approx(lag, rel=0.02)
