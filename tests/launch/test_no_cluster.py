"""`cluster=auto` where no cluster runs: a message of ours, not what Ray says of its own commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

# Ray is made to see no cluster, since others may run on this machine.
JOIN = """
import functools
import ray._private.services as services
import ray._private.utils as utils
services.find_gcs_addresses = functools.cache(set)
utils.read_ray_address = lambda *_: None
from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch import ray_cluster
from lamarckian_cli.launch.settings import Cluster
try:
    ray_cluster.join(Cluster(kind="auto"))
except ClusterError as error:
    print(error)
"""


def test_the_message_has_commands_of_ours_alone(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", JOIN],
        capture_output=True,
        text=True,
        timeout=60,
        env={**environment, "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "no cluster runs on this machine" in done.stdout
    assert "lamarck cluster up --here" in done.stdout
    assert "cluster.address=HOST:PORT" in done.stdout
    assert "--address" not in done.stdout
