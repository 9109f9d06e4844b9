"""What a figure was measured on."""

from __future__ import annotations

import os
import platform
from typing import Any

import psutil
import torch

from lamarckian_cli.launch.summary import package_versions
from lamarckian_cli.model.precision import bf16_is_native


def machine() -> dict[str, Any]:
    """Processor, cores that may be used, memory in bytes, and versions."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "bf16_native": bf16_is_native(),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "system": platform.platform(),
        "packages": package_versions(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
