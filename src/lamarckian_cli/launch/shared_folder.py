"""A job's folder on one machine: sockets, and weights in shared memory. Only its owner can enter it."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path

from lamarckian_cli.errors import ClusterError

SHARED_MEMORY = Path("/dev/shm")
LEAST_FREE_BYTES = 16 << 20


def make_folder(root: Path = SHARED_MEMORY) -> str:
    """A new folder of mode 0700 in memory; ClusterError where the machine has none, or too little left."""
    if not root.is_dir() or not os.access(root, os.W_OK):
        raise ClusterError(
            f"{socket.gethostname()} has no shared memory: {root} is not there, or not writable; mount a "
            "tmpfs there, or train with cluster=inproc"
        )
    free = shutil.disk_usage(root).free
    if free < LEAST_FREE_BYTES:
        raise ClusterError(
            f"{socket.gethostname()} has {free / 2**20:.0f} MiB of shared memory left in {root}; at least "
            f"{LEAST_FREE_BYTES >> 20} are needed: free some (in a container: docker run --shm-size=1g)"
        )
    try:
        return tempfile.mkdtemp(prefix="lamarck-", dir=root)
    except OSError as error:
        raise ClusterError(
            f"{socket.gethostname()} cannot make a folder in {root}: {error.strerror}; see to it that this "
            "user can write there, or train with cluster=inproc"
        ) from error
