"""Runs coroutines by hand: about a tenth of a microsecond a switch, in a fixed order.

asyncio costs several microseconds a switch, more than many games cost a step. A coroutine
here suspends by yielding an object with `park(task)`, which keeps the task until it calls
`task.wake(value)`. Three kinds are at hand:

- `Signal`: a game-side event between the players of a match;
- `sleep`: virtual time, which jumps ahead only when every coroutine waits for time, so
  tests and lateness never depend on the machine's speed;
- any asyncio future, for games outside this process: the scheduler then lives inside a
  running event loop.

The actor adds a fourth, the policy's answer (`actor/rollout.py`).
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import types
from collections import deque
from collections.abc import Coroutine, Generator, Iterable
from typing import Any, Protocol


class Parking(Protocol):
    """What a coroutine may yield: it takes the task and wakes it later."""

    def park(self, task: Task) -> None: ...


class Task:
    """One coroutine; woken with a value or an exception, run by its scheduler."""

    __slots__ = ("coroutine", "done", "error", "name", "ready", "resume", "scheduler", "throw")

    def __init__(self, scheduler: Scheduler, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        self.scheduler = scheduler
        self.ready = scheduler.ready
        self.coroutine = coroutine
        self.resume = coroutine.send
        self.throw: BaseException | None = None
        self.done = False
        self.error: BaseException | None = None
        self.name = name

    def wake(self, value: Any = None) -> None:
        self.ready.append((self, value))

    def wake_error(self, error: BaseException) -> None:
        self.throw = error
        self.ready.append((self, None))


class Signal:
    """Tasks wait until the next `fire`; a wait before it is never missed, one after it waits anew."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: list[Task] = []

    def park(self, task: Task) -> None:
        self.waiting.append(task)

    def fire(self) -> None:
        waiting, self.waiting = self.waiting, []
        for task in waiting:
            task.wake()

    @types.coroutine
    def wait(self) -> Generator[Any, Any, None]:
        yield self


class _Sleep:
    __slots__ = ("duration_s",)

    def __init__(self, duration_s: float) -> None:
        self.duration_s = duration_s

    def park(self, task: Task) -> None:
        task.scheduler.wake_after(self.duration_s, task)


@types.coroutine
def sleep(duration_s: float) -> Generator[Any, Any, None]:
    """Wait `duration_s` of virtual time under a Scheduler."""
    yield _Sleep(duration_s)


class Scheduler:
    """Runs tasks in the order in which they were woken; keeps the virtual clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.outside = 0  # tasks that wait for an asyncio future
        self.failed: list[Task] = []  # ended by an exception, which is in `task.error`
        self.ready: deque[tuple[Task, Any]] = deque()
        self._timers: list[tuple[float, int, Task]] = []
        self._order = 0
        self._arrived: asyncio.Event | None = None

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str = "") -> Task:
        """Start `coroutine` when the scheduler next runs."""
        task = Task(self, coroutine, name)
        task.wake()
        return task

    def cancel(self, task: Task) -> None:
        """End a task where it waits; its `finally` blocks run. A later wake is ignored."""
        if not task.done:
            task.done = True
            task.coroutine.close()

    def run(self) -> None:
        """Run until no task is ready. A task that raises ends alone and is added to `failed`."""
        ready = self.ready
        while ready:
            task, value = ready.popleft()
            if task.done:
                continue
            try:
                if task.throw is None:
                    parking = task.resume(value)
                else:
                    error, task.throw = task.throw, None
                    parking = task.coroutine.throw(error)
            except StopIteration:
                task.done = True
                continue
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                task.done, task.error = True, error
                self.failed.append(task)
                continue
            try:
                park = parking.park
            except AttributeError:
                self._park_future(task, parking)
            else:
                park(task)

    def wake_all(self, tasks: Iterable[Task], values: Iterable[Any]) -> None:
        """`task.wake(value)` for all of them, at once."""
        self.ready.extend(zip(tasks, values, strict=True))

    def wake_after(self, duration_s: float, task: Task) -> None:
        self._order += 1
        heapq.heappush(self._timers, (self.now_s + duration_s, self._order, task))

    def advance(self) -> bool:
        """Jump the virtual clock to the next timer and wake what it holds; False if there is none."""
        while self._timers and self._timers[0][2].done:
            heapq.heappop(self._timers)
        if not self._timers:
            return False
        self.now_s = self._timers[0][0]
        while self._timers and self._timers[0][0] <= self.now_s:
            heapq.heappop(self._timers)[2].wake()
        return True

    async def wait_outside(self, timeout_s: float | None) -> bool:
        """Inside an event loop: let asyncio run until a future that a task awaits is done."""
        if self.ready:
            await asyncio.sleep(0)
            return True
        if self._arrived is None:
            self._arrived = asyncio.Event()
        self._arrived.clear()
        try:
            await asyncio.wait_for(self._arrived.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def _park_future(self, task: Task, future: Any) -> None:
        if future is None:  # asyncio.sleep(0): let the event loop run once
            self.outside += 1
            asyncio.get_running_loop().call_soon(self._outside_done, task)
            return
        if not asyncio.isfuture(future):
            task.wake_error(TypeError(f"a coroutine awaited {future!r}, which is no Signal, sleep or future"))
            return
        future._asyncio_future_blocking = False  # the protocol by which a task takes a future over
        self.outside += 1
        future.add_done_callback(functools.partial(self._outside_done, task))

    def _outside_done(self, task: Task, _: asyncio.Future[Any] | None = None) -> None:
        self.outside -= 1
        task.wake()  # a future's own await raises its exception or returns its result
        if self._arrived is not None:
            self._arrived.set()
