"""A result as a table to read: ours with its interval, the document's figure beside it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

INTERVALS = (
    "Intervals are at 95 %, but where the column “over” says otherwise. It says what varies in them: seeds (Student's, "
    "over one figure for each), test items, draws. An interval speaks for others of what it is over, and for nothing "
    "else."
)


def table(rows: Sequence[Mapping[str, Any]], *, elsewhere: str | None = None) -> tuple[list[str], list[list[str]]]:
    """Header and cells, from the rows of a record; a column for each setting, and none where all is empty.

    Where the document's figures are of other data than ours, `elsewhere` says of which.
    """
    settings = list(dict.fromkeys(key for row in rows for key in row["settings"]))
    document = "document" if elsewhere is None else f"document ({elsewhere})"
    header = ["figure", *settings, "ours", "interval", "over", document, "warning"]
    cells = [
        [
            row["name"],
            *(_text(row["settings"].get(key)) for key in settings),
            _text(row["value"]) or "–",
            "" if row["low"] is None or row["high"] is None else f"{_text(row['low'])} … {_text(row['high'])}",
            _text(row.get("over")),
            _text(row["document"]),
            _text(row["warning"]),
        ]
        for row in rows
    ]
    # A table of one's own has no document beside it, and most have no warnings.
    shown = [place for place, name in enumerate(header) if name == "ours" or any(row[place] for row in cells)]
    return [header[place] for place in shown], [[row[place] for place in shown] for row in cells]


def page(record: Mapping[str, Any], plot: str) -> str:
    """The record as a page of Markdown, with its picture."""
    header, cells = table(record["rows"], elsewhere=record.get("elsewhere"))
    lines = [header, ["---"] * len(header), *([_escaped(cell) for cell in row] for row in cells)]
    seeds = len(record["seeds"])
    commit = "" if record["commit"] is None else f", commit `{record['commit'][:12]}`"
    return "\n".join(
        [
            f"# {record['title']}",
            "",
            f"Source: {record['source']}. Scale {record['scale']}, {seeds} "
            f"seed{'s' * (seeds > 1)}, {record['wall_seconds']:,.0f} s in all{commit}: `{record['command']}`.",
            "",
            INTERVALS,
            "",
            f"![{_escaped(record['title'])}]({plot})",
            "",
            *("| " + " | ".join(line) + " |" for line in lines),
            "",
            *(line for note in record.get("notes", []) for line in (f"- {' '.join(note.split())}", "")),
        ]
    )


def _text(value: Any) -> str:
    """Four digits of a number; what JSON has no number for stands in a record as a string, and means the same."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return str(value)
    return str(value) if not math.isfinite(value) else f"{value:.4g}"


def _escaped(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
