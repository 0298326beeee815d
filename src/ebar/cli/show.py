"""How commands show figures: JSON for programs, tables for people."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ebar.store.writing import to_json


def show_json(value: Any) -> None:
    """One JSON object on standard output. What JSON has no number for (inf, NaN) is written as a string."""
    sys.stdout.write(to_json(value, indent=1).decode())


def show(title: str, figures: Mapping[str, object], *, as_json: bool) -> int:
    """Figures by name, for programs or for people; the exit code of a command that is done."""
    if as_json:
        show_json(figures)
    else:
        show_table(title, ("figure", "value"), list(figures.items()))
    return 0


def show_with_texts(title: str, figures: Mapping[str, object], texts: Sequence[str], *, as_json: bool) -> int:
    """As `show`, with texts below, each on a line of its own."""
    if as_json:
        return show(title, {"figures": figures, "texts": texts}, as_json=True)
    show(title, figures, as_json=False)
    sys.stdout.write("".join(text.replace("\n", "\\n") + "\n" for text in texts))
    return 0


def show_table(title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
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
        warnings += [f"{row[0]}: {cell.warning}" for cell in row if getattr(cell, "warning", None)]
    console.print(table)
    for warning in warnings:
        console.print(f"[yellow]⚠[/] {escape(warning)}")


def _text(cell: Any) -> str:
    if getattr(cell, "warning", None):
        return f"{cell._replace(warning=None)} ⚠"
    return f"{cell:.6f}" if isinstance(cell, float) else str(cell)
