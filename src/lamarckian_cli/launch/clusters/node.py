"""One machine's part in bringing a cluster up: asked over SSH, answered in JSON.

    python -P -m lamarckian_cli.launch.clusters.node probe|start|machines|stop  < request.json

The answer is the last line, behind MARK: what a login shell prints is passed over. `{"error":
...}` is an answer too. All processes that `start` brings up carry the machine's identity in their
environment, and `stop` ends those and no others: `ray stop` would end every cluster of the user.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch import guardian
from lamarckian_cli.launch.clusters.secrets import ray_environment, write_private

MARK = "lamarck-node "
IDENTITY = "LAMARCK_CLUSTER_NODE"  # environment variable of every process that `start` brings up
STATE, LOG = "node.json", "ray.log"
SHARED_MEMORY = Path("/dev/shm")
LOOK_S = 0.1
QUERY_S = 10.0
END_S = 10.0  # that Ray's processes are given to end by themselves
NOT_PASSED_ON = ("RAY_ADDRESS", "RAY_AUTH_TOKEN")  # another cluster's, where the user has set them


def main(arguments: list[str]) -> None:
    """Do what is asked on standard input, and answer."""
    actions: dict[str, Callable[..., dict[str, Any]]] = {
        "probe": probe,
        "start": start,
        "machines": machines,
        "stop": stop,
    }
    try:
        answer = actions[arguments[0]](**json.load(sys.stdin))
    except ClusterError as error:
        answer = {"error": str(error)}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(f"\n{MARK}{json.dumps(answer)}", flush=True)


def probe() -> dict[str, Any]:
    """What decides whether this machine can be part of a cluster, and how others reach it."""
    shared = shutil.disk_usage(SHARED_MEMORY) if SHARED_MEMORY.is_dir() else None
    connection = os.environ.get("SSH_CONNECTION", "").split()  # its address, port, ours, port
    return {
        "name": socket.gethostname(),
        "versions": {
            "Python": ".".join(platform.python_version_tuple()[:2]),
            "Ray": metadata.version("ray"),
            "lamarckian-cli": metadata.version("lamarckian-cli"),
        },
        "shared_memory_bytes": shared.free if shared is not None else None,
        "caller_address": connection[0] if len(connection) == 4 else None,
        "address": connection[2] if len(connection) == 4 else None,
        "own_address": own_address(),
    }


def start(
    *,
    folder: str,
    identity: str,
    files: Mapping[str, str],
    address: str,
    head_address: str | None,
    port: int,
    cores: int | None,
    timeout_s: float,
) -> dict[str, Any]:
    """Start Ray here with these secrets; a head where there is no `head_address`.

    Returns the `pid` under which it runs, when that `started`, and the `head_address`. What
    was started is ended again where it does not come up within `timeout_s`.
    """
    place = Path(os.path.expanduser(folder))
    try:
        place.parents[1].mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(place, files)
    except OSError as error:
        raise ClusterError(
            f"{error.filename or place} cannot be written there ({error.strerror}); there, HOME must be a "
            "folder that you can write to"
        ) from error
    # Short, for the names of sockets below it have little room.
    temporary = tempfile.mkdtemp(prefix="lamarck-", dir="/tmp" if Path("/tmp").is_dir() else None)
    command = _command(temporary, address, head_address, port, cores)
    log = place / LOG
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(place, identity),
            cwd="/",
            start_new_session=True,
        )
    state = {"identity": identity, "temporary": temporary, "pid": process.pid}
    write_private(place, {STATE: json.dumps(state)})
    try:
        found = _await_start(process, Path(temporary), log, timeout_s)
        started = guardian.ticks_of(process.pid)
    except (ClusterError, psutil.NoSuchProcess, KeyboardInterrupt):
        stop(folder=folder, identity=identity)
        raise
    return {"pid": process.pid, "started": started, "head_address": head_address or found}


def machines(*, address: str) -> dict[str, Any]:
    """What Ray knows of its machines, and the jobs that run there.

    The environment must point to the secrets of the cluster.
    """
    # What `ray health-check` asks with: it joins nothing and starts nothing.
    from ray._raylet import GcsClient  # type: ignore[attr-defined]
    from ray.exceptions import AuthenticationError, RpcError

    try:
        client = GcsClient(address=address)
        known = client.get_all_node_info(timeout=QUERY_S)
        jobs = client.get_all_job_info(timeout=QUERY_S)
    except AuthenticationError as error:
        raise ClusterError(
            f"the Ray at {address} refuses the token in {os.environ.get('RAY_AUTH_TOKEN_PATH')}; "
            "another cluster runs there: lamarck cluster down, then up again"
        ) from error
    except RpcError as error:
        raise ClusterError(f"the Ray at {address} does not answer: {error}") from error
    rows = [
        {
            "name": node.node_manager_hostname,
            "address": node.node_manager_address,
            "cores": int(node.resources_total.get("CPU", 0)),
            "gpus": int(node.resources_total.get("GPU", 0)),
            "alive": node.state == 0,
            "head": bool(node.is_head_node),
            "id": node_id.hex(),
        }
        for node_id, node in known.items()
    ]
    running = [
        {"pid": job.driver_pid, "address": job.driver_address.ip_address}
        for job in jobs.values()
        if not job.is_dead
    ]
    return {"machines": rows, "jobs": running}


def stop(*, folder: str, identity: str) -> dict[str, Any]:
    """End every process of this identity, and remove the machine's secrets; twice is fine.

    The guardians of a job that runs are waited for: once its processes here are gone, they remove what
    these had in shared memory, and end.
    """
    place = Path(os.path.expanduser(folder))
    try:
        state = json.loads((place / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        state = {}
    ours, _ = _marked(identity)
    first = [process for process in ours if process.pid == state.get("pid")]
    for process in first or ours:  # `ray start --block` ends its own in their order
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, slow = psutil.wait_procs(ours, timeout=END_S)  # Ray's own, while a job keeps it busy
    new, guardians = _marked(identity)
    _kill({*slow, *new})
    _, late = psutil.wait_procs(guardians, timeout=guardian.LONGEST_S)
    _kill(late)
    temporary = state.get("temporary")
    if temporary and state.get("identity") == identity:
        shutil.rmtree(temporary, ignore_errors=True)
    shutil.rmtree(place, ignore_errors=True)
    for above in place.parents[:2]:  # nodes/, and the cluster's folder
        with contextlib.suppress(OSError):
            above.rmdir()
    return {"ended": len(ours)}


def own_address() -> str:
    """The address that this machine has towards others; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probing:
        try:
            probing.connect(("198.51.100.1", 9))  # an address of documentation: routed like any other
            return str(probing.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _command(
    temporary: str, address: str, head_address: str | None, port: int, cores: int | None
) -> list[str]:
    command = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--block"]
    command += ["--temp-dir", temporary, "--node-ip-address", address, "--disable-usage-stats"]
    if head_address is None:
        command += ["--head", "--port", str(port), "--include-dashboard", "false"]
    else:
        command += ["--address", head_address]
    return command if cores is None else [*command, "--num-cpus", str(cores)]


def _environment(place: Path, identity: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
    own = {IDENTITY: identity, "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    return {**kept, **ray_environment(place), **own}


def _await_start(process: subprocess.Popen[bytes], temporary: Path, log: Path, timeout_s: float) -> str:
    """The address of the head, once Ray runs here."""
    written = temporary / "ray_current_cluster"  # the last thing that `ray start` does
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not written.exists():
        if process.poll() is not None:
            raise ClusterError(f"Ray did not start: {_reason(log)}")
        if time.monotonic() > deadline:
            raise ClusterError(
                f"Ray did not start within {timeout_s:g} s: {_reason(log)}; raise --timeout where the "
                "machine is only slow"
            )
        pause.wait(LOOK_S)
    return written.read_text(encoding="utf-8").strip()


def _reason(log: Path) -> str:
    """The line of Ray's output that says most."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(encoding="utf-8", errors="replace"))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"error|fail|refus|mismatch", line, re.IGNORECASE)]
    return (telling or lines or ["it said nothing"])[-1]


def _kill(processes: Collection[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=END_S)


def _marked(identity: str) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """Every process of this user that carries the identity: those to be ended, and jobs' guardians.

    Some of Ray's write their title over their environment; they are found as children of others.
    """
    ours: set[psutil.Process] = set()
    guardians: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            environment = process.environ()
            if environment.get(IDENTITY) != identity or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if guardian.MARK in environment:
                guardians.append(process)
            else:
                ours |= {process, *process.children(recursive=True)}
    return list(ours.difference(guardians)), guardians


if __name__ == "__main__":
    main(sys.argv[1:])
