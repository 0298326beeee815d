"""Claims of a paper, and what became of them here.

A claim is reproduced where the whole interval of every figure lies on its side, and not reproduced where intervals lie
on the other. Where they have both sides nothing is decided, and the sentence says what size would decide it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ebar.recipes.power import MOST, Power, power_of
from ebar.recipes.recipe import Finding, Row
from ebar.recipes.rows import chosen, settings_of, text

REPRODUCED = "reproduced"
IN_PART = "reproduced in part"
NOT_REPRODUCED = "not reproduced"
UNDECIDED = "undecided at this size"
NOT_MEASURED = "not measured"
HOLDS, OTHER, BOTH, BARE = (
    "holds",
    "on the other side",
    "undecided, as the interval has both sides",
    "without an interval",
)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """That a figure lies above or below a number. It holds where the whole interval does."""

    says: str
    figure: str
    above: float | None = None
    below: float | None = None
    where: Mapping[str, Any] = field(default_factory=dict)
    because: str = ""  # why it is not so here, if that is known and it is not

    def __call__(self, rows: Sequence[Row]) -> Finding:
        found = [row for row in chosen(rows, self.figure, self.where) if row.value is not None]
        sign, bound = (1.0, self.above) if self.above is not None else (-1.0, self.below or 0.0)
        sides: dict[str, list[Row]] = {HOLDS: [], OTHER: [], BOTH: [], BARE: []}
        for row in found:
            sides[_side(row, sign, bound)].append(row)
        verdict = _verdict(sides, len(found))
        counts = [f"{len(sides[HOLDS])} of {len(found)} figures"]
        counts += [f"{len(own)} {how} ({_places(own)})" for how, own in sides.items() if own and how != HOLDS]
        side = f"{self.figure} {'above' if sign > 0 else 'below'} {text(bound)}"
        said = [f"**{verdict.capitalize()}**: {self.says} ({side}): {'; '.join(counts)}."]
        if sides[OTHER]:
            said.append(f"Why: {self.because}" if self.because else "The reason is not known.")
        said += size_that_would_do([one for row in sides[BOTH] if (one := power_of(row, sign, bound))], bound)
        return Finding(verdict, " ".join(said), self.says, found)


def _side(row: Row, sign: float, bound: float) -> str:
    if row.low is None or row.high is None:
        return BARE
    ends = [sign * (end - bound) for end in (row.low, row.high)]
    return HOLDS if min(ends) > 0 else OTHER if max(ends) < 0 else BOTH


def _verdict(sides: Mapping[str, Sequence[Row]], count: int) -> str:
    if not count:
        return NOT_MEASURED
    if sides[HOLDS]:
        return REPRODUCED if len(sides[HOLDS]) == count else IN_PART
    return NOT_REPRODUCED if sides[OTHER] else UNDECIDED


def overall(verdicts: Sequence[str]) -> str:
    """One verdict of several claims of one table. What was not measured keeps it from being reproduced as a whole."""
    known = {verdict for verdict in verdicts if verdict != NOT_MEASURED}
    if known & {REPRODUCED, IN_PART}:
        return REPRODUCED if set(verdicts) == {REPRODUCED} else IN_PART
    return NOT_REPRODUCED if NOT_REPRODUCED in known else UNDECIDED if known else NOT_MEASURED


def size_that_would_do(powers: Sequence[Power], bound: float) -> list[str]:
    """For claims that are undecided: what these runs could have told, and how many more would decide what was seen."""
    kinds: dict[str, list[Power]] = {}
    for one in powers:
        kinds.setdefault(one.over, []).append(one)
    parts = []
    for over, own in kinds.items():
        part = f"with {over} a distance of {_range([one.least for one in own])} from {text(bound)} shows with 80 % "
        part += f"power; to decide what was seen, {_range([one.row.value for one in own])}, "
        part += f"takes about {_amount(own[0].unit, [one.takes for one in own])}"
        theirs = [one for one in own if one.papers is not None]
        if theirs:
            part += f", a figure such as the paper's, {_range([one.row.document for one in theirs])}, about "
            part += _amount(own[0].unit, [one.papers for one in theirs])
        parts.append(part)
    return [f"What size would do: {'; '.join(parts)}."] if parts else []


def _range(values: Sequence[Any]) -> str:
    return " to ".join(dict.fromkeys(text(end) for end in (min(values), max(values))))


def _amount(unit: str, values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    ends = list(dict.fromkeys(_count(end, unit) for end in (min(known), max(known))))
    return f"{' to '.join(ends)} {unit}"


def _count(value: float, unit: str) -> str:
    if value > MOST:
        return f"over {MOST:,}"
    return f"{value:.1f}" if unit != "seeds" and value < 10 else f"{value:,.0f}"


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
    return "; ".join(settings_of(row) or row.name for row in rows)


def _named(row: Row) -> str:
    settings = settings_of(row)
    return f"{row.name}, {settings}:" if settings else f"{row.name}:"
