"""Threads of a process that samples or learns."""

import threadpoolctl

from lamarckian_cli.launch.process import limit_threads


def test_numpy_and_torch_are_held_to_the_threads_asked_for():
    import numpy  # noqa: F401
    import torch

    before = torch.get_num_threads()
    limits = threadpoolctl.threadpool_limits(limits=None)
    try:
        limit_threads(1)
        assert torch.get_num_threads() == 1
        assert {pool["num_threads"] for pool in threadpoolctl.threadpool_info()} == {1}
    finally:
        limits.restore_original_limits()
        torch.set_num_threads(before)
