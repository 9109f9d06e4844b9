"""Say how much is about to be downloaded, from pip's dry-run report on torch: `python torch_build.py REPORT`.

Nearly all of an installation's size is torch, and torch comes as a CPU build or as a CUDA
build ten times as large. Which one pip will take depends on the index, so pip is asked.
"""

import json
import platform
import re
import sys
from pathlib import Path
from typing import Any

# Measured with the pinned versions; rounded up.
OTHERS = "about 90 other packages (300 MB)"
CPU = "about 0.5 GB to download in all, 1.8 GB on disk"
CUDA = "about 3.5 GB to download in all, 8 GB on disk"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def main(report_path: Path) -> None:
    report = json.loads(report_path.read_text(encoding="utf-8"))
    for item in report["install"]:
        if item["metadata"]["name"] == "torch":
            print(announcement(item["metadata"], platform.machine()))


def announcement(torch: dict[str, Any], machine: str) -> str:
    """`torch` is the metadata of the file that pip chose."""
    version = torch["version"]
    if not needs_cuda(torch.get("requires_dist", []), machine):
        return f"To install: torch {version}, a CPU build (200 MB), and {OTHERS}: {CPU}."
    return (
        f"To install: torch {version}, a CUDA build (about 3 GB), and {OTHERS}: {CUDA}.\n"
        "If this machine trains on its processor alone, stop with Ctrl-C and take the CPU build instead:\n"
        f"    make setup TORCH_INDEX={CPU_INDEX}"
    )


def needs_cuda(requirements: list[str], machine: str) -> bool:
    """Whether torch brings NVIDIA's libraries on a machine of this kind (`x86_64`, `aarch64`)."""
    for requirement in requirements:
        wanted = re.search(r"platform_machine\s*==\s*[\"'](\w+)", requirement)
        if re.match(r"(nvidia|cuda)-", requirement) and (wanted is None or wanted[1] == machine):
            return True
    return False


if __name__ == "__main__":
    main(Path(sys.argv[1]))
