"""A worker as a process that Ray places: it takes genomes in one by one, and gives results back."""

from __future__ import annotations

import os
import threading
import time

from lamarckian_cli.errors import TransportError
from lamarckian_cli.launch.evolution.evaluation import evaluate
from lamarckian_cli.launch.evolution.job import EvaluatorFactory
from lamarckian_cli.launch.evolution.messages import pack_results, unpack_work
from lamarckian_cli.launch.process import keep_memory, limit_threads
from lamarckian_cli.transport.exchange import ExchangeWorker
from lamarckian_cli.transport.keys import JobKeys

WAIT_S = 0.2  # how long a wait lasts before it is looked whether to stop


class WorkerHost:
    """Called by the collector's process over Ray; genomes and results go over the exchange."""

    def __init__(
        self, problem: EvaluatorFactory, name: str, uri: str, keys: dict[str, str] | None, timeout_s: float
    ) -> None:
        self._problem, self._name, self._uri, self._timeout_s = problem, name, uri, timeout_s
        self._keys = None if keys is None else JobKeys.from_dict(keys)
        self._stop = threading.Event()

    def pid(self) -> int:
        return os.getpid()

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        """Evaluate until `stop`; raises what keeps evaluator or link from being made."""
        keep_memory()
        limit_threads(1)
        evaluator = self._problem.make()
        description = evaluator.describe()
        link = ExchangeWorker(self._uri, name=self._name, keys=self._keys, timeout_s=self._timeout_s)
        try:
            while not self._stop.is_set():
                message = link.receive(WAIT_S)
                if message is None:
                    continue
                order, genomes, seeds = unpack_work(message)
                began = time.perf_counter()
                [(_, results)] = evaluate(evaluator, description, genomes, seeds)
                link.send(pack_results(order, results, time.perf_counter() - began))
        except TransportError:
            if not self._stop.is_set():  # the collector left first
                raise
        finally:
            link.close()
