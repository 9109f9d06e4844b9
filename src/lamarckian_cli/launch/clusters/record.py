"""Which clusters `lamarck cluster up` has started, as files in ~/.lamarck/clusters, and how to join one.

A cluster has a folder of its name: `cluster.json`, its authority, and for each machine a
folder of secrets under `nodes/`. Home folders may be shared between machines, so nothing there
is named by a process alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.clusters.secrets import ray_environment, write_private
from lamarckian_cli.launch.guardian import ticks_of

FILE = "cluster.json"
DEFAULT_NAME = "default"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,40}")
STARTING, UP, ENDING, LOST = "starting", "up", "ending", "lost"  # the last is never written


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine of a cluster."""

    host: str  # as it was named for SSH; empty: the machine that `up` was typed on
    address: str  # that the others reach it by
    python: str
    user: str | None = None
    ssh: tuple[str, ...] = ()
    pid: int = 0  # of the process that everything of Ray there hangs under
    started: int = 0  # when that process did, in its kernel's ticks since it booted

    @property
    def is_head(self) -> bool:
        return not self.host

    @property
    def label(self) -> str:
        """What it is called in messages and as a folder; a host's name has no space."""
        return self.host or "this machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A cluster as its folder tells."""

    name: str
    identity: str  # random; marks all of its processes
    state: str  # starting, up or ending
    address: str  # HOST:PORT of its head
    created: float  # seconds since 1970
    nodes: tuple[Node, ...]  # the head first, until it has ended
    taken_out: tuple[str, ...] = ()  # Ray's ids of machines that were ended, which it learns of late

    @property
    def head(self) -> Node:
        return self.nodes[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to join a cluster from this machine."""

    name: str
    address: str  # for ray.init(address=...)
    environment: dict[str, str]  # to be set before Ray is imported


class NoHome(ClusterError):
    """There is no home folder, where clusters are written down."""


def find_access(address: str = "auto") -> Access | None:
    """How to join the cluster that `cluster.address` means; None where none of ours is meant.

    `auto` means the one that is up, a name the one of that name, HOST:PORT the one there. A
    ClusterError where several are up, or the one that is meant is gone or not yet there.
    """
    try:
        records = list(read_records())
    except NoHome:  # where `up` cannot have been either, so a cluster of somebody else's is meant
        records = []
    if address != "auto":
        meant = [record for record in records if address in (record.name, record.address)]
        if not meant and ":" not in address:
            raise ClusterError(
                f"cluster.address is {address!r}; there is no cluster of that name "
                f"({named(records)}): give HOST:PORT, auto or a name"
            )
        records = meant
    else:  # what is left of a cluster that was lost is in nobody's way
        records = [r for r in records if is_running(r.head.pid, r.head.started)] or records
    if len(records) > 1:
        raise ClusterError(
            f"cluster.address is 'auto', but {len(records)} clusters are up; "
            f"name one: cluster.address={records[0].name} ({named(records)})"
        )
    if not records:
        return None
    (record,) = records
    check_alive(record)
    folder = node_folder(record.name, record.head.label)
    return Access(name=record.name, address=record.address, environment=ray_environment(folder))


def check_alive(record: Record) -> None:
    """Raise a ClusterError unless the cluster has been brought up and its head, on this machine, runs."""
    remedy = f"lamarck cluster down --name {record.name} clears it away"
    if record.state != UP:
        raise ClusterError(
            f"cluster {record.name} is {record.state}, or that was cut short; "
            f"wait for lamarck cluster up or down, or {remedy}"
        )
    if not is_running(record.head.pid, record.head.started):
        raise ClusterError(
            f"cluster {record.name} has lost its head: process {record.head.pid} has ended; "
            f"{remedy}, then bring it up again"
        )


def read_records() -> Iterator[Record]:
    """Every cluster that has a folder, by name. A ClusterError where they cannot be looked at."""
    folder = clusters_folder()
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    except OSError as error:
        raise ClusterError(
            f"{folder} cannot be read ({error.strerror}); it says which clusters are up: make it a folder "
            f"that you can read, or set HOME, which is {str(folder.parent.parent)!r}, to another folder"
        ) from error
    for name in names:
        if os.path.exists(folder / name / FILE):
            yield read_record(name)


def read_record(name: str) -> Record:
    """The cluster of this name. A ClusterError where there is none, or its file cannot be read."""
    path = cluster_folder(name) / FILE
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        nodes = tuple(Node(**{**node, "ssh": tuple(node["ssh"])}) for node in tree.pop("nodes"))
        if tree["state"] == "up" and not nodes:
            raise ValueError("it names no machine")
        return Record(**{**tree, "taken_out": tuple(tree.get("taken_out", ()))}, nodes=nodes)
    except FileNotFoundError as error:
        there = list(read_records())
        remedy = f"name one: --name {there[0].name}" if there else "start one with lamarck cluster up --here"
        raise ClusterError(f"there is no cluster {name!r} ({named(there)}); {remedy}") from error
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ClusterError(
            f"{path} cannot be read ({error}); end what runs of that cluster, then remove {path.parent}"
        ) from error


def write_record(record: Record) -> None:
    """Put it into its folder, all at once."""
    tree: dict[str, Any] = dataclasses.asdict(record)
    with writing():
        write_private(cluster_folder(record.name), {FILE: json.dumps(tree, indent=1) + "\n"})


@contextmanager
def writing() -> Iterator[None]:
    """A ClusterError where what is written within it, below the home folder, cannot be."""
    try:
        yield
    except FileExistsError:
        raise  # which says that somebody else did
    except OSError as error:
        home = clusters_folder().parent.parent
        raise ClusterError(
            f"{error.filename or clusters_folder()} cannot be written ({error.strerror}); set HOME, which is "
            f"{str(home)!r}, to a folder that you can write to"
        ) from error


def check_name(name: str) -> None:
    """Raise a ClusterError where a cluster, whose name is a folder's, cannot be called so."""
    if not NAME.fullmatch(name):
        raise ClusterError(
            f"--name is {name!r}; take letters, digits, dots, dashes and underscores, at most 41, "
            "the first of them a letter or digit"
        )


def clusters_folder() -> Path:
    """Below the home folder. NoHome where there is none."""
    given = os.environ.get("HOME")
    shown = "not set" if given is None else repr(given)
    try:
        home = Path.home()
        usable = given != "" and home.is_absolute() and home.is_dir()
    except (RuntimeError, OSError):
        usable = False
    if not usable:
        raise NoHome(
            f"HOME is {shown}, and no folder that is there; set it to the whole path of a folder of yours"
        )
    return home / ".lamarck" / "clusters"


def cluster_folder(name: str) -> Path:
    return clusters_folder() / name


def node_folder(name: str, label: str) -> Path:
    """Where a machine keeps its secrets; the same path on every machine that has the same home."""
    return cluster_folder(name) / "nodes" / re.sub(r"[^\w.-]", "_", label)


def named(records: list[Record]) -> str:
    """Which clusters there are, for a message."""
    return f"there are: {', '.join(r.name for r in records)}" if records else "there is none"


def is_running(pid: int, started: int) -> bool:
    """Whether this very process runs; another one of the same number is another one."""
    return ticks_of(pid) == started
