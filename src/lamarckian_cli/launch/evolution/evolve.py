"""`lamarck evolve`: a job to its end, in a run folder, watched and stoppable at any moment."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lamarckian_cli.errors import ConfigError, LamarckError, RunError
from lamarckian_cli.launch.evolution.collector import Collector
from lamarckian_cli.launch.evolution.display import EvolutionDisplay, Standing
from lamarckian_cli.launch.evolution.evaluation import Failure
from lamarckian_cli.launch.evolution.job import Job
from lamarckian_cli.launch.evolution.lineage import LINEAGE, Lineage
from lamarckian_cli.launch.evolution.pool import InprocPool, Pool, SimulatedPool
from lamarckian_cli.launch.evolution.quality import Numbers, Quality, feasible_front, front_document
from lamarckian_cli.launch.evolution.summary import summarize
from lamarckian_cli.launch.leaving import carry_out
from lamarckian_cli.launch.population.factory import TrainingFactory
from lamarckian_cli.launch.process import limit_threads
from lamarckian_cli.launch.runfolder import RunFolder
from lamarckian_cli.launch.signals import Stop
from lamarckian_cli.problems.evaluator import Evaluator

if TYPE_CHECKING:
    from lamarckian_cli.launch.population.evaluator import Training

TAKE_S = 0.2  # how long a look at the workers waits before it is looked at the rest
ERRORS = "errors.log"
MOST_TRACES = 20


def evolve(job: Job, *, json_output: bool) -> dict[str, Any]:
    """Run the job and return its summary; raises a LamarckError where it cannot.

    Ctrl-C and SIGTERM end it early: a checkpoint is saved, every process ended, and
    KeyboardInterrupt raised.
    """
    stop = Stop()
    with stop.on_signals():
        session = Session(job, stop, quiet=json_output)
        with stop.put_off():
            session.open()
        summary = carry_out(session, stop, over_ray=job.cluster.kind != "inproc")
        session.tell_end()  # last of all: whoever reads it may have gone, which must not cost the run
    if session.interrupted:
        raise KeyboardInterrupt
    return summary


class Session:
    """One run of a job: the workflow, its checkpoints, log and display, and the end."""

    def __init__(self, job: Job, stop: Stop, *, quiet: bool) -> None:
        """Checks what can be checked before anything is written."""
        self.job, self.stop = job, stop
        limit_threads(1)
        evaluator: Evaluator
        self._training: Training | None = None
        if isinstance(job.problem, TrainingFactory):
            evaluator = self._training = job.problem.make()
        else:
            evaluator = job.problem.make()
        self.description = evaluator.describe()
        self.quality = Quality(
            self.description, evaluator.front(), job.workflow.reference, evaluator.optimum()
        )
        _check_target(job, len(self.description.objectives))
        self.strategy = job.make_strategy(evaluator, self.description)
        self._evaluator = evaluator
        self.display = EvolutionDisplay(job.workflow.evaluations, job.budget.seconds, enabled=not quiet)
        self.seconds = 0.0  # over all sessions of the run
        self._earlier_s, self._earlier_evaluations, self._began = 0.0, 0, time.monotonic()
        self._logged_at, self._saved_at = 0.0, time.monotonic()
        self._traces = 0
        self._notes: list[str] = []

    def open(self) -> None:
        """Make or open the run folder. RunError where a run to resume has nothing left to do."""
        job = self.job
        if job.resume is not None:
            _refuse_if_over(job)
            self.folder = RunFolder.open(
                job.resume, lock=True, command=job.command_line, keep_checkpoints=job.run.keep_checkpoints
            )
        else:
            self.folder = RunFolder.create(
                Path(job.run.dir), job.config, job.command_line, keep_checkpoints=job.run.keep_checkpoints
            )
        words = None if self._training is None else self._training.values
        self.lineage = Lineage(self.folder.path / LINEAGE, words)

    def run(self) -> dict[str, Any]:
        """Evolve until the budget is spent or a signal came; the summary, which is also written."""
        state = self._earlier_state()
        pool = self._start_pool(state)
        if pool is None:
            raise KeyboardInterrupt
        try:
            with self.display:
                self._evolve(pool, state)
            report = pool.report()
            self._leave_best(pool)
        finally:
            pool.close()
            self.lineage.close()
        if self.stop.interrupted and self.collector.evaluations <= self._earlier_evaluations:
            raise KeyboardInterrupt  # before anything was evaluated: there is nothing to sum up
        numbers = self._log(pool)
        self.collector.history.close(self.collector.evaluations, self.collector)
        summary = summarize(self.job, self.collector, numbers, report, self.seconds, self.quality)
        self.folder.write_summary(summary)
        if self.job.run.plots and not self.interrupted:
            self._plot()
        return {"run": str(self.folder.path), **summary}

    def tell_end(self) -> None:
        """What was reached, why it is the end, and what to type next."""
        failure = self.collector.first_failure
        error = "" if failure is None else failure.error
        self.display.end(self.folder.path, self.interrupted, self._over(), error)

    @property
    def interrupted(self) -> bool:
        """Whether a signal ended the run before its budget did."""
        return self.stop.interrupted and not self._over()

    def keeps_nothing(self) -> bool:
        """Whether it never got going."""
        begun = self.folder.has_checkpoint() or (self.folder.path / LINEAGE).exists()
        return self.job.resume is None and not begun

    def unsaved(self) -> str:
        """What is lost when nobody can be asked any more."""
        if not self.folder.has_checkpoint():
            return "what was evaluated is not saved, and there is no earlier checkpoint"
        return (
            "what was evaluated since the last checkpoint is not saved; go on with "
            f"lamarck evolve resume={self.folder.path}"
        )

    # -------------------------------------------------------------- at work

    def _evolve(self, pool: Pool, state: dict[str, Any] | None) -> None:
        self.collector = collector = Collector(
            self.strategy,
            self.description,
            pool,
            self.job.workflow,
            whole=self.job.exact,
            lineage=self.lineage,
        )
        if state is not None:
            collector.restore(state["collector"])
        self._began = self._saved_at = time.monotonic()
        run = self.job.run
        try:
            while not self._over() and not self.stop.interrupted:
                told = collector.step(TAKE_S)
                now = time.monotonic()
                self.seconds = self._earlier_s + now - self._began
                if collector.failures:
                    self._keep_traces()
                if told and now - self._logged_at >= run.log_every_s:
                    self._log(pool)
                if now - self._saved_at >= run.checkpoint_every_s:
                    self._save()
        except LamarckError:
            self._save_last()
            raise
        self._save_last()

    def _leave_best(self, pool: Pool) -> None:
        """The best agent of a population as a run folder of its own, `best`, for eval, play and resume."""
        best = self.collector.individuals().take(slice(0, 1))
        if self._training is None or not len(best):
            return
        from lamarckian_cli.launch.population.best import leave_best
        from lamarckian_cli.launch.population.pool import TrainingPool

        assert isinstance(pool, TrainingPool)
        leave_best(self.folder.path, self._training, best, pool.kept(int(best.ids[0])))

    def _start_pool(self, state: dict[str, Any] | None) -> Pool | None:
        """None where a signal came meanwhile."""
        job = self.job
        if self._training is not None:
            return self._start_training(self._training, state)
        retries = job.workflow.retries
        if job.cluster.kind == "inproc":
            if job.workflow.in_flight is None:
                return InprocPool(self._evaluator, self.description, job.seed, retries=retries)
            return SimulatedPool(
                self._evaluator,
                self.description,
                job.seed,
                workers=job.workflow.in_flight,
                retries=retries,
            )
        from lamarckian_cli.launch.evolution.crew import Crew
        from lamarckian_cli.launch.evolution.workers import WorkerPool
        from lamarckian_cli.launch.ray_calls import Interrupted

        crew = Crew(job, self.stop.event)
        self.display.phase("starting Ray and the workers")
        try:
            with self.display:
                crew.start()
        except Interrupted:
            crew.stop()
            return None
        except BaseException:
            crew.stop()
            raise
        return WorkerPool(
            crew,
            job.seed,
            retries=retries,
            deadline_s=job.workflow.deadline_s,
            restart_limit=job.cluster.restart_limit,
        )

    def _start_training(self, training: Training, state: dict[str, Any] | None) -> Pool | None:
        """The members of a population; None where a signal came meanwhile."""
        from lamarckian_cli.launch.population.start import start_pool
        from lamarckian_cli.launch.ray_calls import Interrupted

        self.display.phase("starting the learners and the actors")
        workflow, earlier = self.job.workflow, None if state is None else state["pool"]
        try:
            with self.display:
                return start_pool(training, self.job.population, self.stop, workflow.deadline_s, earlier)
        except Interrupted:
            return None

    def _over(self) -> str:
        """Which end has been reached; empty while none is."""
        seconds = self.job.budget.seconds
        if seconds is not None and self.seconds >= seconds:
            return f"budget.seconds={seconds:g}"
        return self.collector.over()

    # -------------------------------------------------------------- what is kept

    def _earlier_state(self) -> dict[str, Any] | None:
        """Where a resumed run goes on; None where it begins, also if it was killed before a checkpoint."""
        if self.job.resume is None:
            return None
        if not self.folder.has_checkpoint():
            self.display.note([f"{self.folder.path} has no checkpoint, so it begins anew"])
            self.lineage.rewind(0)
            self.folder.rewind(0)
            return None
        state: dict[str, Any] = self.folder.load_checkpoint("latest")
        self._earlier_s = self.seconds = float(state["seconds"])
        self._earlier_evaluations = int(state["collector"]["evaluations"])
        if state["reference"] is not None:
            self.quality.reference = np.asarray(state["reference"])
        self.lineage.rewind(int(state["lineage_bytes"]))
        self.folder.rewind(self._earlier_evaluations)
        return state

    def _save(self) -> None:
        collector = self.collector
        front = feasible_front(collector.individuals())
        state = {
            "collector": collector.state(),
            "pool": collector.pool.state(),
            "seconds": self.seconds,
            "reference": self.quality.reference,
            "lineage_bytes": self.lineage.flush(durable=True),
            "front": front_document(front, self.description),
        }
        self.folder.save_checkpoint(state, env_steps=collector.evaluations, version=self.strategy.generation)
        self._saved_at = time.monotonic()

    def _save_last(self) -> None:
        """Not after other exceptions, which may have left the strategy in the middle of something."""
        self._keep_traces()
        if self.collector.evaluations > self._earlier_evaluations:
            with self.stop.put_off(), self.stop.patient():
                self._save()

    def _keep_traces(self) -> None:
        """The first error goes to the display, whole tracebacks to a file."""
        failures, self.collector.failures = self.collector.failures, []
        for number, failure in failures:
            if failure is self.collector.first_failure:
                self.display.note([f"evaluation {number} failed: {failure.error}"] * self.display.enabled)
            self._keep_trace(number, failure)

    def _keep_trace(self, number: int, failure: Failure) -> None:
        if self._traces >= MOST_TRACES or not failure.trace:
            return
        self._traces += 1
        with (self.folder.path / ERRORS).open("a", encoding="utf-8") as file:
            file.write(f"individual {number}: {failure.error}\n{failure.trace}\n")

    def _log(self, pool: Pool) -> Numbers:
        """A row of metrics, and the display; what the population is worth now."""
        collector = self.collector
        people = collector.individuals()
        numbers = self.quality.of(people.objectives[people.violation <= 0])
        report = pool.report()
        self._logged_at = time.monotonic()
        elapsed = self.seconds - self._earlier_s
        rate = (collector.evaluations - self._earlier_evaluations) / elapsed if elapsed > 0 else 0.0
        if pool.notes and self.display.enabled:
            self.display.note(pool.notes)
        self.lineage.flush()
        row = {
            "evaluations": collector.evaluations,
            "generation": self.strategy.generation,
            "seconds": round(self.seconds, 3),
            "evaluations_per_s": rate,
            "best": numbers.best,
            "hypervolume": numbers.hypervolume,
            "igd": numbers.igd,
            "front_size": numbers.front_size,
            "failed": collector.failed,
            "retries": report.retries,
            "workers": report.workers,
            "workers_busy": report.used,
            "worker_restarts": report.restarts,
            "staleness_mean": collector.staleness_mean,
            "staleness_max": collector.staleness_max,
            **self.strategy.numbers(),
            **pool.metrics(),
        }
        self.folder.log({key: value for key, value in row.items() if value is not None})
        self.display.show(
            Standing(
                generation=self.strategy.generation,
                evaluations=collector.evaluations,
                evaluations_per_s=rate,
                seconds=self.seconds,
                failed=collector.failed,
                numbers=numbers,
                workers=report.workers,
                busy=report.busy,
                staleness=collector.staleness_mean,
            )
        )
        return numbers

    def _plot(self) -> None:
        from lamarckian_cli.launch.evolution.plots import plot

        with contextlib.suppress(KeyboardInterrupt):  # the run has ended, and is saved
            front = feasible_front(self.collector.individuals())
            plot(self.folder.path, front, self.description, self.quality, self.collector.history)
            if self._training is not None:
                from lamarckian_cli.launch.population.report import write_report

                write_report(self.folder)


def _check_target(job: Job, objectives: int) -> None:
    if job.workflow.target is not None and objectives != 1:
        raise ConfigError(
            f"evo.target is {job.workflow.target:g}, which is of a single objective; the problem has "
            f"{objectives}: leave it out"
        )


def _refuse_if_over(job: Job) -> None:
    """Raise a RunError where a run that is to be resumed has nothing left to do."""
    assert job.resume is not None
    folder = RunFolder.open(job.resume)
    if not folder.has_checkpoint():
        if folder.state_and_reason()[0] == "finished":
            raise RunError(f"{folder.path} has finished, and its checkpoints are gone; begin a new run")
        return
    state = folder.load_checkpoint("latest")
    evaluations, seconds = int(state["collector"]["evaluations"]), float(state["seconds"])
    for key, reached, limit in (
        ("evo.evaluations", evaluations, job.workflow.evaluations),
        ("budget.seconds", seconds, job.budget.seconds),
    ):
        if limit is not None and reached >= limit:
            raise RunError(
                f"{folder.path} has reached {key}={limit:g} already ({evaluations:,} evaluations in "
                f"{seconds:.0f} s); to go on, give a larger {key}, or {key}=null"
            )
