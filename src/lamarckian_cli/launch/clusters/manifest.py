"""`lamarck cluster manifest`: the cluster of a job as a file for others to bring it up.

The secrets that a manifest refers to are made beside it once, and never overwritten: a second
manifest of the same name is of the same cluster.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import yaml

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.clusters.plan import plan_of
from lamarckian_cli.launch.clusters.secrets import new_secrets, write_private
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.placement import without_size

KINDS = ("ray", "kuberay")
NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")  # of Kubernetes' objects
GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What both kinds of manifest are written from."""

    name: str
    actors: int
    workers: int  # machines
    cores_per_machine: int
    learner_gpus: int
    worker_gib: int  # memory that a worker's actors need
    learner_gib: int
    shared_gib: int  # of /dev/shm
    command: tuple[str, ...]  # lamarck train ...
    secrets: Path  # folder
    images: str  # what stands before the images' names
    hosts: tuple[str, ...] = ()  # the head first; empty: a cloud's machines
    user: str | None = None

    def image(self, role: str) -> str:
        """The image of `learner` or `worker`, as docker/README.md names it."""
        version = metadata.version("lamarckian-cli")
        tag = f"{version}-cuda" if role == "learner" and self.learner_gpus else version
        return f"{self.images}lamarckian-{role}:{tag}"


class Plain(yaml.SafeDumper):
    """YAML without anchors, which people find hard to read."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def write_manifest(
    job: Job,
    *,
    kind: str,
    out: Path,
    name: str = "lamarck",
    hosts: Sequence[str] = (),
    user: str | None = None,
    images: str = "",
) -> list[tuple[Path, str]]:
    """Write the manifest to `out` and its secrets beside it; the files, and what each is.

    `hosts`, the head first, are for kind ray, which is a template for a cloud without them.
    """
    # Imported here, for both read this module.
    from lamarckian_cli.launch.clusters.manifest_kuberay import ray_job
    from lamarckian_cli.launch.clusters.manifest_ray import launcher

    if kind not in KINDS:
        raise ClusterError(f"--kind is {kind!r}; choose {' or '.join(KINDS)}")
    if not NAME.fullmatch(name):
        raise ClusterError(
            f"--name is {name!r}; take lower case letters, digits and dashes, at most 40, the first a letter"
        )
    if kind == "kuberay" and hosts:
        raise ClusterError("--hosts goes with --kind ray alone; Kubernetes finds machines by itself")
    sizes = _sizes(job, name, out, tuple(hosts), user, images)
    tree, head = launcher(sizes) if kind == "ray" else ray_job(sizes)
    text = f"{head}\n{yaml.dump(tree, Dumper=Plain, sort_keys=False, width=100)}"
    new = not sizes.secrets.exists()
    try:
        _write(out, text)
        if new:
            write_private(sizes.secrets, new_secrets(name))
    except OSError as error:
        raise ClusterError(
            f"--out is {str(out)!r}, which cannot be written ({error.strerror}); name another"
        ) from error
    made = "token and authority, made now: keep them private" if new else "token and authority, as they were"
    return [(out, f"the manifest of {sizes.workers} workers and the learner"), (sizes.secrets, made)]


def _sizes(job: Job, name: str, out: Path, hosts: tuple[str, ...], user: str | None, images: str) -> Sizes:
    plan = plan_of(job, bandwidth_gbit_per_s=10.0, latency_us=50.0)["machines"]
    workers = plan["workers"]
    count = sum(group["machines"] for group in workers)
    if count == 0:
        raise ClusterError(
            f"cluster.kind is {job.cluster.kind!r}, of one machine; name a cluster, such as cluster=80cores"
        )
    if hosts and len(hosts) != count + 1:
        raise ClusterError(
            f"--hosts has {len(hosts)} machines, and {plan['actors']} actors on machines of "
            f"{job.cluster.cores_per_machine} cores need {count + 1}, the learner's among them; name as "
            "many, or change cluster.actors or cluster.cores_per_machine"
        )
    return Sizes(
        name=name,
        actors=plan["actors"],
        workers=count,
        cores_per_machine=job.cluster.cores_per_machine,
        learner_gpus=job.cluster.learner_gpus,
        worker_gib=_gib(max(group["memory_bytes"] for group in workers)),
        learner_gib=_gib(plan["learner"]["memory_bytes"]),
        shared_gib=_gib(plan["shared_bytes"]),
        command=_command(job),
        secrets=out.absolute().with_name(f"{out.name}.secrets"),
        images=images,
        hosts=hosts,
        user=user,
    )


def _command(job: Job) -> tuple[str, ...]:
    """`lamarck train` as it was asked for, joining the cluster that the manifest describes."""
    cluster = job.cluster
    words = without_size(job.command_line)
    words += ["cluster=auto", f"cluster.actors={cluster.actors or cluster.cores}"]
    return (*words, *(["cluster.learner_gpus=1"] if cluster.learner_gpus else []))


def _gib(size: float) -> int:
    """Gibibytes, up to the next whole one."""
    return int(-(-size // GIB))


def _write(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
