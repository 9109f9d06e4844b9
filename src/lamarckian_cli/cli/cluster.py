"""`lamarck cluster`: plan one, write its manifests, bring one up over SSH, look at it, end it."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(help="Clusters of machines: plan, manifests, bring-up over SSH.", no_args_is_help=True)
OVERRIDES = Annotated[
    list[str] | None,
    typer.Argument(metavar="[OVERRIDES]...", help="As for `lamarck train`: env=pong cluster=6000cores ..."),
]
JSON = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
HOSTS = Annotated[str, typer.Option("--hosts", metavar="A,B,C", help="Machines, as SSH knows them.")]
HOSTS_FILE = Annotated[
    Path | None, typer.Option("--hosts-file", help="A file with one machine a line; # begins a comment.")
]
NAME = Annotated[str, typer.Option("--name", help="Of the cluster.")]
HOSTS_FILE_LIMIT = 1_000_000  # characters


def _finite(value: float | None) -> float | None:
    """Not a number lies in every range."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is no finite number.")
    return value


@app.callback()
def cluster() -> None:
    """Clusters of machines: plan, manifests, bring-up over SSH."""


@app.command("plan")
def plan(
    overrides: OVERRIDES = None,
    bandwidth: Annotated[
        float,
        typer.Option(
            "--bandwidth", min=0.001, max=1e6, callback=_finite, help="Of each machine's link, in Gbit/s."
        ),
    ] = 10.0,
    latency: Annotated[
        float,
        typer.Option(
            "--latency-us",
            min=0,
            max=1e8,
            callback=_finite,
            help="One way between two machines, in microseconds.",
        ),
    ] = 50.0,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            min=0.001,
            max=1e9,
            callback=_finite,
            help="Env steps a second that one actor samples; assumed if left out.",
        ),
    ] = None,
    update_seconds: Annotated[
        float | None,
        typer.Option(
            "--update-seconds",
            min=1e-6,
            max=1e6,
            callback=_finite,
            help="That the learner takes for a batch; likewise.",
        ),
    ] = None,
    json_output: JSON = False,
) -> None:
    """Say what a job would be on such a cluster: machines, tree, traffic, memory, staleness."""
    from lamarckian_cli.cli.output import only_json, print_json, print_table
    from lamarckian_cli.launch.clusters.plan import plan_of
    from lamarckian_cli.launch.clusters.plan_text import lines
    from lamarckian_cli.launch.wiring import job_of

    with only_json(json_output):
        found = plan_of(
            job_of(overrides or []),
            bandwidth_gbit_per_s=bandwidth,
            latency_us=latency,
            env_steps_per_s=rate,
            update_s=update_seconds,
        )
    if json_output:
        print_json(found)
        return
    print_table(["plan", ""], lines(found))


@app.command("manifest")
def manifest(
    out: Annotated[Path, typer.Option("--out", help="The file to write.")],
    overrides: OVERRIDES = None,
    kind: Annotated[
        str, typer.Option("--kind", help="ray: for Ray's cluster launcher; kuberay: a RayJob.")
    ] = "kuberay",
    hosts: HOSTS = "",
    hosts_file: HOSTS_FILE = None,
    user: Annotated[str | None, typer.Option("--user", help="For SSH, with --kind ray.")] = None,
    name: NAME = "lamarck",
    images: Annotated[
        str,
        typer.Option("--images", metavar="PREFIX", help="What stands before the images' names."),
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file, where it is there.")] = False,
) -> None:
    """Write the manifest of a cluster for this job, and the secrets that it refers to beside it."""
    from lamarckian_cli.launch.clusters.manifest import write_manifest
    from lamarckian_cli.launch.wiring import job_of

    written = write_manifest(
        job_of(overrides or []),
        kind=kind,
        out=out,
        name=name,
        hosts=_hosts(hosts, hosts_file),
        user=user,
        images=images,
        force=force,
    )
    for path, what in written:
        print(f"{path}: {what}")


@app.command("up")
def up(
    hosts: HOSTS = "",
    hosts_file: HOSTS_FILE = None,
    here: Annotated[
        bool, typer.Option("--here", help="This machine takes actors too, not the head alone.")
    ] = False,
    cores: Annotated[
        int | None,
        typer.Option("--cores", min=1, max=100_000, help="That each machine gives; all of them if left out."),
    ] = None,
    name: NAME = "default",
    user: Annotated[str | None, typer.Option("--user", help="For SSH.")] = None,
    python: Annotated[
        str, typer.Option("--python", metavar="PATH", help="On the hosts: the one that has lamarckian-cli.")
    ] = sys.executable,
    ssh: Annotated[str, typer.Option("--ssh", help="Another command: 'ssh -p 2222 -i key'.")] = "ssh",
    address: Annotated[
        str | None, typer.Option("--address", help="Of this machine, where the hosts know it by another.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Of Ray's head; 0: any.")] = 0,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=1,
            max=86_400,
            callback=_finite,
            help="Seconds that each step of a machine may take.",
        ),
    ] = 60.0,
    json_output: JSON = False,
) -> None:
    """Bring a Ray cluster up on this machine and others, or add machines to one that is up."""
    from lamarckian_cli.launch.clusters.bringup import Bringup
    from lamarckian_cli.launch.clusters.bringup import up as bring_up
    from lamarckian_cli.launch.clusters.record import DEFAULT_NAME
    from lamarckian_cli.launch.clusters.takedown import status as state_of

    asked = Bringup(
        name=name,
        hosts=_hosts(hosts, hosts_file),
        here=here,
        cores=cores,
        user=user,
        python=python,
        ssh=ssh,
        address=address,
        port=port,
        timeout_s=timeout,
    )
    bring_up(asked, _say)
    _show(state_of(name), json_output)
    if not json_output:
        several = len(state_of(None)) > 1
        address = f" cluster.address={name}" if several else ""
        own_name = "" if name == DEFAULT_NAME else f" --name {name}"
        print(f"`lamarck train cluster=auto{address}` uses it; `lamarck cluster down{own_name}` ends it.")


