"""What this machine has, what is missing, and the command that brings it: `lamarck doctor`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from lamarckian_cli.errors import pip_install

GIB = 1024**3
SUPPORTED = ((3, 11), (3, 14))  # from, and below
DISK_WANTED_GIB = 2.0
SHM_WANTED_GIB = 0.5
MEMORY_WANTED_GIB = 4.0
CORES_WANTED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    name: str
    ok: bool
    found: str
    needed: bool = True  # False: training goes without it
    remedy: str = ""


def examine() -> list[Finding]:
    """Look at everything; a check that itself fails says so and does not stop the others."""
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("python", _python),
        ("torch", _torch),
        ("bfloat16", _bfloat16),
        ("ray", lambda: _package("ray", pip_install('"ray[default]"'))),
        ("zeromq", _zeromq),
        ("gymnasium", lambda: _package("gymnasium", pip_install("gymnasium"))),
        ("ale-py", _atari),
        ("box2d", _box2d),
        ("pettingzoo", lambda: _package("pettingzoo", pip_install("pettingzoo"), needed=False)),
        ("gfootball", _football),
        ("ffmpeg", _ffmpeg),
        ("tensorboard", lambda: _package("tensorboard", pip_install("tensorboard"), needed=False)),
        ("cores", _cores),
        ("memory", _memory),
        ("/dev/shm", _shared_memory),
        ("disk", _disk),
    ]
    return [_guarded(name, check) for name, check in checks]


def _guarded(name: str, check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except (ImportError, OSError, RuntimeError, AttributeError, ValueError) as error:
        return Finding(
            name=name, ok=False, found=f"{type(error).__name__}: {error}", remedy="install it again"
        )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _package(name: str, remedy: str, *, needed: bool = True) -> Finding:
    version = _version(name)
    if version is None:
        return Finding(name=name, ok=False, found="not installed", needed=needed, remedy=remedy)
    return Finding(name=name, ok=True, found=version, needed=needed)


def _python() -> Finding:
    low, below = SUPPORTED
    ok = low <= sys.version_info[:2] < below
    found = f"{platform.python_version()} in {sys.prefix}"
    return Finding(name="python", ok=ok, found=found, remedy="" if ok else "make setup PYTHON=python3.12")


def _torch() -> Finding:
    if _version("torch") is None:
        return Finding(name="torch", ok=False, found="not installed", remedy=pip_install("torch"))
    import torch

    devices = f"{torch.cuda.device_count()} GPU(s)" if torch.cuda.is_available() else "no GPU in use"
    threads = f"{torch.get_num_threads()} threads"
    return Finding(name="torch", ok=True, found=f"{torch.__version__}, {devices}, {threads}")


def _bfloat16() -> Finding:
    flags = _cpu_flags()
    native = sorted(flags & {"avx512_bf16", "amx_bf16", "bf16"})
    if native:
        return Finding(name="bfloat16", ok=True, found=", ".join(native), needed=False)
    return Finding(
        name="bfloat16",
        ok=False,
        found="this processor does not multiply it natively",
        needed=False,
        remedy="nothing to do: algo.precision=auto takes fp32",
    )


def _cpu_flags() -> set[str]:
    path = Path("/proc/cpuinfo")
    if not path.is_file():
        return set()
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.partition(":")[2].split())
    return set()


def _zeromq() -> Finding:
    if _version("pyzmq") is None:
        return Finding(name="zeromq", ok=False, found="not installed", remedy=pip_install("pyzmq"))
    # zmq is transport's to import; asked for by name, for its version and abilities alone.
    zmq = importlib.import_module("zmq")
    curve = bool(zmq.has("curve"))
    found = (
        f"{zmq.zmq_version()} (pyzmq {zmq.__version__}), {'with' if curve else 'without'} CURVE encryption"
    )
    remedy = "" if curve else pip_install("--force-reinstall --only-binary :all: pyzmq")
    return Finding(name="zeromq", ok=curve, found=found, remedy=remedy)


def _atari() -> Finding:
    version = _version("ale-py")
    if version is None:
        return Finding(
            name="ale-py", ok=False, found="not installed", needed=False, remedy=pip_install("ale-py")
        )
    # Found without importing it, which would print a banner.
    spec = importlib.util.find_spec("ale_py")
    folder = Path(next(iter(spec.submodule_search_locations or [""]))) if spec is not None else Path()
    roms = len(list((folder / "roms").glob("*.bin")))
    remedy = "" if roms else pip_install('--upgrade "ale-py>=0.11"') + ", which brings them"
    return Finding(name="ale-py", ok=roms > 0, found=f"{version}, {roms} ROMs", needed=False, remedy=remedy)


def _box2d() -> Finding:
    if importlib.util.find_spec("Box2D") is None:
        return Finding(
            name="box2d",
            ok=False,
            found="not installed (LunarLander, BipedalWalker)",
            needed=False,
            remedy=pip_install('"gymnasium[box2d]"'),
        )
    return Finding(
        name="box2d", ok=True, found=_version("box2d") or _version("box2d-py") or "yes", needed=False
    )


def _football() -> Finding:
    version = _version("gfootball")
    ok, found = version is not None, version or "not installed (football)"
    if ok:
        try:  # it is there; are the system libraries that it draws with, too?
            importlib.import_module("gfootball_engine")
        except ImportError as error:
            ok, found = False, f"{version}, which does not load: {error}"
    remedy = "" if ok else "make football"
    return Finding(name="gfootball", ok=ok, found=found, needed=False, remedy=remedy)


def _ffmpeg() -> Finding:
    if importlib.util.find_spec("imageio_ffmpeg") is not None:
        executable = str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
    else:
        executable = shutil.which("ffmpeg") or ""
    if not executable:
        remedy = pip_install("imageio-ffmpeg")
        return Finding(name="ffmpeg", ok=False, found="not found (videos)", needed=False, remedy=remedy)
    return Finding(name="ffmpeg", ok=True, found=executable, needed=False)


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    few = cores < CORES_WANTED
    remedy = "take cluster=inproc" if few else ""
    return Finding(name="cores", ok=not few, found=str(cores), needed=False, remedy=remedy)


def _memory() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    ok = memory.total >= MEMORY_WANTED_GIB * GIB
    found = f"{memory.total / GIB:.1f} GiB, {memory.available / GIB:.1f} free"
    return Finding(
        name="memory", ok=ok, found=found, needed=False, remedy="" if ok else "take cluster=inproc"
    )


def _shared_memory() -> Finding:
    folder = Path("/dev/shm")
    if not folder.is_dir():
        return Finding(
            name="/dev/shm", ok=False, found="not there", needed=False, remedy="take cluster=inproc"
        )
    usage = shutil.disk_usage(folder)
    ok = usage.free >= SHM_WANTED_GIB * GIB
    found = f"{usage.total / GIB:.1f} GiB, {usage.free / GIB:.1f} free"
    return Finding(
        name="/dev/shm",
        ok=ok,
        found=found,
        needed=False,
        remedy="" if ok else "in a container: docker run --shm-size=1g",
    )


def _disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free / GIB
    ok = free >= DISK_WANTED_GIB
    return Finding(
        name="disk",
        ok=ok,
        found=f"{free:.1f} GiB free in {Path.cwd()}",
        needed=False,
        remedy="" if ok else "free some, or give run.dir another place",
    )
