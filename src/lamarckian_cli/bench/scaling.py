"""`lamarck bench scaling --simulate`: a sweep over cores, layouts and workloads, beside the paper's figures.

Costs are measured on this machine where they can be (`calibration.py`), the rest is simulated
(`simulation.py`). Workloads that end in `_paper` have one fitted number, the step rate, so that
the paper's own rate comes out at the fewest cores; every other point of theirs is a prediction.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lamarckian_cli.bench.calibration import WORKLOADS, Calibrated, calibrate
from lamarckian_cli.bench.calibration_transport import measure_transport
from lamarckian_cli.bench.machine import machine
from lamarckian_cli.bench.simulation import Costs, Figures, Setup, simulate
from lamarckian_cli.bench.simulation_network import LAYOUTS, Transport
from lamarckian_cli.errors import ConfigError, require
from lamarckian_cli.transport.tree import Wire

CORES = (10, 20, 40, 80, 160, 500, 1000, 2000, 4000, 6000, 10_000, 20_000, 50_000, 100_000)
MOST_CORES = 100_000  # further out a simulation takes too long to be of use
TEN_GBIT = Wire(bytes_per_s=1.25e9, latency_s=50e-6)
FITTINGS = 3  # times that a fitted rate is tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """What the paper measured for a workload of ours, by cores."""

    env_steps_per_s: dict[int, float]
    of: str | None = None  # the workload whose step rate is fitted to the first of these; None: none is


PAPER = {
    "pendulum_paper": Paper(of="pendulum", env_steps_per_s={10: 1e4, 20: 2e4, 40: 4e4, 80: 8e4, 160: 15e4}),
    "football_paper": Paper(of="football", env_steps_per_s={2000: 17e3, 6000: 53e3}),
}
PAPER_CPU_USE = {"pong_image": {10: 0.322, 20: 0.621, 40: 0.968, 80: 0.972, 160: 0.694}}
NAMES = (*WORKLOADS, *PAPER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What is to be simulated; ConfigError where it cannot be."""

    workloads: tuple[str, ...] = NAMES
    layouts: tuple[str, ...] = ("flat", "tree")
    cores: tuple[int, ...] = CORES
    cores_per_machine: int = 40
    update_s: float | None = None  # of a batch; None: as declared for each workload
    wire: Wire = TEN_GBIT
    seed: int = 0

    def __post_init__(self) -> None:
        for key, values, known in (
            ("--workload", self.workloads, NAMES),
            ("--layout", self.layouts, LAYOUTS),
        ):
            require(len(values) > 0, key, "", f"name at least one of {', '.join(known)}")
            for value in values:
                require(value in known, key, value, f"choose from {', '.join(known)}")
        require(len(self.cores) > 0, "--cores", "", "give at least one number, such as 10,160,6000")
        for count in self.cores:
            require(1 <= count <= MOST_CORES, "--cores", count, f"each must lie in 1 to {MOST_CORES}")
        count = self.cores_per_machine
        require(count >= 1, "--cores-per-machine", count, "it must be at least 1")
        if self.update_s is not None:
            require(_positive(self.update_s), "--update-seconds", self.update_s, "it must be above 0 (0.05)")
        bits = self.wire.bytes_per_s * 8e-9
        require(_positive(bits), "--bandwidth", bits, "it must be above 0 Gbit/s (10)")
        micros = self.wire.latency_s * 1e6
        require(0 <= micros < math.inf, "--latency-us", micros, "it must be 0 or more (50)")
        require(self.seed >= 0, "--seed", self.seed, "it must be 0 or more")

    @property
    def points(self) -> int:
        return len(self.workloads) * len(self.layouts) * len(self.cores)


def measure_scaling(
    sweep: Sweep, *, out: Path, progress: Callable[[str, float], None] = lambda what, share: None
) -> dict[str, Any]:
    """Calibrate, simulate, and write document and plots into `out`, a new folder; the document.

    `progress` is told what is done now, and the share of everything that lies behind.
    """
    if out.exists():
        raise ConfigError(f"--out is {str(out)!r}; it is there already, so name a new folder")
    this, load = machine(), os.getloadavg()[0]
    progress("measuring transport", 0.0)
    transport = measure_transport()
    calibrated: dict[str, Calibrated] = {}
    for name in _measured(sweep.workloads):
        progress(f"measuring {name}", 0.0)
        calibrated[name] = calibrate(name, cores=this["cores"])
    costs = {
        name: _costs_of(name, sweep, calibrated[_base(name)].costs, transport) for name in sweep.workloads
    }
    results: list[dict[str, Any]] = []
    for name in sweep.workloads:
        for layout in sweep.layouts:
            for cores in sweep.cores:
                progress(f"{name}, {layout}, {cores:,} cores", len(results) / sweep.points)
                figures = _simulated(costs[name], sweep, layout, cores, transport)
                results.append(_result(name, layout, cores, figures))
    inputs = {
        "load_average": load,  # before we began: what others run makes costs look higher
        "network": asdict(sweep.wire),
        "transport": asdict(transport),
        "workloads": {name: _inputs(name, costs[name], calibrated[_base(name)], sweep) for name in costs},
    }
    document = {"kind": "scaling", "machine": this, "results": results, "inputs": inputs}
    _write(document, out)
    return document


