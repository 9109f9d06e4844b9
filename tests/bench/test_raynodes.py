"""A Ray cluster over four hosts with token and TLS: placed on, broken, mended, and closed to strangers."""

import json

import pytest
from raynodes import IMPATIENT, WATCHFUL, RayNodes

from lamarckian_cli.bench.hosts import Hosts, available

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.skipif(bool(available()), reason=f"no hosts can be made here: {available()}"),
    pytest.mark.usefixtures("no_children_left"),
]

WHERE = """
import json, os
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

@ray.remote(num_cpus=1)
class Actor:
    def where(self):
        return os.uname().nodename

actors = [
    Actor.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
    for node in machines(*{addresses})
]
print(json.dumps(ray.get([actor.where.remote() for actor in actors], timeout=60)))
"""


def test_actors_go_where_they_are_sent_also_after_a_host_came_back(tmp_path):
    with (
        Hosts(4, mbit_per_s=1000, keep=[tmp_path]) as hosts,
        RayNodes(hosts, tmp_path, environment=WATCHFUL) as nodes,
    ):
        everywhere = ["host1", "host2", "host3", "host4"]
        assert where(nodes, nodes.addresses) == everywhere
        nodes.kill(2)
        assert where(nodes, [nodes.addresses[i] for i in (0, 1, 3)]) == ["host1", "host2", "host4"]
        nodes.restart(2)
        assert where(nodes, nodes.addresses) == everywhere
        for stranger, said in {
            "RAY_AUTH_MODE": "InvalidAuthToken: Authentication token is missing or incorrect",
            "RAY_USE_TLS": "Timed out while waiting for GCS to become available",
        }.items():
            off = {stranger: {"RAY_AUTH_MODE": "disabled"}.get(stranger, "0"), **IMPATIENT}
            refused = nodes.run("", timeout_s=60, environment=off)
            assert refused.returncode == 1
            assert said in refused.stderr


def where(nodes, addresses):
    done = nodes.run(WHERE.format(addresses=addresses), timeout_s=100)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # Ray prints what it says of dead nodes there, too
