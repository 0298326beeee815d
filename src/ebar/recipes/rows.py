"""Rows of a record: how to choose among them, and their words."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ebar.recipes.recipe import Row


def text(value: Any) -> str:
    """Four digits of a number; what JSON has no number for stands in a record as a string, and means the same."""
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def escaped(words: str) -> str:
    """Text within a table or a link."""
    return " ".join(words.replace("|", "\\|").split())


def chosen(rows: Sequence[Row], name: str, where: Mapping[str, Any]) -> list[Row]:
    """Rows of a figure with these settings; a name that ends in * stands for all that begin so."""
    return [
        row
        for row in rows
        if (row.name.startswith(name[:-1]) if name.endswith("*") else row.name == name)
        and all(row.settings.get(key) == value for key, value in where.items())
    ]


def split(rows: Sequence[Row], keys: Sequence[str]) -> list[dict[str, Any]]:
    """The combinations of these settings that rows have."""
    if not keys:
        return [{}]
    known = dict.fromkeys(
        tuple(row.settings[key] for key in keys) for row in rows if all(key in row.settings for key in keys)
    )
    return [dict(zip(keys, values, strict=True)) for values in known]


def settings_of(row: Row) -> str:
    """A row's settings in words."""
    return ", ".join(
        f"{key} {text(value)}" if isinstance(value, int | float) else str(value)
        for key, value in row.settings.items()
        if value is not None
    )
