"""How this process uses threads: set once, by whoever samples or learns in it."""

from __future__ import annotations

import sys

from threadpoolctl import threadpool_limits


def limit_threads(count: int) -> None:
    """Hold NumPy's BLAS, and torch where it is loaded, to `count` threads from now on.

    Actors use one: their batches are small, and more would make sums depend on their number.
    """
    threadpool_limits(limits=count)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(count)
