"""The Ray cluster that a job runs on: started on this machine for the job, or joined.

Ray is imported here when it is needed, and what it raises leaves here as a LamarckError.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch import signals
from lamarckian_cli.launch.clusters.record import Access, find_access
from lamarckian_cli.launch.guardian import descendants, start_of
from lamarckian_cli.launch.in_thread import Silent, within
from lamarckian_cli.launch.placement import Machine, Placement
from lamarckian_cli.launch.ray_calls import first_line, ray
from lamarckian_cli.launch.ray_probe import SET_TLS, parse_address, probe
from lamarckian_cli.launch.settings import Cluster

LOOPBACK = "127.0.0.1"
LOOPBACK_ONLY = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Has Ray listen on the loopback address alone, on Linux as well; read when it is imported."""

TOKEN = secrets.token_hex(32)
"""Of the clusters that this process starts, one after another: Ray remembers the first."""

IMPATIENT = {
    "RAY_gcs_server_port_wait_time_s": "3",  # tries
    "RAY_py_gcs_connect_timeout_s": "5",
    "RAY_gcs_rpc_server_connect_timeout_s": "5",
}
"""A cluster that does not answer is given up after seconds; Ray's own patience is 14 minutes."""


class Process:
    """A host in a process of its own. Torch takes seconds to import, and is imported there alone."""

    def __init__(self, host: str, *arguments: Any) -> None:
        # What a constructor raises would look like a process that died; `call` says it instead.
        self._error: Exception | None = None
        try:
            module, _, name = host.partition(":")
            hosts = importlib.import_module(f"lamarckian_cli.launch.{module}")
            self._host = getattr(hosts, name)(*arguments)
        except Exception as error:
            self._error = error

    def call(self, method: str, *arguments: Any) -> Any:
        if self._error is not None:
            raise self._error
        return getattr(self._host, method)(*arguments)


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def start(cores: int) -> None:
    """A cluster of this machine alone, that ends with this process; nobody else can reach it."""
    if "ray" not in sys.modules or os.environ.get("RAY_AUTH_TOKEN") == TOKEN:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, **LOOPBACK_ONLY}
    # Else whoever imported Ray has decided; it read its environment then.
    _init(
        lambda why: f"Ray did not start: {why}; `lamarck doctor` looks at it",
        address="local",
        num_cpus=cores,
        include_dashboard=False,
    )


def start_here(cluster: Cluster) -> Placement:
    """Start a cluster of this machine alone, for all actors; a ClusterError where it is too small."""
    cores, actors = available_cores(), cluster.actors
    assert actors is not None
    if actors > cores:
        raise ClusterError(
            f"cluster.actors is {actors}, but this machine gives {cores} cores; "
            f"take cluster.actors={cores}, or fewer"
        )
    start(cores)
    here = this_machine(cores)
    return Placement(learner=here, learner_device="cpu", actors=((here, actors),), wanted=actors)


def join(cluster: Cluster) -> None:
    """Join the cluster that is there: at `cluster.address`, or the one that `lamarck cluster up` made."""
    parse_address(cluster.address)
    access = find_access(cluster.address)
    address, where = _where(cluster.address, access)
    if access is not None:
        os.environ.update(access.environment)
    for name in LOOPBACK_ONLY:
        os.environ.pop(name, None)
    for name, value in IMPATIENT.items():
        os.environ.setdefault(name, value)
    probe(address, where)
    runtime = {} if cluster.working_dir is None else {"runtime_env": {"working_dir": cluster.working_dir}}
    _init(
        lambda why: (
            f"{where}; no Ray cluster could be joined there: {why}; bring one up with "
            "`lamarck cluster up --here`, give its address with cluster.address=HOST:PORT, or train on this "
            "machine alone with cluster=local"
        ),
        address=address,
        **runtime,
    )


def _where(given: str, access: Access | None) -> tuple[str, str]:
    """The address to join, and what a message calls it: as the user gave it, and what that stands for."""
    where = f"cluster.address is {given!r}"
    if access is not None and access.address != given:
        return access.address, f"{where}, which is {access.address}"
    variable = os.environ.get("RAY_ADDRESS", "")
    if access is None and given == "auto" and variable:  # which is what Ray makes of it
        parse_address(variable, "RAY_ADDRESS")
        return variable, f"{where}, and RAY_ADDRESS is {variable!r}"
    noted = _noted_address() if access is None and given == "auto" else ""
    if noted:
        return noted, f"{where}, and the Ray started last on this machine was at {noted}"
    return given, where


def _noted_address() -> str:
    """Where Ray would look for `auto`: it writes down what it started, and leaves it there."""
    from ray._private.utils import read_ray_address

    try:
        return str(read_ray_address() or "")
    except OSError:
        return ""


