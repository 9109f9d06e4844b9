"""How commands print: tables for people, one JSON document for scripts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any


NAME_LIMIT = 40  # characters of a first column that is never broken


def print_json(document: Any) -> None:
    """One JSON document on standard output; what JSON cannot say (nan, infinity) becomes null."""
    print(json.dumps(_sayable(document), default=str))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table that fits the terminal."""
    # Rich takes a tenth of a second to import: only where a table is printed.
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    widest = max((len(cell(row[0])) for row in rows), default=0)
    for i, column in enumerate(columns):
        table.add_column(Text(column), overflow="fold", no_wrap=i == 0 and widest <= NAME_LIMIT)
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row))
    Console(highlight=False).print(table)


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
