"""`lamarck train`: a job to its end, in a run folder, watched and stoppable at any moment."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lamarckian_cli.errors import LamarckError, RunError
from lamarckian_cli.launch.counters import Counters
from lamarckian_cli.launch.display import Display, PolicyProgress, Progress, next_commands
from lamarckian_cli.launch.in_thread import Silent
from lamarckian_cli.launch.job import Job
from lamarckian_cli.launch.leaving import carry_out, warn
from lamarckian_cli.launch.runfolder import RunFolder
from lamarckian_cli.launch.settings import Budget
from lamarckian_cli.launch.signals import Stop
from lamarckian_cli.launch.summary import Totals, summarize

if TYPE_CHECKING:
    from lamarckian_cli.launch.distributed import DistributedTraining

POLL_S = 0.2
IN_METRICS = ("actors", "actor_restarts", "sent_bytes", "machines", "tree_changes", "relay_bytes")
"""What a training over Ray tells of itself beside its learning."""


def train(job: Job, *, json_output: bool) -> dict[str, Any]:
    """Run the job and return its summary; raises a LamarckError where it cannot.

    Ctrl-C, SIGTERM and SIGHUP end it early: a checkpoint is saved, every process ended, and
    KeyboardInterrupt raised. Over Ray, the second of them ends this process at once, and the
    first one does where nothing answers.
    """
    job.cluster.check_here()
    stop = Stop()
    with stop.on_signals():
        if job.resume is not None:
            _refuse_if_over(job)
        with stop.put_off():
            folder = _folder(job)
        session = Session(job, folder, stop, quiet=json_output)
        summary = carry_out(session, stop, over_ray=job.cluster.kind != "inproc")
        session.tell_end()  # last of all: whoever reads it may have gone, which must not cost the run
    if session.interrupted:
        raise KeyboardInterrupt
    return summary


def _folder(job: Job) -> RunFolder:
    command, keep = job.command_line, job.run.keep_checkpoints
    if job.resume is not None:
        return RunFolder.open(job.resume, lock=True, command=command, keep_checkpoints=keep)
    return RunFolder.create(Path(job.run.dir), job.config, command, keep_checkpoints=keep)


class Session:
    """One run of a job, on either kind of cluster: log, checkpoints, display, the end."""

    def __init__(self, job: Job, folder: RunFolder, stop: Stop, *, quiet: bool) -> None:
        self.job = job
        self.folder = folder
        self.stop = stop
        self.display = Display(job.budget.env_steps, job.budget.seconds, enabled=not quiet)
        self.counters = Counters([], job.evaluation.window)
        self.reports: dict[str, dict[str, float]] = {}
        self.version = 0
        self.extra: dict[str, Any] = {}
        self._dropped: set[str] = set()  # reasons that were told
        self._began = time.monotonic()
        self._earlier_s = 0.0  # trained in earlier sessions of the same run, ...
        self._earlier_batches = 0  # ... and what they learned from
        self._rate_from: tuple[int, float] | None = None  # env steps and seconds that rates count from
        self._logged_at = 0.0
        self._logged_env_steps = 0
        self._saved_at = 0.0

    def run(self) -> dict[str, Any]:
        """Train until the budget is spent or a signal came; the summary, which is also written."""
        state = self._earlier_state()
        with self.display:
            if self.job.cluster.kind == "inproc":
                self._run_inproc(state)
            else:
                self._run_distributed(state)
        if self.stop.interrupted and self.counters.batches <= self._earlier_batches:
            raise KeyboardInterrupt  # before anything was learned: there is nothing to sum up
        if self.counters.env_steps != self._logged_env_steps:
            self._log()  # what a signal cut short
        return self._summarize()

    def tell_end(self) -> None:
        """What was reached, why it is the end, and what to type next."""
        self.display.finish(self.folder.path, self.interrupted, end_reached(self.job.budget, self.counters))

    @property
    def interrupted(self) -> bool:
        """Whether a signal ended the run before its budget did."""
        return self.stop.interrupted and not self._over()

    # -------------------------------------------------------------- the two kinds of cluster

    def _run_inproc(self, state: dict[str, Any] | None) -> None:
        with self.stop.put_off():  # torch aborts the process where an exception interrupts its import
            from lamarckian_cli.launch.inproc import InprocTraining

        training = InprocTraining(self.job, self.stop.event)
        if state is not None:
            training.restore(state)
        self.counters = training.counters
        self._start_clock()
        self._rate_from = self.counters.env_steps, self._earlier_s
        first = next(iter(training.learners.values()))
        updates = training.updates()
        try:
            for _ in updates:
                self._tick()
                self.reports, self.version = training.reports, first.version
                self.extra = {} if training.keeper is None else training.keeper.progress()
                if training.checkpoint_due():
                    self._save(training.checkpoint())
                self._log()
                if self._over():
                    break
        finally:
            updates.close()
            training.close()
        if self.version:
            self._save(training.state())

    def _run_distributed(self, state: dict[str, Any] | None) -> None:
        from lamarckian_cli.launch.distributed import DistributedTraining
        from lamarckian_cli.launch.ray_calls import Interrupted

        training = DistributedTraining(self.job, self.stop.event, self.stop.heard)
        self.display.phase("starting Ray, the learner and the actors")
        try:
            training.start(state)
            self._follow(training)
        except Interrupted:
            pass  # before anything was learned
        finally:
            training.stop()

    def _follow(self, training: DistributedTraining) -> None:
        """Watch a training that has started, to its end; what was learned is saved, if it can be had."""
        from lamarckian_cli.launch.ray_calls import Lost

        self._saved_at = time.monotonic()
        try:
            while not self.stop.event.wait(POLL_S):
                progress = training.progress()
                self.display.note(training.notes)
                self._set_clock(progress["since_first_update_s"])
                self._take_in(progress)
                self._log()
                if self._over():
                    break
                if time.monotonic() - self._saved_at >= self.job.run.checkpoint_every_s:
                    self._save(training.state())
            self._save_newest(training)
        except Silent as error:
            if not self.stop.interrupted:
                self._add_resume(error)
                raise
            with contextlib.suppress(OSError):
                warn(f"{error}; {self.unsaved()}")
        except LamarckError as error:
            if not isinstance(error, Lost):
                with contextlib.suppress(LamarckError):  # the first one is what is told
                    self._save_newest(training)
            self._add_resume(error)
            raise

    def _save_newest(self, training: DistributedTraining) -> None:
        if self.version:
            state = training.state()
            self._take_counters(state["counters"])  # what is saved is what is told
            self._save(state)

    def keeps_nothing(self) -> bool:
        """Whether it never got going."""
        folder = self.folder
        return self.job.resume is None and not folder.has_checkpoint() and not folder.has_metrics()

    def unsaved(self) -> str:
        """What is lost when the learner cannot be asked any more."""
        if not self.folder.has_checkpoint():
            return "what it learned is not saved, and there is no earlier checkpoint"
        return f"what it learned since the last checkpoint is not saved; go on with {self._resume_command()}"

    def _resume_command(self) -> str:
        return next_commands(self.folder.path, interrupted=True)[0]

    def _add_resume(self, error: LamarckError) -> None:
        """Say in the message how to go on, where there is something to go on from."""
        from lamarckian_cli.launch.ray_calls import RESUME_HINT

        cause = str(error).removesuffix(RESUME_HINT)
        if self.folder.has_checkpoint():
            error.args = (f"{cause}; go on with {self._resume_command()}",)
        elif cause != str(error):
            error.args = (f"{cause}; nothing had been saved yet",)

    def _take_in(self, progress: dict[str, Any]) -> None:
        self._take_counters(progress["counters"])
        if self._rate_from is None and progress["since_first_update_s"] is not None:
            # The first batch was sampled while the clock stood still.
            self._rate_from = self.counters.env_steps, self.counters.seconds
        self.reports = progress["reports"]
        self.version = next(iter(progress["versions"].values()))
        self._note_dropped(progress["dropped_messages"])
        self.extra = {
            "dropped_messages": sum(progress["dropped_messages"].values()),
            **{name: progress[name] for name in IN_METRICS if name in progress},
            **progress["selfplay"],
        }

    def _note_dropped(self, dropped: dict[str, int]) -> None:
        """Say once of each reason that messages were not used."""
        for reason, count in dropped.items():
            if count and reason not in self._dropped:
                self._dropped.add(reason)
                self.display.note([f"messages were dropped and not used: {reason} ({count} so far)"])

    def _take_counters(self, state: dict[str, Any]) -> None:
        fresh = Counters(list(state["recent"]), self.job.evaluation.window)
        fresh.restore(state)
        self.counters = fresh
        self._tick()

    # -------------------------------------------------------------- parts

    def _earlier_state(self) -> dict[str, Any] | None:
        """Where a resumed run goes on; None where it begins, also if it was killed before a checkpoint."""
        if self.job.resume is None:
            return None
        if not self.folder.has_checkpoint():
            self.display.note([f"{self.folder.path} has no checkpoint, so it begins anew"])
            return None
        state: dict[str, Any] = self.folder.load_checkpoint("latest")
        self._earlier_s = float(state["counters"]["seconds"])
        self._earlier_batches = int(state["counters"]["batches"])
        self.folder.rewind(int(state["counters"]["env_steps"]))
        return state

    def _start_clock(self) -> None:
        self._began = time.monotonic()

    def _set_clock(self, since_first_update_s: float | None) -> None:
        """It runs from the first update on, however late that is heard of, and whatever clock is there."""
        if since_first_update_s is None:
            self._start_clock()
        elif self._rate_from is None:
            self._began = time.monotonic() - since_first_update_s

    def _tick(self) -> None:
        self.counters.seconds = self._earlier_s + time.monotonic() - self._began

    def _over(self) -> bool:
        return bool(end_reached(self.job.budget, self.counters))

    def _save(self, state: dict[str, Any]) -> None:
        state["counters"]["seconds"] = self.counters.seconds
        with self.stop.patient():
            self.folder.save_checkpoint(
                state,
                env_steps=int(state["counters"]["env_steps"]),
                version=self.version,
                score=self.counters.last_return() if self.counters.full() else None,
            )
        self._saved_at = time.monotonic()

    def _rate(self) -> float:
        """Env steps per second of this session, without the first batch; 0 before there are two."""
        steps, seconds = self._rate_from or (0, 0.0)
        elapsed = self.counters.seconds - seconds
        return (self.counters.env_steps - steps) / elapsed if self._rate_from and elapsed > 0 else 0.0

    def _log(self) -> None:
        now = time.monotonic()
        if not self.counters.batches:
            return  # nothing was learned yet
        if (
            now - self._logged_at < self.job.run.log_every_s
            and not self._over()
            and not self.stop.interrupted
        ):
            return
        counters = self.counters
        self._logged_at, self._logged_env_steps = now, counters.env_steps
        means = {name: counters.means(name) for name in counters.recent}
        several = len(means) > 1
        self.folder.log(
            {
                "env_steps": counters.env_steps,
                "frames": counters.frames,
                "seconds": round(counters.seconds, 3),
                "version": self.version,
                "env_steps_per_s": self._rate(),
                "matches": counters.matches,
                "best_return": counters.best_return,
                **_flat(means, several),
                **_flat(self.reports, several),
                **self.extra,
            }
        )
        self.display.update(
            Progress(
                env_steps=counters.env_steps,
                seconds=counters.seconds,
                env_steps_per_s=self._rate(),
                staleness=max((r["staleness_mean"] for r in self.reports.values()), default=None),
                version=self.version,
                policies=tuple(
                    PolicyProgress(
                        name=name,
                        return_mean=numbers.get("return"),
                        win_rate=numbers.get("win"),
                        rating=self.extra.get("rating"),  # with self-play one policy trains
                    )
                    for name, numbers in means.items()
                ),
            )
        )

    def _summarize(self) -> dict[str, Any]:
        counters = self.counters
        summary = summarize(
            Totals(
                env_steps=counters.env_steps,
                frames=counters.frames,
                seconds=counters.seconds,
                env_steps_per_s=self._rate(),
                best_return=counters.best_return,
                last_return=counters.last_return(),
                staleness_mean=counters.staleness_mean,
                staleness_max=counters.staleness_max,
                versions=self.version,
                seed=self.job.seed,
                command=list(self.job.command_line),
            )
        )
        self.folder.write_summary(summary)
        return {"run": str(self.folder.path), **summary}


def end_reached(budget: Budget, counters: Counters) -> str:
    """Which end that the budget names has been reached, as `key=value`; empty while there is none."""
    if budget.env_steps is not None and counters.env_steps >= budget.env_steps:
        return f"budget.env_steps={budget.env_steps}"
    if budget.seconds is not None and counters.seconds >= budget.seconds:
        return f"budget.seconds={budget.seconds:g}"
    if not counters.full():
        return ""
    means = counters.means(next(iter(counters.recent)))
    if budget.stop_return is not None and means["return"] >= budget.stop_return:
        return f"budget.stop_return={budget.stop_return:g}"
    if budget.stop_win_rate is not None and means.get("win", 0.0) >= budget.stop_win_rate:
        return f"budget.stop_win_rate={budget.stop_win_rate:g}"
    return ""


def _refuse_if_over(job: Job) -> None:
    """Raise a RunError where a run that is to be resumed has nothing left to do."""
    assert job.resume is not None
    folder = RunFolder.open(job.resume)
    if not folder.has_checkpoint():
        if folder.state_and_reason()[0] == "finished":
            raise RunError(f"{folder.path} has finished, and its checkpoints are gone; begin a new run")
        return
    state = folder.load_checkpoint("latest")["counters"]
    counters = Counters(list(state["recent"]), job.evaluation.window)
    counters.restore(state)
    reached = end_reached(job.budget, counters)
    if reached:
        key = reached.partition("=")[0]
        raise RunError(
            f"{folder.path} has reached {reached} already ({counters.env_steps:,} env steps in "
            f"{counters.seconds:.0f} s); to go on, give a larger {key}, or {key}=null"
        )


def _flat(numbers: dict[str, dict[str, float]], several: bool) -> dict[str, float]:
    """Numbers of each policy in one dict; the policy's name stands before the key where there are several."""
    return {
        (f"{name}/{key}" if several else key): value
        for name, of_policy in numbers.items()
        for key, value in of_policy.items()
    }
