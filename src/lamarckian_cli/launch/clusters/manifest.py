"""`lamarck cluster manifest`: the cluster of a job as a file for others to bring it up.

The secrets that a manifest refers to are made beside it once, and never overwritten: a second
manifest of the same name is of the same cluster. The manifest itself, which people edit, is
overwritten only where that was asked for.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import yaml

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.clusters.names import check_hosts, check_image, check_kubernetes_name, check_user
from lamarckian_cli.launch.clusters.plan import plan_of
from lamarckian_cli.launch.clusters.secrets import AUTHORITY, AUTHORITY_KEY, TOKEN, new_secrets, write_private
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.placement import without_size

KINDS = ("ray", "kuberay")
ROLES = ("learner", "worker")  # of machines, with an image each
SECRETS = (AUTHORITY, AUTHORITY_KEY, TOKEN)  # files of a cluster
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
        return _image(self.images, role, self.learner_gpus)


def _image(prefix: str, role: str, learner_gpus: int) -> str:
    version = metadata.version("lamarckian-cli")
    tag = f"{version}-cuda" if role == "learner" and learner_gpus else version
    return f"{prefix}lamarckian-{role}:{tag}"


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
    force: bool = False,
) -> list[tuple[Path, str]]:
    """Write the manifest to `out` and its secrets beside it; the files, and what each is.

    `hosts`, the head first, are for kind ray, which is a template for a cloud without them. A
    ClusterError where something cannot be, or `out` is there already and there is no `force`.
    """
    # Imported here, for both read this module.
    from lamarckian_cli.launch.clusters.manifest_kuberay import ray_job
    from lamarckian_cli.launch.clusters.manifest_ray import launcher

    _check(kind, name, hosts, user)
    for role in ROLES:
        check_image(images, _image(images, role, job.cluster.learner_gpus))
    _check_out(out, force)
    sizes = _sizes(job, name, out, tuple(hosts), user, images)
    tree, head = launcher(sizes) if kind == "ray" else ray_job(sizes)
    text = f"{head}\n{yaml.dump(tree, Dumper=Plain, sort_keys=False, width=100)}"
    new = not os.path.lexists(sizes.secrets)
    try:
        _write(out, text, sizes.secrets, new_secrets(name) if new else {}, force)
    except FileExistsError as error:  # made by another at this moment
        raise _there_already(out) from error
    except OSError as error:
        raise ClusterError(
            f"--out is {str(out)!r}, which cannot be written ({error.strerror}); name another"
        ) from error
    made = "token and authority, made now: keep them private" if new else "token and authority, as they were"
    return [(out, f"the manifest of {sizes.workers} workers and the learner"), (sizes.secrets, made)]


def _check(kind: str, name: str, hosts: Sequence[str], user: str | None) -> None:
    if kind not in KINDS:
        raise ClusterError(f"--kind is {kind!r}; choose {' or '.join(KINDS)}")
    check_kubernetes_name(name)
    if kind == "kuberay" and hosts:
        raise ClusterError("--hosts goes with --kind ray alone; Kubernetes finds machines by itself")
    if kind == "kuberay" and user is not None:
        raise ClusterError("--user goes with --kind ray alone; Kubernetes needs no SSH")
    check_hosts(hosts)
    check_user(user)


def _check_out(out: Path, force: bool) -> None:
    """Whether the manifest may be written there, and its secrets beside it."""
    if not out.name or os.path.isdir(out):
        raise ClusterError(f"--out is {str(out)!r}, which is a folder; give the name of a file")
    if os.path.lexists(out) and not stat.S_ISREG(os.lstat(out).st_mode):
        raise ClusterError(
            f"--out is {str(out)!r}, which is no ordinary file (a link, a pipe or a device); name another"
        )
    if not force and os.path.lexists(out):
        raise _there_already(out)
    secrets = _secrets_of(out)
    missing = [name for name in SECRETS if not os.path.isfile(secrets / name)]
    if os.path.lexists(secrets) and missing:
        raise ClusterError(
            f"{secrets} is there, but has no {' and no '.join(missing)}, so it holds no cluster's secrets; "
            "remove it, or name another file with --out"
        )


def _there_already(out: Path) -> ClusterError:
    return ClusterError(
        f"--out is {str(out)!r}, which is there already; name another file, or overwrite it with --force"
    )


def _secrets_of(out: Path) -> Path:
    return out.absolute().with_name(f"{out.name}.secrets")


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
        secrets=_secrets_of(out),
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


def _write(out: Path, text: str, secrets: Path, files: Mapping[str, str], force: bool) -> None:
    """Manifest, and secrets that are new; or neither. FileExistsError if `out` is there, without `force`."""
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        if files:
            write_private(secrets, files)
        if not force:
            out.touch(exist_ok=False)
        beside.replace(out)
    except OSError:
        if files:
            shutil.rmtree(secrets, ignore_errors=True)
        raise
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
