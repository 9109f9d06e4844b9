"""How commands print: tables for people, one JSON document for scripts."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

from lamarckian_cli.cli.failure import complain

PIPE_WIDTH = 240  # characters
BREAKABLE_WORD = 40
NARROWEST_PROSE = 20


def print_json(document: Any) -> None:
    """One JSON document on standard output; what JSON cannot say (nan, infinity) becomes null."""
    print(json.dumps(_sayable(document), default=str))


@contextmanager
def only_json(wanted: bool) -> Iterator[None]:
    """Within it, what a game prints goes to standard error where a document is `wanted`."""
    if not wanted:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    fold: Sequence[int] = (-1,),
    keys: int = 1,
) -> None:
    """A table that fits the terminal, with every number and word in one piece.

    Columns of `fold` break between words, and words of more than BREAKABLE_WORD characters (paths)
    anywhere. What then is too wide goes into further tables, which begin with the first `keys`
    columns again. Beside those, a column of `fold` breaks its words where it has to, and another
    that is too wide is printed as in a pipe.
    """
    # Rich takes a tenth of a second to import: only where a table is printed.
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[cell(value) for value in row] for row in rows]
    folding = {i % len(columns) for i in fold}
    found = [_column(title, [row[i] for row in cells], i in folding) for i, title in enumerate(columns)]
    # Where nobody looks (a pipe, a file), lines may be as long as they like.
    width = Console().width if sys.stdout.isatty() else PIPE_WIDTH
    for part in _parts(found, keys, width):
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        widths = _widths([found[i] for i in part], width)
        for i, column_width in zip(part, widths, strict=True):
            table.add_column(Text(columns[i]), overflow="fold", width=column_width)
        for row in cells:
            table.add_row(*(Text(row[i]) for i in part))
        Console(highlight=False, width=max(width, _table_width(widths))).print(table)


@contextmanager
def progress_bar(before: str = "") -> Iterator[Callable[[str, float], None]]:
    """A bar on standard error, told what goes on and the share that is done, from 0 to 1.

    It is gone at the end. `before` stays, and is all that is printed where that is no terminal.
    """
    from rich.console import Console
    from rich.progress import Progress

    if before and sys.stderr is not None:
        complain(before)
    console = Console(stderr=True, highlight=False)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)


def cell(value: Any) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


@dataclass(frozen=True, slots=True)
class _Column:
    """Widths in characters."""

    narrowest: int  # breaks words of prose
    least: int  # breaks between words alone
    shown: int  # on one line, the title broken
    full: int  # and with the title on one line


def _column(title: str, cells: Sequence[str], folds: bool) -> _Column:
    from rich.cells import cell_len

    def widest(texts: Iterable[str]) -> int:
        return max(map(cell_len, texts), default=1)

    lines = widest(line for text in cells for line in text.splitlines())
    word = widest(title.split())
    full = max(lines, cell_len(title), 1)
    shown = full if folds else max(lines, word)
    words = min(BREAKABLE_WORD, widest(part for text in cells for part in text.split()))
    least = max(word, words) if folds else shown
    return _Column(min(least, NARROWEST_PROSE) if folds else least, least, shown, full)


def _table_width(widths: Sequence[int]) -> int:
    """Of columns so wide: a space at both ends, three between two columns."""
    return sum(widths) + 3 * (len(widths) - 1) + 2


def _parts(columns: Sequence[_Column], keys: int, width: int) -> Iterator[list[int]]:
    """Which columns stand in one table, for each table."""
    key = list(range(min(keys, len(columns))))
    part = list(key)
    for i in range(len(key), len(columns)):
        if len(part) > len(key) and _table_width([columns[j].least for j in (*part, i)]) > width:
            yield part
            part = list(key)
        part.append(i)
    yield part


def _widths(columns: Sequence[_Column], width: int) -> list[int]:
    """What each needs most; what is left goes to words and lines that would break, then to titles."""
    widths = [column.narrowest for column in columns]
    for wanted in (
        [column.least for column in columns],
        [column.shown for column in columns],
        [column.full for column in columns],
    ):
        missing = [max(0, want - has) for want, has in zip(wanted, widths, strict=True)]
        left = max(0, width - _table_width(widths))
        share = min(1.0, left / max(1, sum(missing)))
        widths = [has + int(share * more) for has, more in zip(widths, missing, strict=True)]
    return widths


def _sayable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _sayable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sayable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
