"""`lamarck bench scaling`: how a training grows with machines that are not here."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

CHECK_COLUMNS = ("hosts", "layout", "figure", "predicted", "measured", "ratio", "within 20 %")
COLUMNS = (
    "workload", "layout", "cores", "env steps/s", "paper's env steps/s",
    "staleness", "staleness as the paper counts",
    "egress, MB/s", "egress, MB a version", "CPU %", "paper's CPU %", "learner %",
)  # fmt: skip


def scaling(
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Simulate the machines; their costs are measured here.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Hold the simulation against 4, 8 and 16 hosts of namespaces; takes root."
        ),
    ] = False,
    cores: Annotated[
        str | None,
        typer.Option("--cores", help="Of the actors, such as 10,160,6000; up to 100,000 by default."),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option("--workload", help="pendulum, pong_image, football, pendulum_paper, football_paper."),
    ] = None,
    layout: Annotated[str, typer.Option("--layout", help="flat, tree, per_actor.")] = "flat,tree",
    update_seconds: Annotated[
        float | None,
        typer.Option("--update-seconds", help="Of the learner, a batch; by default as declared a workload."),
    ] = None,
    bandwidth: Annotated[float, typer.Option("--bandwidth", help="Of each machine, in Gbit/s.")] = 10.0,
    latency_us: Annotated[float, typer.Option("--latency-us", help="One way, in microseconds.")] = 50.0,
    cores_per_machine: Annotated[int, typer.Option("--cores-per-machine", help="One actor a core.")] = 40,
    out: Annotated[
        Path | None, typer.Option("--out", help="A new folder for plots; bench/scaling-DATE by default.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of what varies between unrolls.")] = 0,
    json_output: Annotated[
        bool, typer.Option("--json", help="One JSON document on standard output.")
    ] = False,
) -> None:
    """Rate, staleness, traffic and CPU use from 10 to 100,000 cores, by simulation; and how true it is."""
    from lamarckian_cli.bench.scaling import CORES, NAMES, Sweep, measure_scaling
    from lamarckian_cli.cli.output import only_json, print_json, print_table, progress_bar
    from lamarckian_cli.errors import require
    from lamarckian_cli.transport.tree import Wire

    require(simulate or check, "--simulate", simulate, "give --simulate, or --check")
    if check:
        given: dict[str, Any] = {"--simulate": simulate or None, "--cores": cores, "--workload": workload}
        given |= {"--update-seconds": update_seconds, "--out": out}
        for key, value in given.items():
            require(value is None, key, value, "--check has hosts and a workload of its own, so leave it out")
        _check(seed, json_output)
        return
    sweep = Sweep(
        workloads=NAMES if workload is None else _names(workload),
        layouts=_names(layout),
        cores=CORES if cores is None else _numbers(cores, "--cores"),
        cores_per_machine=cores_per_machine,
        update_s=update_seconds,
        wire=Wire(bytes_per_s=bandwidth * 1e9 / 8, latency_s=latency_us * 1e-6),
        seed=seed,
    )
    folder = out or Path("bench") / f"scaling-{datetime.now():%Y%m%d-%H%M%S}"
    with only_json(json_output), progress_bar() as progress:
        document = measure_scaling(sweep, out=folder, progress=progress)
    if json_output:
        print_json(document)
        return
    rows = [_row(result) for result in document["results"]]
    shown = [i for i in range(len(COLUMNS)) if any(row[i] is not None for row in rows)]
    print_table([COLUMNS[i] for i in shown], [[row[i] for i in shown] for row in rows], fold=(), keys=3)
    for name, inputs in document["inputs"]["workloads"].items():
        _explain(name, inputs)
    load, here = document["inputs"]["load_average"], document["machine"]["cores"]
    if load > here / 2:
        print(f"The machine was busy (load {load:.1f} on {here} cores), so costs came out too high.")
    print(f"Plots and numbers are in {folder}.")


def _check(seed: int, json_output: bool) -> None:
    from lamarckian_cli.bench.scaling_check import Check, check_scaling
    from lamarckian_cli.cli.output import only_json, print_json, print_table, progress_bar

    with only_json(json_output), progress_bar() as progress:
        document = check_scaling(Check(seed=seed), progress=progress)
    if json_output:
        print_json(document)
        return
    results = document["results"]
    print_table(CHECK_COLUMNS, [row for result in results for row in _check_rows(result)], fold=(), keys=3)
    for result in results:
        print(
            f"{result['machines']} hosts, {result['layout']}: {result['batches']} batches in "
            f"{result['seconds']:.0f} s; processors {100 * result['cpu_use']:.0f} % busy with this, "
            f"{100 * result['cpu_load']:.0f} % with everything"
        )


def _check_rows(result: dict[str, Any]) -> list[list[Any]]:
    return [
        [
            result["machines"],
            result["layout"],
            name.replace("_", " "),
            figure["predicted"],
            figure["measured"],
            figure["ratio"],
            figure["within"],
        ]
        for name, figure in result["check"].items()
    ]


def _row(result: dict[str, Any]) -> list[Any]:
    paper_cpu = result["paper_cpu_use"]
    return [
        result["workload"],
        result["layout"],
        result["cores"],
        result["env_steps_per_s"],
        result["paper_env_steps_per_s"],
        result["staleness_mean"],
        result["staleness_paper"],
        result["egress_bytes_per_s"] / 1e6,
        result["egress_bytes_per_version"] / 1e6,
        100 * result["cpu_use"],
        None if paper_cpu is None else 100 * paper_cpu,
        100 * result["learner_use"],
    ]


def _explain(name: str, inputs: dict[str, Any]) -> None:
    """Which costs of a workload are not measurements."""
    costs = inputs["costs"]
    for kind in ("declared", "fitted"):
        if inputs[kind]:
            given = ", ".join(f"{part} {costs[part]:.4g}" for part in inputs[kind])
            print(f"{name}: {kind}, not measured here: {given}")


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _numbers(text: str, key: str) -> tuple[int, ...]:
    from lamarckian_cli.errors import ConfigError

    try:
        return tuple(sorted({int(part) for part in _names(text)}))
    except ValueError:
        raise ConfigError(f"{key} is {text!r}; give whole numbers with commas, such as 10,160,6000") from None
