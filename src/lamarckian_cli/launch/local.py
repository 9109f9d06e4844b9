"""`cluster=local`: a Ray cluster on this machine, of one learner and several actors.

The cluster is started for the job and ended with it. An actor whose process dies is started
again and joins where it left; training goes on meanwhile.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

from lamarckian_cli.errors import ClusterError, LamarckError, RunError
from lamarckian_cli.launch.guardian import Guardian
from lamarckian_cli.launch.job import Job

STOP_TIMEOUT_S = 10.0
LOOK_S = 0.2  # how often a wait looks whether it was asked to stop


class Interrupted(Exception):
    """A signal asked to stop while something was waited for."""


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


class LocalTraining:
    """Starts the job's processes, watches over them, and ends them."""

    def __init__(self, job: Job, stopped: threading.Event) -> None:
        self.job = job
        self.restarts = 0
        self._stopped = stopped
        self._sockets = ""
        self._guardian: Guardian | None = None
        self._learner: Any = None
        self._actors: list[Any] = []
        self._running: dict[Any, int] = {}  # the reference of an actor's run -> its number

    def start(self, state: dict[str, Any] | None) -> None:
        """Bring everything up, from a checkpoint's `state` where there is one.

        Raises Interrupted once `stopped` is set meanwhile, and LamarckErrors.
        """
        cores = available_cores()
        actors = self.job.cluster.actors
        if actors > cores:
            raise ClusterError(
                f"cluster.actors is {actors}, but this machine gives {cores} cores; "
                f"take cluster.actors={cores}, or fewer"
            )
        self._sockets = tempfile.mkdtemp(prefix="lamarck-")  # mode 0700
        self._guardian = Guardian(self._sockets)
        try:
            ray = _start_ray(cores)
        except SystemExit as stop:  # while it starts, SIGTERM is Ray's
            self._stopped.set()
            raise Interrupted from stop
        threads = max(1, cores - actors)
        self._learner = (
            ray.remote(Process)
            .options(num_cpus=0, max_concurrency=4)
            .remote("learner_host:LearnerHost", self.job, self._sockets, threads, "cpu")
        )
        self._actor_class = ray.remote(Process).options(num_cpus=1, max_concurrency=3)
        self._actors = [self._new_actor(number) for number in range(actors)]
        if state is not None:
            self._call(self._learner.call.remote("restore", state), "restoring the checkpoint")
        self._call(self._learner.call.remote("start"), "starting the learner")
        for number, actor in enumerate(self._actors):
            self._running[actor.call.remote("run")] = number

    def progress(self) -> dict[str, Any]:
        """The learner's progress; also looks after the actors."""
        self._look_after_actors()
        progress: dict[str, Any] = self._call(self._learner.call.remote("progress"), "learning")
        progress["actor_restarts"] = self.restarts
        return progress

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = self._call(self._learner.call.remote("state"), "reading the learner's state")
        return state

    def pids(self) -> dict[str, int]:
        """Process ids of learner and actors, by name."""
        ray = _ray()
        ids = {"learner": self._call(self._learner.call.remote("pid"), "asking for process ids")}
        for number, actor in enumerate(self._actors):
            with contextlib.suppress(ray.exceptions.RayError):
                ids[f"actor {number}"] = ray.get(actor.call.remote("pid"), timeout=STOP_TIMEOUT_S)
        return ids

    def stop(self) -> None:
        """End every process that `start` brought up; twice is fine."""
        ray = _ray()
        if ray.is_initialized():
            with contextlib.suppress(ray.exceptions.RayError):
                stops = [actor.call.remote("stop") for actor in self._actors]
                if self._learner is not None:
                    stops.append(self._learner.call.remote("stop"))
                ray.wait(stops, num_returns=len(stops), timeout=STOP_TIMEOUT_S) if stops else None
                runs = list(self._running)
                ray.wait(runs, num_returns=len(runs), timeout=STOP_TIMEOUT_S) if runs else None
            ray.shutdown()
        self._learner, self._actors, self._running = None, [], {}
        if self._guardian is not None:
            self._guardian.release()
            self._guardian = None

    def _new_actor(self, number: int) -> Any:
        return self._actor_class.remote("actor_host:ActorHost", self.job, number, self._sockets)

    def _look_after_actors(self) -> None:
        ray = _ray()
        ended, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        for reference in ended:
            number = self._running.pop(reference)
            try:
                ray.get(reference)
            except ray.exceptions.RayActorError as error:
                self.restarts += 1
                if self.restarts > self.job.cluster.restart_limit:
                    raise ClusterError(
                        f"actors died {self.restarts} times, more than cluster.restart_limit="
                        f"{self.job.cluster.restart_limit}; the last, actor {number}: {_first_line(error)}"
                    ) from error
            except ray.exceptions.RayTaskError as error:
                raise _cause(error, f"actor {number}") from error
            self._actors[number] = self._new_actor(number)
            self._running[self._actors[number].call.remote("run")] = number

    def _call(self, reference: Any, doing: str) -> Any:
        ray = _ray()
        deadline = time.monotonic() + self.job.cluster.start_timeout_s
        while not ray.wait([reference], timeout=LOOK_S)[0]:
            if self._stopped.is_set() and not self._running:
                raise Interrupted
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{doing} took more than {self.job.cluster.start_timeout_s:g} s; is the machine busy? "
                    "Raise cluster.start_timeout_s"
                )
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise _cause(error, doing) from error
        except ray.exceptions.RayActorError as error:
            raise RunError(
                f"the learner's process ended while {doing}: {_first_line(error)}; "
                "continue from the last checkpoint with resume=FOLDER"
            ) from error


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _ray() -> Any:
    import ray

    return ray


def _start_ray(cores: int) -> Any:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # What Ray says of a worker that died stands in its own logs; it would print it on standard output.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray = _ray()
        # Ray makes a token for the cluster by itself, and says so in a warning.
        logging.getLogger("ray").setLevel(logging.ERROR)
        try:
            with _own_handlers():
                ray.init(
                    address="local",
                    num_cpus=cores,
                    include_dashboard=False,
                    logging_level=logging.ERROR,
                    log_to_driver=False,
                    configure_logging=False,
                )
        except (RuntimeError, ConnectionError, TimeoutError, OSError) as error:
            raise ClusterError(
                f"Ray did not start: {_first_line(error)}; `lamarck doctor` looks at it"
            ) from error
    return ray


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


def _cause(error: Any, doing: str) -> LamarckError:
    """What a host raised, as the user should read it."""
    cause = getattr(error, "cause", None) or error
    if isinstance(cause, LamarckError):
        return type(cause)(str(cause))
    for cls in type(cause).__mro__:
        if cls.__module__ == "lamarckian_cli.errors" and cls.__name__ != "LamarckError":
            import lamarckian_cli.errors as errors

            made: LamarckError = getattr(errors, cls.__name__)(str(getattr(cause, "cause", cause)))
            return made
    return RunError(f"{doing} failed: {type(cause).__name__}: {_first_line(cause)}")


def _first_line(error: object) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