def fitted(costs: Costs, target: float, cores: int, run: Callable[[Costs], float]) -> Costs:
    """The costs with the step rate at which `run`, which gives env steps a second, comes to `target`.

    What an actor spends on an env step beside stepping hardly depends on the step rate.
    """
    step_s = cores / target
    for _ in range(FITTINGS):
        costs = replace(costs, step_rate=1 / step_s)
        step_s += cores / target - cores / run(costs)
    return costs


# ------------------------------------------------------------------ parts of the sweep


def _base(name: str) -> str:
    """The workload that is measured for this one."""
    return PAPER[name].of or name if name in PAPER else name


def _measured(names: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(_base(name) for name in names))


def _costs_of(name: str, sweep: Sweep, costs: Costs, transport: Transport) -> Costs:
    """Measured, declared, and where the paper is to be met, fitted."""
    if sweep.update_s is not None:
        costs = replace(costs, update_s=sweep.update_s)
    if name == _base(name):
        return costs
    cores, target = next(iter(PAPER[name].env_steps_per_s.items()))

    def run(tried: Costs) -> float:
        return _simulated(tried, sweep, "tree", cores, transport).env_steps_per_s

    return fitted(costs, target, cores, run)


def _simulated(costs: Costs, sweep: Sweep, layout: str, cores: int, transport: Transport) -> Figures:
    setup = Setup(cores=cores, cores_per_machine=sweep.cores_per_machine, layout=layout)
    return simulate(costs, setup, wire=sweep.wire, transport=transport, seed=sweep.seed)


def _result(name: str, layout: str, cores: int, figures: Figures) -> dict[str, Any]:
    paper = PAPER[name].env_steps_per_s if name in PAPER else {}
    return {
        "workload": name,
        "layout": layout,
        "cores": cores,
        **asdict(figures),
        "fitted": bool(paper) and cores == next(iter(paper)),
        "paper_env_steps_per_s": paper.get(cores),
        "paper_cpu_use": PAPER_CPU_USE.get(name, {}).get(cores),
    }


def _inputs(name: str, costs: Costs, calibrated: Calibrated, sweep: Sweep) -> dict[str, Any]:
    """A workload's costs, and which of them were not measured here."""
    is_fitted = name != _base(name)
    return {
        "costs": asdict(costs),
        "declared": [part for part in calibrated.declared if not (is_fitted and part == "step_rate")],
        "fitted": ["step_rate"] if is_fitted else [],
        "update_s_here": calibrated.update_s_here,
    }


def _positive(value: float) -> bool:
    return 0 < value < math.inf


# ------------------------------------------------------------------ what is written


def _write(document: dict[str, Any], out: Path) -> None:
    """The whole folder or none: written beside, then renamed."""
    beside = out.with_name(f".{out.name}.partial")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        (beside / "scaling.json").write_text(json.dumps(document, indent=1, default=str), encoding="utf-8")
        for name in dict.fromkeys(result["workload"] for result in document["results"]):
            _plot([r for r in document["results"] if r["workload"] == name], name, beside / f"{name}.png")
        beside.rename(out)
    except OSError as error:
        raise ConfigError(f"--out is {str(out)!r}; it cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


PANELS = (
    ("env_steps_per_s", "env steps per second", "paper_env_steps_per_s"),
    ("staleness_paper", "staleness, as the paper counts it", None),
    ("egress_bytes_per_version", "bytes that the learner sends, per version", None),
    ("cpu_use", "CPU use of the actors' machines", "paper_cpu_use"),
)


def _plot(results: list[dict[str, Any]], name: str, path: Path) -> None:
    """Four panels over the number of cores, a line a layout."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(name)
    for axes, (key, label, paper) in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
        for layout in dict.fromkeys(result["layout"] for result in results):
            rows = [result for result in results if result["layout"] == layout]
            axes.plot([r["cores"] for r in rows], [r[key] for r in rows], marker="o", label=layout)
        known = {r["cores"]: r[paper] for r in results if paper and r[paper] is not None}
        if known:
            axes.plot(list(known), list(known.values()), "kx", markersize=9, label="paper")
        axes.set(xlabel="cores", ylabel=label, xscale="log", yscale="linear" if key == "cpu_use" else "log")
        axes.grid(True, alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=110)
