"""What a measurement inside one machine needs around it: a folder, and Ray as a peer on equal terms."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from lamarckian_cli.launch import ray_calls, ray_cluster
from lamarckian_cli.launch.guardian import Guardian
from lamarckian_cli.launch.shared_folder import make_folder


@contextlib.contextmanager
def guarded_folder() -> Iterator[str]:
    """A folder in shared memory. It goes with all that was started meanwhile, whatever ends us."""
    folder = make_folder()
    guardian = Guardian(folder)
    try:
        yield folder
    finally:
        guardian.release()


@contextlib.contextmanager
def local_ray() -> Iterator[Any]:
    """Ray, on a cluster of this machine alone; it is ended afterwards."""
    # By default workers yield to everything else, which on a busy machine is no fair comparison.
    os.environ.setdefault("RAY_worker_niceness", "0")
    ray_cluster.start(ray_cluster.available_cores())
    try:
        yield ray_calls.ray()
    finally:
        ray_calls.ray().shutdown()
