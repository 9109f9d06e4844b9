"""How a command ends that runs a job in a run folder, whatever ends it: the folder says how."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from lamarckian_cli.errors import LamarckError
from lamarckian_cli.launch.runfolder import RunFolder
from lamarckian_cli.launch.signals import GRACE_S, Stop

INTERRUPTED = 130  # exit status: 128 + SIGINT


class Session(Protocol):
    """One run of a job: a training's, or an evolution's."""

    folder: RunFolder

    @property
    def display(self) -> contextlib.AbstractContextManager[Any]: ...

    @property
    def interrupted(self) -> bool:
        """Whether a signal ended the run before its budget did."""

    def run(self) -> dict[str, Any]:
        """Go on until the end; the summary, which is also written."""

    def keeps_nothing(self) -> bool:
        """Whether it never got going: nothing of it is worth its folder."""

    def unsaved(self) -> str:
        """What is lost when nobody can be asked any more."""


def carry_out(session: Session, stop: Stop, *, over_ray: bool) -> dict[str, Any]:
    """Run a session to its end; its summary. The folder is finished, or gone with what never got going.

    Over Ray, the second signal ends this process at once, and the first one does where nothing answers.
    """
    give_up = functools.partial(_give_up, session, KeyboardInterrupt())
    watched: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if over_ray:
        watched = stop.watched(functools.partial(leave, session.display, give_up, session.unsaved))
    with watched:
        try:
            summary = session.run()
        except BaseException as error:
            with stop.put_off():
                _give_up(session, error)
            raise
        session.folder.finish("interrupted" if session.interrupted else "finished")
    return summary


def _give_up(session: Session, error: BaseException) -> None:
    if session.keeps_nothing():
        session.folder.discard()  # nothing half-written stays
    elif isinstance(error, KeyboardInterrupt):
        session.folder.finish("interrupted")
    else:
        reason = str(error) if isinstance(error, LamarckError) else f"{type(error).__name__}: {error}"
        session.folder.finish("failed", reason)


def leave(
    display: contextlib.AbstractContextManager[Any],
    give_up: Callable[[], None],
    unsaved: Callable[[], str],
    again: bool,
) -> NoReturn:
    """End this process, whose main thread may hang, with status 130; `again` is whether the user asked twice.

    `give_up` records how the run ended, `unsaved` says what was not saved. What else belongs to the
    job sees that this process is gone, and ends: a guardian's or Ray's task.
    """
    try:
        closing = threading.Thread(target=display.__exit__, args=(None, None, None), daemon=True)
        closing.start()  # gives the terminal back
        closing.join(1.0)
        give_up()
        with contextlib.suppress(OSError):
            if not again:
                warn(f"nothing has answered for {GRACE_S:g} s; {unsaved()}")
            warn("interrupted")
            sys.stdout.flush()
    finally:
        os._exit(INTERRUPTED)


def warn(text: str) -> None:
    """A line on standard error."""
    print(f"lamarck: {text}", file=sys.stderr, flush=True)
