"""How this process uses threads and memory: set once, by whoever samples or learns in it."""

from __future__ import annotations

import ctypes
import sys

from threadpoolctl import threadpool_limits

# Of glibc's mallopt(3).
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3


def limit_threads(count: int) -> None:
    """Hold NumPy's BLAS, and torch where it is loaded, to `count` threads from now on.

    Actors use one: their batches are small, and more would make sums depend on their number.
    """
    threadpool_limits(limits=count)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(count)


def keep_memory() -> None:
    """Keep what is freed for the next allocation, instead of giving it back to the system.

    Every update allocates the same arrays of megabytes; getting each page anew took a sixth of
    an update's time (2,300 page faults at batch 8192). Threads keep arenas of their own: in one
    that they share, what is received and what is computed break it into ever smaller pieces, and
    the process grows. Does nothing where there is no glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    for parameter, value in (
        (M_MMAP_THRESHOLD, 1 << 30),
        (M_TRIM_THRESHOLD, 2**31 - 1),
        (M_TOP_PAD, 1 << 26),
    ):
        mallopt(parameter, value)
