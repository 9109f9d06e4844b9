"""A job's folder on one machine: sockets, and weights in shared memory. Only its owner can enter it.

A guardian removes it when the job ends, however that ends. Where both were killed outright, the next
job on the machine does: the kernel's lock on a file inside tells that nobody lives there any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import tempfile
from pathlib import Path

from lamarckian_cli.errors import ClusterError

SHARED_MEMORY = Path("/dev/shm")
LEAST_FREE_BYTES = 16 << 20
PREFIX, OWNER = "lamarck-", "owner"
_held: list[int] = []  # descriptors with locks on the folders of this process, as long as it lives


def make_folder(root: Path = SHARED_MEMORY) -> str:
    """A new folder of mode 0700 in memory; ClusterError where the machine has none, or too little left."""
    if not root.is_dir() or not os.access(root, os.W_OK):
        raise ClusterError(
            f"{socket.gethostname()} has no shared memory: {root} is not there, or not writable; mount a "
            "tmpfs there, or train with cluster=inproc"
        )
    _sweep(root)
    free = shutil.disk_usage(root).free
    if free < LEAST_FREE_BYTES:
        raise ClusterError(
            f"{socket.gethostname()} has {free / 2**20:.0f} MiB of shared memory left in {root}; at least "
            f"{LEAST_FREE_BYTES >> 20} are needed: free some (in a container: docker run --shm-size=1g)"
        )
    try:
        folder = tempfile.mkdtemp(prefix=PREFIX, dir=root)
        descriptor = os.open(Path(folder) / OWNER, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _held.append(descriptor)
        return folder
    except OSError as error:
        raise ClusterError(
            f"{socket.gethostname()} cannot make a folder in {root}: {error.strerror}; see to it that this "
            "user can write there, or train with cluster=inproc"
        ) from error


def _sweep(root: Path) -> None:
    """Remove what jobs of this user left whose processes are all gone."""
    for folder in root.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # somebody else's, or one that is being made or removed
            descriptor = os.open(folder / OWNER, os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
