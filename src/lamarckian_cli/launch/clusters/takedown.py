"""`lamarck cluster status` and `down`, from what `up` has recorded."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from typing import Any

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.clusters import record as records
from lamarckian_cli.launch.clusters.record import Node, Record
from lamarckian_cli.launch.clusters.secrets import ray_environment
from lamarckian_cli.launch.clusters.ssh import QUERY_TIMEOUT_S, ask, ask_all, first_of

STOP_TIMEOUT_S = 60.0


def down(name: str, hosts: Sequence[str], say: Callable[[str], None]) -> list[str]:
    """End the cluster of this name, or its machines `hosts` alone; the machines that were ended.

    Machines that cannot be reached stay in the record, and a ClusterError names them.
    """
    records.check_name(name)
    record = records.read_record(name)
    strangers = sorted(set(hosts) - {node.host for node in record.nodes if node.host})
    if strangers:
        raise ClusterError(
            f"--hosts has {', '.join(strangers)}, which cluster {name} has not; it has: "
            f"{', '.join(node.host for node in record.nodes if node.host) or 'no host but this machine'}"
        )
    ended = [node for node in record.nodes if not hosts or node.host in hosts]
    say(f"ending Ray on {count(len(ended), 'machine')}")
    if not hosts:
        record = dataclasses.replace(record, state=records.ENDING)
        records.write_record(record)
    errors = end(record, ended)
    left = tuple(n for n in record.nodes if n not in ended or n.label in errors)
    if left:
        records.write_record(dataclasses.replace(record, nodes=left))
    else:
        shutil.rmtree(records.cluster_folder(name), ignore_errors=True)
    if errors:
        raise ClusterError(
            f"{first_of(errors)}; without its head, Ray ends there by itself within a minute or so. Run "
            f"lamarck cluster down --name {name} again when it can be reached, or remove "
            f"{records.cluster_folder(name)}"
        )
    return [node.label for node in ended]


def status(name: str | None) -> list[dict[str, Any]]:
    """Each cluster, or the one of this name: `name`, `address`, `state`, and `machines` with a row each."""
    if name is None:
        return [_status(record) for record in records.read_records()]
    records.check_name(name)
    return [_status(records.read_record(name))]


def end(record: Record, nodes: Sequence[Node]) -> dict[str, ClusterError]:
    """End what runs on these machines, the head last; the errors by label."""

    def stop(node: Node) -> dict[str, Any]:
        request = {"folder": folder_there(record.name, node), "identity": identity_of(record, node)}
        return ask(node, "stop", request, timeout_s=STOP_TIMEOUT_S)

    _, errors = ask_all([n for n in nodes if not n.is_head], stop)
    _, of_head = ask_all([n for n in nodes if n.is_head], stop)
    return {**errors, **of_head}


def _status(record: Record) -> dict[str, Any]:
    try:
        known, error = machines_of(record), None
    except ClusterError as failed:
        known, error = [], str(failed)
    alive = {row["address"]: row for row in known if row["alive"]}
    gone = {"name": None, "cores": 0, "gpus": 0, "alive": False, "head": False}
    rows = [
        {"host": node.label, "address": node.address, **alive.pop(node.address, gone)}
        for node in record.nodes
    ]
    rows += [{"host": None, **row} for row in alive.values()]  # joined without us
    return {
        "name": record.name,
        "address": record.address,
        "state": record.state,
        "error": error,
        "machines": rows,
    }


def machines_of(record: Record) -> list[dict[str, Any]]:
    """What Ray knows of the cluster's machines; asked in a process of its own, with its secrets."""
    if record.state == records.ENDING or not records.is_running(record.head.pid, record.head.started):
        raise ClusterError("the process that its head hung under has ended")  # Ray would wait for it
    environment = ray_environment(records.node_folder(record.name, record.head.label))
    answer = ask(
        record.head,
        "machines",
        {"address": record.address},
        timeout_s=QUERY_TIMEOUT_S,
        environment=environment,
    )
    rows: list[dict[str, Any]] = answer["machines"]
    return rows


def folder_there(name: str, node: Node) -> str:
    """A machine's folder, below whatever its home is."""
    below = records.node_folder(name, node.label).relative_to(records.clusters_folder().parent.parent)
    return f"~/{below}"


def identity_of(record: Record, node: Node) -> str:
    return f"{record.identity}-{node.label}"


def count(number: int, what: str) -> str:
    """A number of things, in words: `1 machine`, `2 machines`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
