"""Random streams that follow from one job seed and a path of names and numbers.

Every part of a job draws from a stream of its own, so that adding an actor or a match
changes nobody else's numbers, and a resumed run can rebuild any stream from its path.
"""

import hashlib
from collections.abc import Iterable

import numpy as np


def derive_seed(seed: int, path: Iterable[str | int]) -> int:
    """A 63-bit seed for the stream at `path` below `seed`; equal paths give equal seeds."""
    text = "/".join([str(seed), *(str(part) for part in path)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def stream(seed: int, *path: str | int) -> np.random.Generator:
    """A NumPy generator for the stream at `path` below `seed`."""
    return np.random.Generator(np.random.PCG64(derive_seed(seed, path)))
