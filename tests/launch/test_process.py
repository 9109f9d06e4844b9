"""Threads and memory of a process that samples or learns."""

import subprocess
import sys

import threadpoolctl

from lamarckian_cli.launch.process import limit_threads

FAULTS = """
import resource, numpy as np
from lamarckian_cli.launch.process import keep_memory
{before}

def work():
    for _ in range(20):
        arrays = [np.ones(1 << 20) for _ in range(4)]  # 8 MB each

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

work()
first = faults()
work()
print(faults() - first)
"""


def faults(before):
    done = subprocess.run(
        [sys.executable, "-c", FAULTS.format(before=before)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return int(done.stdout)


def test_memory_that_was_freed_is_not_fetched_anew():
    assert faults("") > 1000, "this system keeps freed memory by itself"
    assert faults("keep_memory()") < 100


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
