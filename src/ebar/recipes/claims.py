"""In words: which claims of a paper hold here, and how our figures compare with its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ebar.recipes.layout import text
from ebar.recipes.plots import chosen
from ebar.recipes.recipe import Row

UNDECIDED = "undecided, as the interval has both sides"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """That a figure lies above or below a number. It holds where the whole interval does."""

    says: str
    figure: str
    above: float | None = None
    below: float | None = None
    where: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, rows: Sequence[Row]) -> str:
        found = [row for row in chosen(rows, self.figure, self.where) if row.value is not None]
        sign, bound = (1.0, self.above) if self.above is not None else (-1.0, self.below or 0.0)
        sides: dict[str, list[Row]] = {"holds": [], "on the other side": [], UNDECIDED: [], "without an interval": []}
        for row in found:
            if row.low is None or row.high is None:
                sides["without an interval"].append(row)
                continue
            ends = [sign * (end - bound) for end in (row.low, row.high)]
            sides["holds" if min(ends) > 0 else "on the other side" if max(ends) < 0 else UNDECIDED].append(row)
        holds = sides.pop("holds")
        verdict = "Reproduced" if len(holds) == len(found) else "Reproduced in part" if holds else "Not reproduced"
        side = f"{self.figure} {'above' if sign > 0 else 'below'} {text(bound)}"
        counts = [f"{len(holds)} of {len(found)} figures"]
        counts += [f"{len(own)} {how} ({_places(own)})" for how, own in sides.items() if own]
        return f"**{verdict if found else 'Not measured'}**: {self.says} ({side}): {'; '.join(counts)}."


def compared_with_paper(rows: Sequence[Row], elsewhere: str | None) -> list[str]:
    """How many of the paper's own figures our intervals hold, where both are of the same kind of data."""
    both = [row for row in rows if isinstance(row.document, int | float) and None not in (row.low, row.high)]
    if not both:
        return []
    if elsewhere is not None:
        return [f"The paper's figures are of other runs ({elsewhere}): their sizes are not to be compared with ours."]
    sides: dict[str, list[Row]] = {"above": [], "below": []}
    for row in both:
        low, high, theirs = float(row.low or 0.0), float(row.high or 0.0), float(row.document or 0.0)
        if not low <= theirs <= high:
            sides["above" if low > theirs else "below"].append(row)
    inside = len(both) - sum(map(len, sides.values()))
    said = [f"Of {len(both)} figures that the paper gives too, {inside} lie within our intervals."]
    for side, own in sides.items():
        if own:
            named = "; ".join(f"{_named(row)} {text(row.value)} (paper {text(row.document)})" for row in own)
            said.append(f"Ours are {side} the paper's: {named}.")
    return said


def _places(rows: Sequence[Row]) -> str:
    return "; ".join(_settings(row) or row.name for row in rows)


def _named(row: Row) -> str:
    settings = _settings(row)
    return f"{row.name}, {settings}:" if settings else f"{row.name}:"


def _settings(row: Row) -> str:
    return ", ".join(
        f"{key} {text(value)}" if isinstance(value, int | float) else str(value)
        for key, value in row.settings.items()
        if value is not None
    )
