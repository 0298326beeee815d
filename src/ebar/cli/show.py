"""How commands show figures: JSON for programs, tables for people."""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ebar.types import Estimate


def show_json(value: Any) -> None:
    """One JSON object on standard output. What JSON has no number for (inf, NaN) is written as a string."""
    sys.stdout.write(json.dumps(plain(value), indent=1, ensure_ascii=False) + "\n")


def plain(value: Any) -> Any:
    """Estimates as objects, tuples as lists, and nothing that JSON cannot hold."""
    if isinstance(value, Estimate):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, str) or not isinstance(value, Sequence):
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value
    return [plain(item) for item in value]


def show_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table for people; an `Estimate` shows its interval, its warning stands below."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    # A narrow pipe must not cut numbers: wide enough for any row, unless a person is looking.
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table(*header, title=escape(title), title_justify="left")
    warnings = []
    for row in rows:
        table.add_row(*(escape(_text(cell)) for cell in row))
        warnings += [f"{row[0]}: {cell.warning}" for cell in row if isinstance(cell, Estimate) and cell.warning]
    console.print(table)
    for warning in warnings:
        console.print(f"[yellow]⚠[/] {escape(warning)}")


def _text(cell: object) -> str:
    if isinstance(cell, Estimate):
        return str(cell._replace(warning=None)) + (" ⚠" if cell.warning else "")
    return f"{cell:.6f}" if isinstance(cell, float) else str(cell)
