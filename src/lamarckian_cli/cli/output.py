"""How commands print: tables for people, one JSON document for scripts."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

PIPE_WIDTH = 240  # characters


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
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, fold: Sequence[int] = (-1,)
) -> None:
    """A table that fits the terminal; only the columns of `fold` may break lines."""
    # Rich takes a tenth of a second to import: only where a table is printed.
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    folding = {i % len(columns) for i in fold}
    for i, column in enumerate(columns):
        table.add_column(Text(column), overflow="fold", no_wrap=i not in folding)
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    # Where nobody looks (a pipe, a file), lines may be as long as they like.
    Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)


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


def _sayable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _sayable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sayable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
