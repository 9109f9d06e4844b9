"""Which precision `algo.precision` means on a device."""

from __future__ import annotations

from pathlib import Path


def uses_bf16(precision: str, device: str = "cpu") -> bool:
    """Whether layers between the first and the last run in bfloat16."""
    return precision == "bf16" or (precision == "auto" and bf16_is_native(device))


def bf16_is_native(device: str = "cpu") -> bool:
    """Whether the device multiplies bfloat16 in hardware, which makes it the faster choice."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.is_bf16_supported(including_emulation=False)
    try:
        flags = Path("/proc/cpuinfo").read_text().split("flags", 1)[1].split("\n", 1)[0].split()
    except (OSError, IndexError):
        return False
    return "amx_bf16" in flags or "avx512_bf16" in flags
