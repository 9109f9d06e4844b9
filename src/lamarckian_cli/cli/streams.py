"""Standard input, output and error as the commands find them: closed, broken, full, or fine.

An output that cannot be written to shows up wherever something prints, and Rich, Typer and Hydra
each make something else of it. So the output itself remembers the first error, and the command
ends by that, in one place, whatever came of it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

OUTPUT = 1  # the descriptor
BROKEN_PIPE = 141  # what a shell shows of a program that SIGPIPE ended


class OutputLost(Exception):
    """Standard output cannot be written to; `why` is the first error."""

    def __init__(self, why: OSError) -> None:
        super().__init__(f"cannot write to standard output: {why.strerror}")
        self.why = why

    @property
    def is_broken_pipe(self) -> bool:
        """Whoever read has gone, as `head` does: nothing that needs a message."""
        return self.why.errno == errno.EPIPE


@contextmanager
def watched_output() -> Iterator[None]:
    """OutputLost where standard output is closed; at the end at the latest where it cannot be written to."""
    _fill_gaps()
    if sys.stdout is None:
        raise OutputLost(OSError(errno.EBADF, os.strerror(errno.EBADF)))
    before = sys.stdout
    if before is not sys.__stdout__ or not isinstance(before, io.TextIOWrapper):
        yield  # somebody else's, who may look after it
        return
    raw = _Remembering(OUTPUT, "wb", closefd=False)
    output = sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )
    raised: BaseException | None = None
    try:
        yield
    except BaseException as error:
        raised = error
    with contextlib.suppress(OSError):  # which `raw` remembers
        output.flush()
    sys.stdout = before
    if raw.lost is not None:
        _give_up(OUTPUT)
        raise OutputLost(raw.lost) from raised
    if raised is not None:
        raise raised


class _Remembering(io.FileIO):
    """A descriptor that knows why it could not be written to."""

    lost: OSError | None = None

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.lost = self.lost or error
            raise


def _fill_gaps() -> None:
    """Nothing that is opened later may come to lie where a standard stream belongs, and get what is its."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115, it stays until the end
    if sys.stderr is None:  # `print` would take standard output instead
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _give_up(number: int) -> None:
    """What is still to be written goes nowhere, so that the interpreter does not complain at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
