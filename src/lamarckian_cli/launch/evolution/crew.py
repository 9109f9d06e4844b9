"""The worker processes of an evolution: started over Ray, watched, replaced, ended.

They are placed as the actors of a training are. With `cluster=local` Ray is started for the
job and ended with it; with `auto` the cluster that is there is joined, machines that come
are taken in, and those that go are done without.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from lamarckian_cli.errors import ClusterError
from lamarckian_cli.launch import ray_calls, ray_cluster
from lamarckian_cli.launch.evolution.job import Job
from lamarckian_cli.launch.guardian import Guardian
from lamarckian_cli.launch.in_thread import Silent, within
from lamarckian_cli.launch.placement import Machine, Placement, place, vacancies
from lamarckian_cli.launch.shared_folder import make_folder
from lamarckian_cli.transport.exchange import Exchange
from lamarckian_cli.transport.keys import JobKeys

STOP_TIMEOUT_S = 5.0
SHUTDOWN_TIMEOUT_S = 10.0
MACHINES_EVERY_S = 2.0


@dataclass(eq=False, slots=True)
class Process:
    """One worker's process, as this side knows it."""

    number: int  # no two of a run have the same
    machine: Machine
    handle: Any
    run: Any  # the reference of its run

    @property
    def name(self) -> str:
        return f"worker {self.number}"


