"""The Ray cluster that a job runs on: started on this machine for the job, or joined.

Ray is imported here when it is needed, and what it raises leaves here as a LamarckError.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import os
import re
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lamarckian_cli import errors
from lamarckian_cli.errors import ClusterError, LamarckError, RunError
from lamarckian_cli.launch import signals
from lamarckian_cli.launch.clusters.record import Access, find_access
from lamarckian_cli.launch.guardian import descendants, start_of
from lamarckian_cli.launch.in_thread import InThread, Silent, within
from lamarckian_cli.launch.placement import Machine, Placement
from lamarckian_cli.launch.ray_probe import SET_TLS, parse_address, probe
from lamarckian_cli.launch.settings import Cluster

LOOK_S = 0.2  # how often a wait looks whether it was asked to stop
ANSWER_S = 5.0  # within which a process that is well answers, once the job is to stop
RESUME_HINT = "; where there is a checkpoint, go on with resume=FOLDER"
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


class Interrupted(Exception):
    """A signal asked to stop while something was waited for."""


class Lost(RunError):
    """The learner's process is gone, or its machine."""


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


def ray() -> Any:
    """The package; it takes a second to import."""
    import ray

    return ray


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
    return given, where


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


class Calls:
    """Control calls that wait, up to a deadline, and look meanwhile whether the user wants to stop."""

    def __init__(
        self, stopped: threading.Event, timeout_s: float, heard: Callable[[], None] | None = None
    ) -> None:
        """`heard` is called at each sign of life of whoever is waited for after a stop."""
        self._stopped, self._timeout_s, self._heard = stopped, timeout_s, heard
        self.running = False  # from then on a stop does not cut a call short
        self.ping: Callable[[], Any] | None = None  # a call that gives a learner's `update_under_way`
        self.take_s = 30.0  # what an answer may take beyond the update under way, once the job is to stop
        self.silent = False  # somebody did not answer in time

    def result(self, reference: Any, doing: str) -> Any:
        """What a call gives. Raises Interrupted, and LamarckErrors that say what was being done.

        After a stop, whoever still answers is waited for, and Silent raised of who does not.
        """
        given_up = threading.Event()
        waiting = InThread(lambda: _value_once_there(reference, doing, given_up))
        try:
            self._wait(waiting, doing)
        except BaseException as error:
            self.silent |= isinstance(error, Silent)
            given_up.set()
            waiting.ended(2 * LOOK_S)  # not to shut Ray down under it
            raise
        return waiting.result()

    def _wait(self, waiting: InThread, doing: str) -> None:
        pulse: _Pulse | None = None
        while not waiting.ended(LOOK_S):
            if self._stopped.is_set():
                if not self.running:
                    raise Interrupted
                if self.ping is not None:
                    pulse = pulse or _Pulse(self.ping, self.take_s)
                    if pulse.check(doing) and self._heard is not None:
                        self._heard()
            if time.monotonic() - waiting.began > self._timeout_s:
                raise Silent(
                    f"{doing} took more than {self._timeout_s:g} s; is the machine busy, or its cores taken "
                    "by another job? Raise cluster.start_timeout_s"
                )


class _Pulse:
    """Tells a process that needs its time from one that is stopped, and from a Ray that carries nothing."""

    def __init__(self, ping: Callable[[], Any], take_s: float) -> None:
        self._ping, self._take_s = ping, take_s
        self._busy_at = time.monotonic()
        self._first: int | None = None  # update that was under way
        self._asked = self._ask()

    def check(self, doing: str) -> bool:
        """Whether there was an answer since the last time; Silent where that takes too long."""
        now = time.monotonic()
        if not self._asked.ended(0):
            if now - self._asked.began > ANSWER_S:
                raise Silent(f"the learner does not answer ({doing})")
            return False
        update = self._asked.result()
        self._first = update if self._first is None else self._first
        if update and update == self._first:  # after it, the answer is due
            self._busy_at = now
        elif now - self._busy_at > self._take_s:
            raise Silent(f"Ray brings no answer of the learner's within {self._take_s:g} s ({doing})")
        self._asked = self._ask()
        return True

    def _ask(self) -> InThread:
        def ask() -> int:
            package = ray()
            try:
                return int(package.get(self._ping(), timeout=2 * ANSWER_S))
            except package.exceptions.RayError:
                return 0  # which the call that is waited for tells better

        return InThread(ask)


def _value_once_there(reference: Any, doing: str, given_up: threading.Event) -> Any:
    while not ray().wait([reference], timeout=LOOK_S)[0]:
        if given_up.is_set():
            return None
    return value(reference, doing)


def value(reference: Any, doing: str) -> Any:
    """What a call that has ended gave, or the LamarckError that it raised."""
    try:
        return ray().get(reference)
    except ray().exceptions.RayTaskError as error:
        raise cause(error, doing) from error
    except ray().exceptions.RayError as error:
        raise Lost(
            f"the learner's process, or its machine, was lost while {doing} ({why_lost(error)}){RESUME_HINT}"
        ) from error


def cause(error: Any, doing: str) -> LamarckError:
    """What a host raised, as the user should read it."""
    inner = getattr(error, "cause", None) or error
    for cls in type(inner).__mro__:
        if cls.__module__ == errors.__name__ and cls is not LamarckError:
            made: LamarckError = getattr(errors, cls.__name__)(str(getattr(inner, "cause", inner)))
            return made
    if isinstance(inner, LamarckError):
        return LamarckError(str(inner))
    return RunError(f"{doing} failed: {type(inner).__name__}: {first_line(inner)}")


def why_lost(error: Exception) -> str:
    """Why a process is gone, of what Ray tells on many lines, the first of which says nothing."""
    told = " ".join(str(error).split())
    known = re.search(
        r"The actor (is dead|died) because .*?(?= Some common causes| The actor never ran|$)", told
    )
    return (known.group() if known else first_line(error)).rstrip(".")


def first_line(error: object) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


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