def machines() -> list[Machine]:
    """The machines that are alive, this one first."""
    here = ray().get_runtime_context().get_node_id()
    found = [
        Machine(
            node_id=node["NodeID"],
            address=node["NodeManagerAddress"],
            name=node["NodeManagerHostname"],
            cores=int(node["Resources"].get("CPU", 0)),
            gpus=int(node["Resources"].get("GPU", 0)),
            here=node["NodeID"] == here,
        )
        for node in ray().nodes()
        if node["Alive"]
    ]
    return sorted(found, key=lambda machine: (not machine.here, machine.name, machine.node_id))


def shut_down(timeout_s: float) -> None:
    """Leave the cluster, and end it where it was started here; Silent where Ray does not come to an end.

    After that this process has to end by os._exit, as signals.hanging tells.
    """
    try:
        within(timeout_s, ray().shutdown, "ending")
    except Silent:
        signals.hanging.set()
        atexit.unregister(ray().shutdown)
        raise


class Head:
    """The process of Ray's head that was started with the cluster on this machine."""

    NAME = "gcs_server"

    def __init__(self) -> None:
        self._found = {p: at for p, at in descendants(os.getpid()).items() if self._name(p) == self.NAME}

    def check(self) -> None:
        """Raise a ClusterError once it has ended: Ray would wait for it, and then end this process."""
        for pid, started in self._found.items():
            if start_of(pid) != started:
                raise ClusterError(f"Ray's head, process {pid} ({self.NAME}), has ended")

    @staticmethod
    def _name(pid: int) -> str:
        try:
            return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
        except OSError:
            return ""


def this_machine(cores: int) -> Machine:
    """The one machine of a cluster that was started for the job."""
    node_id = ray().get_runtime_context().get_node_id()
    return Machine(node_id=node_id, address=LOOPBACK, name=socket.gethostname(), cores=cores, here=True)


def process_on(machine: Machine, host: str, *arguments: Any, **options: Any) -> Any:
    """A handle on a host in a process of its own on that machine, and on no other."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    where = NodeAffinitySchedulingStrategy(node_id=machine.node_id, soft=False)
    made = ray().remote(Process).options(scheduling_strategy=where, **options)
    return made.remote(host, *arguments)


def _init(trouble: Callable[[str], str], **options: Any) -> None:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # What Ray says of a worker that died stands in its own logs; it would print it on standard output.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        package = ray()
        # Ray makes a token for the cluster by itself, and says so in a warning.
        logging.getLogger("ray").setLevel(logging.ERROR)
        with _own_handlers(), _captured_stderr() as said:
            try:
                package.init(
                    logging_level=logging.ERROR, log_to_driver=False, configure_logging=False, **options
                )
            except (RuntimeError, ConnectionError, TimeoutError, OSError, ValueError) as error:
                raise ClusterError(trouble(_why(error, said()))) from error
    _keep_quiet()


def _keep_quiet() -> None:
    """Ray prints what it hears of nodes and workers on standard output, where our documents go."""
    with contextlib.suppress(ImportError, AttributeError):
        from ray._private.ray_logging import global_worker_stdstream_dispatcher

        global_worker_stdstream_dispatcher.remove_handler("ray_print_logs")


def _why(error: Exception, said: str) -> str:
    """Why Ray was not joined; what it is about, Ray's own processes say on standard error alone."""
    told = f"{said} {error} {error.__cause__}"
    if "oken authentication" in told or "InvalidAuthToken" in told or "RAY_AUTH_TOKEN_PATH" in told:
        return (
            "it wants a token, and has been given none or another one: set RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN_PATH=FILE with the cluster's token (its head usually has it in ~/.ray/auth_token)"
        )
    if "Version mismatch" in told:
        return "its Ray or Python is of another version: " + " ".join(str(error).split())
    if "Could not find any running Ray" in told:  # and goes on with what Ray's own commands take
        return "no cluster runs on this machine"
    if "No node info found" in told:
        return "no Ray runs on this machine, and a job is started from one of the cluster's machines"
    if any(word in told for word in ("SSL", "TLS", "certificate")):
        return (
            f"it speaks TLS with other certificates, or one side does not: set RAY_USE_TLS=1, and {SET_TLS} "
            "to the cluster's"
        )
    return first_line(error)


@contextlib.contextmanager
def _captured_stderr() -> Iterator[Callable[[], str]]:
    """Keep what this process's libraries write to standard error meanwhile; they pass Python's own by."""
    sys.stderr.flush()
    try:
        ours = os.dup(2)
    except OSError:  # it is closed
        yield lambda: ""
        return
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield lambda: os.pread(kept.fileno(), 1 << 20, 0).decode(errors="replace")
        finally:
            os.dup2(ours, 2)
            os.close(ours)


@contextlib.contextmanager
def _own_handlers() -> Iterator[None]:
    """Take back the signals that Ray makes its own when it starts."""
    ours = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in ours.items():
                signal.signal(number, handler)