class Crew:
    """`start`, then `look` now and then; `exchange` is where the workers join under their names."""

    exchange: Exchange

    def __init__(self, job: Job, stopped: threading.Event) -> None:
        self.job = job
        self.notes: list[str] = []
        self._stopped = stopped
        self._guardian: Guardian | None = None
        self._placement: Placement | None = None
        self._keys: JobKeys | None = None
        self._processes: dict[str, Process] = {}
        self._numbers = itertools.count()
        self._machines_at = 0.0
        self._open = False

    def start(self) -> None:
        """Bring all workers up; returns when each has joined.

        Raises ray_calls.Interrupted once `stopped` is set meanwhile, and LamarckErrors.
        """
        try:
            self._placement = self._start_local() if self.job.cluster.kind == "local" else self._join()
        except SystemExit as stop:  # while it starts, SIGTERM is Ray's
            self._stopped.set()
            raise ray_calls.Interrupted from stop
        self.notes += self._placement.notes
        for machine, count in self._placement.actors:
            for _ in range(count):
                self._start(machine)
        self._await_all()
        self._machines_at = time.monotonic()

    @property
    def names(self) -> list[str]:
        """Of the workers that were started and not lost."""
        return list(self._processes)

    def look(self) -> dict[str, str]:
        """The workers that ended, with the reason; each is replaced, as far as there are machines."""
        ended = self._ended()
        for process in ended:
            del self._processes[process.name]
        again = [process.machine for process in ended]
        due = bool(ended) or time.monotonic() - self._machines_at >= MACHINES_EVERY_S
        if self.job.cluster.kind == "auto" and due:
            self._machines_at = time.monotonic()
            again = self._vacancies()
        for machine in again:
            self._start(machine)
        return {process.name: reason for process, reason in ended.items()}

    def replace(self, name: str) -> None:
        """End a worker that is of no use any more, and start another in its place."""
        process = self._processes.pop(name, None)
        if process is not None:
            self._kill(process)
            self._start(process.machine)

    def pids(self) -> dict[str, int]:
        """Process ids of the workers, by name."""
        ray = ray_calls.ray()
        calls = {name: p.handle.call.remote("pid") for name, p in self._processes.items()}
        return {name: int(ray.get(call, timeout=STOP_TIMEOUT_S)) for name, call in calls.items()}

    def stop(self) -> None:
        """End every process that was brought up; twice is fine."""
        ray = ray_calls.ray()
        if ray.is_initialized():
            # The guardian ends whatever a Ray that does not answer leaves.
            with contextlib.suppress(ray.exceptions.RayError, Silent):
                within(2 * STOP_TIMEOUT_S, self._stop_workers, "ending the workers")
            with contextlib.suppress(Silent):
                ray_cluster.shut_down(SHUTDOWN_TIMEOUT_S)
        self._processes = {}
        if self._open:
            self.exchange.close()
            self._open = False
        if self._guardian is not None:
            self._guardian.release()
            self._guardian = None

    # -------------------------------------------------------------- parts

    def _stop_workers(self) -> None:
        ray = ray_calls.ray()
        stops = [process.handle.call.remote("stop") for process in self._processes.values()]
        runs = [process.run for process in self._processes.values()]
        if stops:
            ray.wait(stops, num_returns=len(stops), timeout=STOP_TIMEOUT_S)
        # One that is in the middle of an evaluation is not waited for.
        _, left = ray.wait(runs, num_returns=len(runs), timeout=0.5) if runs else ([], [])
        for process in self._processes.values():
            if process.run in left:
                self._kill(process)

    def _start_local(self) -> Placement:
        folder = make_folder()
        self._guardian = Guardian(folder)
        self._bind(f"ipc://{folder}/evaluations")
        return ray_cluster.start_here(self.job.cluster)

    def _join(self) -> Placement:
        ray_cluster.join(self.job.cluster)
        machines = _without_gpus(ray_cluster.machines())
        placement = place(self.job.cluster, machines, self.job.command_line)
        self._keys = JobKeys.make()
        self._bind(f"tcp://{placement.learner.address}:{self.job.cluster.port}")
        return placement

    def _bind(self, uri: str) -> None:
        self.exchange = Exchange(uri, keys=self._keys)
        self._open = True

    def _start(self, machine: Machine) -> None:
        number = next(self._numbers)
        handle = ray_cluster.process_on(
            machine,
            "evolution.worker_host:WorkerHost",
            self.job.problem,
            f"worker {number}",
            self.exchange.uri,
            None if self._keys is None else self._keys.for_clients().to_dict(),
            self.job.cluster.start_timeout_s,
            num_cpus=1,
            max_concurrency=3,
        )
        process = Process(number, machine, handle, handle.call.remote("run"))
        self._processes[process.name] = process

    def _await_all(self) -> None:
        deadline = time.monotonic() + self.job.cluster.start_timeout_s
        ray = ray_calls.ray()
        while missing := set(self._processes) - self.exchange.present():
            ended, _ = ray.wait([p.run for p in self._processes.values()], timeout=ray_calls.LOOK_S)
            for process in self._processes.values():
                if process.run in ended:
                    self._raise(process)
            if self._stopped.is_set():
                raise ray_calls.Interrupted
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"after {self.job.cluster.start_timeout_s:g} s {len(missing)} of {len(self._processes)} "
                    "workers have not joined; is the machine busy, or its cores taken by another job? (a "
                    "firewall may need cluster.port=N opened). Raise cluster.start_timeout_s"
                )

    def _raise(self, process: Process) -> None:
        ray = ray_calls.ray()
        try:
            ray.get(process.run)
        except ray.exceptions.RayTaskError as error:
            raise ray_calls.cause(error, process.name) from error
        except ray.exceptions.RayActorError as error:
            raise ClusterError(f"{process.name} died at its start: {ray_calls.first_line(error)}") from error

    def _ended(self) -> dict[Process, str]:
        ray = ray_calls.ray()
        runs = {process.run: process for process in self._processes.values()}
        over, _ = ray.wait(list(runs), num_returns=len(runs), timeout=0) if runs else ([], [])
        ended = {}
        for reference in over:
            try:
                ray.get(reference)
                reason = "it was asked to stop"
            except ray.exceptions.RayActorError as error:
                reason = ray_calls.first_line(error).rstrip(".")
            except ray.exceptions.RayTaskError as error:
                reason = str(ray_calls.cause(error, runs[reference].name))
            ended[runs[reference]] = reason
            self._kill(runs[reference])  # Ray may only have lost sight of it
        return ended

    def _vacancies(self) -> list[Machine]:
        assert self._placement is not None
        running = Counter(process.machine.node_id for process in self._processes.values())
        return vacancies(self._placement, _without_gpus(ray_cluster.machines()), running)

    def _kill(self, process: Process) -> None:
        ray = ray_calls.ray()
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(process.handle)


def _without_gpus(machines: list[Machine]) -> list[Machine]:
    """The collector stays on this machine; a GPU is no reason to go elsewhere, nor to keep a machine free."""
    return [replace(machine, gpus=0) for machine in machines]
