"""`lamarck cluster up`: a Ray cluster on this machine and others that are reached by SSH.

This machine has the head. Each machine gets the token and a certificate of its own over SSH's
standard input; Ray itself is started there by `node.py`. The record is written before anything
starts, so that `down` knows what to end whatever happens.
"""

from __future__ import annotations

import dataclasses
import secrets as random_numbers
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.clusters import record as records
from lamarckian_cli.launch.clusters.names import (
    check_elsewhere,
    check_hosts,
    check_own_address,
    check_user,
    is_loopback,
    words_of,
)
from lamarckian_cli.launch.clusters.record import Node, Record
from lamarckian_cli.launch.clusters.secrets import TOKEN, Authority, new_secrets, write_private
from lamarckian_cli.launch.clusters.ssh import QUERY_TIMEOUT_S, ask, ask_all, first_of
from lamarckian_cli.launch.clusters.takedown import count, end, folder_there, identity_of, machines_of

SHARED_MEMORY_WANTED_BYTES = 256 << 20
LOOK_S = 0.5
HERE = Node(host="", address="", python=sys.executable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bringup:
    """What `lamarck cluster up` was asked for."""

    name: str = records.DEFAULT_NAME
    hosts: tuple[str, ...] = ()  # reached by SSH
    here: bool = False  # this machine takes actors too; without it, it has the head alone
    cores: int | None = None  # that each machine gives; None: all
    user: str | None = None
    python: str = sys.executable  # on the hosts
    ssh: str = "ssh"
    address: str | None = None  # of this machine, as the others reach it
    port: int = 0  # of the head; 0: any free one
    timeout_s: float = 60.0  # for each step of each machine


Say = Callable[[str], None]


def up(asked: Bringup, say: Say) -> Record:
    """Bring a cluster up, or add hosts to the one of this name that is up; how it is now.

    A ClusterError names the machine that cannot take part; what was started is ended by then.
    """
    records.check_name(asked.name)
    known = next((r for r in records.read_records() if r.name == asked.name), None)
    ssh = words_of("--ssh", asked.ssh)
    _check(asked, known)
    hosts = [Node(host=h, address="", python=asked.python, user=asked.user, ssh=ssh) for h in asked.hosts]
    say(f"looking at {count(1 + len(hosts), 'machine')}")
    probes = _probe([HERE, *hosts])
    new = []
    if known is None:
        known = _new_record(asked, probes)
        new = [known.head]
    hosts = [dataclasses.replace(n, address=_address_of_host(n, probes[n.label])) for n in hosts]
    return _start(asked, known, [*new, *hosts], probes, say)


# ---------------------------------------------------------------------- before anything starts


def _check(asked: Bringup, known: Record | None) -> None:
    check_hosts(asked.hosts)
    check_elsewhere(asked.hosts)
    check_user(asked.user)
    if not asked.python.strip():
        raise ClusterError(f"--python is {asked.python!r}; give the path of Python on the hosts")
    if known is None:
        if asked.address is not None:
            check_own_address(asked.address)
        if not asked.hosts and not asked.here:
            raise ClusterError("no machine is named; give --hosts, --hosts-file, or --here for this one")
        return
    records.check_alive(known)
    if not asked.hosts:
        raise ClusterError(
            f"cluster {known.name} is up already, of {count(len(known.nodes), 'machine')}; add some with "
            f"--hosts, take another --name, or end it: lamarck cluster down --name {known.name}"
        )
    present = sorted(set(asked.hosts) & {node.host for node in known.nodes})
    if present:
        raise ClusterError(
            f"--hosts has {', '.join(present)}, which cluster {known.name} has already; to start Ray there "
            f"anew, take it out first: lamarck cluster down --hosts {','.join(present)} --name {known.name}"
        )


def _probe(nodes: Sequence[Node]) -> dict[str, dict[str, Any]]:
    """What every machine says of itself; a ClusterError where one cannot take part."""
    probes, errors = ask_all(nodes, lambda node: ask(node, "probe", timeout_s=QUERY_TIMEOUT_S))
    ours = probes.get(HERE.label, {}).get("versions", {})
    for label, found in probes.items():
        reason = _unfit(found, ours)
        if reason is not None:
            errors[label] = ClusterError(f"{label}: {reason}")
    if errors:
        raise first_of(errors)
    return probes


def _unfit(found: Mapping[str, Any], ours: Mapping[str, str]) -> str | None:
    """Why a machine cannot be part of the cluster, and the remedy."""
    if not isinstance(found.get("versions"), dict) or "shared_memory_bytes" not in found:
        return (
            "its answer is not that of lamarckian-cli of this version; install the same there, or see --ssh"
        )
    for what, version in ours.items():
        theirs = found["versions"].get(what)
        if theirs != version:
            return f"{what} is {theirs} there and {version} here; install the same, or give another --python"
    free = found["shared_memory_bytes"]
    if free is None:
        return "there is no /dev/shm, which weights are shared in; mount a tmpfs there"
    if free < SHARED_MEMORY_WANTED_BYTES:
        return (
            f"/dev/shm has {free >> 20} MiB free, and {SHARED_MEMORY_WANTED_BYTES >> 20} are needed; remount "
            "it larger (in a container: --shm-size=1g)"
        )
    return None


def _address_of_head(probes: Mapping[str, Mapping[str, Any]], hosts: Sequence[str]) -> str:
    """This machine as the first host sees it; without hosts, as Ray would have it."""
    seen = [probes[host]["caller_address"] for host in hosts]
    usable = [address for address in seen if address and not is_loopback(address)]
    return usable[0] if usable else str(probes[HERE.label]["own_address"])


def _address_of_host(node: Node, found: Mapping[str, Any]) -> str:
    return str(found["address"] or found["own_address"])


# ---------------------------------------------------------------------- starting


def _new_record(asked: Bringup, probes: Mapping[str, Mapping[str, Any]]) -> Record:
    """Of a cluster of this machine alone, not yet started; its folder is this command's from here on."""
    folder = records.cluster_folder(asked.name)
    try:
        with records.writing():
            folder.mkdir(mode=0o700, parents=True)
    except FileExistsError as error:
        raise ClusterError(
            f"{folder} is there already; another lamarck cluster up is at work, or was cut short: "
            "wait for it, or remove that folder"
        ) from error
    address = asked.address or _address_of_head(probes, asked.hosts)
    return Record(
        name=asked.name,
        identity=random_numbers.token_hex(8),
        state=records.STARTING,
        address="",
        created=time.time(),
        nodes=(dataclasses.replace(HERE, address=address),),
    )


def _start(
    asked: Bringup, known: Record, new: Sequence[Node], probes: Mapping[str, Mapping[str, Any]], say: Say
) -> Record:
    """Start Ray on the `new` machines and wait until all have joined; otherwise none of them is left."""
    old = tuple(node for node in known.nodes if node not in new)
    current = dataclasses.replace(known, nodes=(*old, *new))
    try:
        authority, token = _secrets_of(known)
        records.write_record(current)
        for node in (n for n in new if n.is_head):
            say("starting Ray here")
            started = _start_node(asked, current, node, probes[node.label], authority, token)
            current = _with_started(current, {node.label: started})
        hosts = [n for n in new if not n.is_head]
        if hosts:
            say(f"starting Ray on {count(len(hosts), 'host')}")
        answers, errors = ask_all(
            hosts, lambda n: _start_node(asked, current, n, probes[n.label], authority, token)
        )
        if errors:
            raise first_of(errors)
        current = _with_started(current, answers)
        _await_all(current, new, asked.timeout_s)
    except BaseException:
        say("taking down what was started")
        end(known, new)
        if old:
            records.write_record(known)
        else:
            shutil.rmtree(records.cluster_folder(known.name), ignore_errors=True)
        raise
    current = dataclasses.replace(current, state=records.UP)
    records.write_record(current)
    return current


def _secrets_of(record: Record) -> tuple[Authority, str]:
    """The cluster's authority and token; made where it has none yet."""
    folder = records.cluster_folder(record.name)
    if record.state != records.UP:
        with records.writing():
            write_private(folder, new_secrets(record.name))
    return Authority.read(folder), (folder / TOKEN).read_text(encoding="utf-8")


def _start_node(
    asked: Bringup,
    record: Record,
    node: Node,
    found: Mapping[str, Any],
    authority: Authority,
    token: str,
) -> dict[str, Any]:
    names = [node.address, str(found["name"]), str(found["own_address"])]
    request = {
        "folder": folder_there(record.name, node),
        "identity": identity_of(record, node),
        "files": {**authority.issue(names), TOKEN: token},
        "address": node.address,
        "head_address": None if node.is_head else record.address,
        "port": asked.port if node.is_head else 0,
        "cores": 0 if node.is_head and not asked.here else asked.cores,
        "timeout_s": asked.timeout_s,
    }
    return ask(node, "start", request, timeout_s=asked.timeout_s + QUERY_TIMEOUT_S)


def _with_started(record: Record, answers: Mapping[str, Mapping[str, Any]]) -> Record:
    """The record, with what the machines said when they had started."""
    nodes = tuple(
        dataclasses.replace(n, pid=answers[n.label]["pid"], started=answers[n.label]["started"])
        if n.label in answers
        else n
        for n in record.nodes
    )
    address = next((a["head_address"] for a in answers.values()), record.address)
    return dataclasses.replace(record, nodes=nodes, address=address)


def _await_all(record: Record, new: Sequence[Node], timeout_s: float) -> None:
    """Wait until Ray knows the `new` machines as alive; of those that it had before, one may have died."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while True:
        alive = {row["address"] for row in machines_of(record) if row["alive"]}
        missing = [node for node in new if node.address not in alive]
        if not missing:
            return
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{', '.join(n.label for n in missing)} started Ray but did not join within {timeout_s:g} s; "
                f"let {record.address} be reached from there (all TCP ports between the machines), give "
                "--address where the head is known by another, or raise --timeout"
            )
        pause.wait(LOOK_S)