@app.command("status")
def status(
    name: Annotated[str | None, typer.Option("--name", help="One cluster alone.")] = None,
    json_output: JSON = False,
) -> None:
    """Show the machines of the clusters that are up."""
    from lamarckian_cli.launch.clusters.takedown import status as state_of

    _show(state_of(name), json_output)


@app.command("down")
def down(
    name: NAME = "default",
    hosts: HOSTS = "",
    hosts_file: HOSTS_FILE = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also while a job runs on it; the job then ends unsaved.")
    ] = False,
) -> None:
    """End a cluster that `up` has started, or some of its machines alone."""
    from lamarckian_cli.launch.clusters.takedown import down as take_down

    ended = take_down(name, _hosts(hosts, hosts_file), _say, force=force)
    for warning in ended.warnings:
        print(f"lamarck: {warning}", file=sys.stderr)
    print(f"cluster {name}: ended on {', '.join(ended.machines) or 'no machine'}")


def _hosts(listed: str, file: Path | None) -> tuple[str, ...]:
    """The machines that an option and a file name."""
    from lamarckian_cli.errors import ClusterError

    found = [word.strip() for word in listed.split(",")]
    if file is not None:
        try:
            if not file.is_file():
                raise OSError("it is no ordinary file" if file.exists() else "there is none")
            with file.open(encoding="utf-8") as opened:
                text = opened.read(HOSTS_FILE_LIMIT + 1)
            if len(text) > HOSTS_FILE_LIMIT:
                raise OSError(f"it has more than {HOSTS_FILE_LIMIT:,} characters")
        except (OSError, UnicodeDecodeError) as error:
            raise ClusterError(
                f"--hosts-file is {str(file)!r}, which cannot be read ({error}); "
                "give a file with one machine a line"
            ) from error
        found += [line.partition("#")[0].strip() for line in text.splitlines()]
    return tuple(word for word in found if word)


def _say(text: str) -> None:
    """Progress, for a person who watches; scripts and files get none."""
    if sys.stderr.isatty():
        print(f"lamarck: {text}", file=sys.stderr)


def _show(clusters: Sequence[dict[str, Any]], json_output: bool) -> None:
    from lamarckian_cli.cli.output import print_json, print_table

    if json_output:
        print_json({"clusters": clusters})
        return
    if not clusters:
        print("No cluster is up. `lamarck cluster up --here` starts one on this machine.")
    for found in clusters:
        columns = ["machine", "name", "address", "cores", "GPUs", "alive"]
        rows = [
            [m["host"], m["name"], m["address"], m["cores"], m["gpus"], m["alive"]] for m in found["machines"]
        ]
        at = f" at {found['address']}" if found["address"] else ""
        print(f"cluster {found['name']}{at}: {found['state']}")
        print_table(columns, rows)
        if found["error"] is not None:
            print(
                f"Its head does not answer: {found['error']}. "
                f"`lamarck cluster down --name {found['name']}` clears it away."
            )
