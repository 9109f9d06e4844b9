"""`lamarck cluster status` and `down`, from what `up` has recorded."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch.clusters import record as records
from lamarckian_cli.launch.clusters.record import Node, Record
from lamarckian_cli.launch.clusters.secrets import ray_environment
from lamarckian_cli.launch.clusters.ssh import QUERY_TIMEOUT_S, ask, ask_all

STOP_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What `down` has done."""

    machines: tuple[str, ...]  # on which Ray was ended, by label
    warnings: tuple[str, ...]  # a sentence on each that is only forgotten, for it could not be asked


def down(name: str, hosts: Sequence[str], say: Callable[[str], None], *, force: bool = False) -> Ended:
    """End the cluster of this name, or its machines `hosts` alone.

    Jobs go on without machines, but not without a cluster: while one runs there, that is a
    ClusterError unless `force`. A host that cannot be asked (it is switched off, say) is forgotten
    like the others. This machine always can be: where Ray does not end here, that is a ClusterError,
    and the record stays.
    """
    records.check_name(name)
    record = records.read_record(name)
    strangers = sorted(set(hosts) - {node.host for node in record.nodes if node.host})
    if strangers:
        raise ClusterError(
            f"--hosts has {', '.join(strangers)}, which cluster {name} has not; it has: "
            f"{', '.join(node.host for node in record.nodes if node.host) or 'no host but this machine'}"
        )
    if not hosts and not force:
        _check_idle(record)
    ended = [node for node in record.nodes if not hosts or node.host in hosts]
    say(f"ending Ray on {count(len(ended), 'machine')}")
    if not hosts:
        record = dataclasses.replace(record, state=records.ENDING)
        records.write_record(record)
    known = _known_to_ray(record) if hosts else []
    errors = end(record, ended)
    if hosts:
        _take_out(record, ended, errors, known)
    else:
        _clear(record, errors)
    return Ended(
        machines=tuple(node.label for node in ended if node.label not in errors),
        warnings=tuple(_forgotten(record, error, alone=bool(hosts)) for error in errors.values()),
    )


def status(name: str | None) -> list[dict[str, Any]]:
    """Each cluster, or the one of this name: `name`, `address`, `state`, and `machines` with a row each.

    The state is starting, up, ending, or lost where the head has ended.
    """
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


def _check_idle(record: Record) -> None:
    try:
        jobs = _asked(record)["jobs"]
    except ClusterError:  # the head is gone, and so is whatever ran there
        return
    if jobs:
        listed = ", ".join(f"process {job['pid']} on {job['address']}" for job in jobs)
        run = "1 job runs" if len(jobs) == 1 else f"{len(jobs)} jobs run"
        raise ClusterError(
            f"{run} on cluster {record.name} ({listed}); "
            "end it there with Ctrl-C, which saves what it has learned, or take --force"
        )


def _known_to_ray(record: Record) -> list[dict[str, Any]]:
    try:
        return machines_of(record)
    except ClusterError:  # the head is gone, and nobody takes any machine for alive
        return []


def _take_out(
    record: Record,
    ended: Sequence[Node],
    errors: Mapping[str, ClusterError],
    known: Sequence[Mapping[str, Any]],
) -> None:
    """Leave `ended` out of the record, and what Ray still takes for alive although it was ended."""
    gone = {node.address for node in ended if node.label not in errors}
    ids = [row["id"] for row in known if row["address"] in gone]
    for node in ended:  # its secrets are here too where home folders are shared
        shutil.rmtree(records.node_folder(record.name, node.label), ignore_errors=True)
    records.write_record(
        dataclasses.replace(
            record,
            nodes=tuple(node for node in record.nodes if node not in ended),
            taken_out=(*record.taken_out, *ids),
        )
    )


def _clear(record: Record, errors: Mapping[str, ClusterError]) -> None:
    """Remove all that is known of the cluster, unless its head runs on: then it alone stays."""
    here = [node for node in record.nodes if node.is_head and node.label in errors]
    if not here:
        shutil.rmtree(records.cluster_folder(record.name), ignore_errors=True)
        return
    records.write_record(dataclasses.replace(record, nodes=tuple(here)))
    raise ClusterError(
        f"{errors[here[0].label]}; the hosts are done with: for the head, run "
        f"lamarck cluster down --name {record.name} again"
    )


def _forgotten(record: Record, error: ClusterError, *, alone: bool) -> str:
    """What to say of a machine that could not be asked; the error begins with its name."""
    if alone:
        return (
            f"{error}; it is taken out of cluster {record.name} all the same. Should it run, Ray runs on "
            "there, and ends by itself once the cluster's head does"
        )
    return (
        f"{error}; the cluster is ended all the same. Should it run, Ray ends there by itself within a "
        "minute or so, for its head is gone"
    )


def _status(record: Record) -> dict[str, Any]:
    known: list[dict[str, Any]] = []
    error = None
    if record.state != records.STARTING or record.head.pid:  # else there is nobody to ask yet
        try:
            known = machines_of(record)
        except ClusterError as failed:
            error = str(failed)
    alive = {row["address"]: row for row in known if row["alive"]}
    gone = {"id": None, "name": None, "cores": 0, "gpus": 0, "alive": False, "head": False}
    rows = [
        {"host": node.label, "address": node.address, **alive.pop(node.address, gone)}
        for node in record.nodes
    ]
    rows += [{"host": None, **row} for row in alive.values()]  # joined without us
    return {
        "name": record.name,
        "address": record.address,
        "state": records.LOST if record.state == records.UP and not _runs(record) else record.state,
        "error": error,
        "machines": rows,
    }


def machines_of(record: Record) -> list[dict[str, Any]]:
    """What Ray knows of the cluster's machines, but for those that `down` has ended."""
    rows: list[dict[str, Any]] = _asked(record)["machines"]
    return [row for row in rows if row["id"] not in record.taken_out]


def _runs(record: Record) -> bool:
    return records.is_running(record.head.pid, record.head.started)


def _asked(record: Record) -> dict[str, Any]:
    """What Ray's head answers of machines and jobs, in a process of its own, with the cluster's secrets."""
    if record.state == records.ENDING or not _runs(record):
        raise ClusterError("the process that its head hung under has ended")  # Ray would wait for it
    environment = ray_environment(records.node_folder(record.name, record.head.label))
    return ask(
        record.head,
        "machines",
        {"address": record.address},
        timeout_s=QUERY_TIMEOUT_S,
        environment=environment,
    )


def folder_there(name: str, node: Node) -> str:
    """A machine's folder, below whatever its home is."""
    below = records.node_folder(name, node.label).relative_to(records.clusters_folder().parent.parent)
    return f"~/{below}"


def identity_of(record: Record, node: Node) -> str:
    return f"{record.identity}-{node.label}"


def count(number: int, what: str) -> str:
    """A number of things, in words: `1 machine`, `2 machines`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
