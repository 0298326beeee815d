"""What a recipe is: a grid of small runs, what to make of them, and how to draw it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

Cell = Mapping[str, Any]  # the settings of one run, its seed among them: plain JSON


@dataclass(frozen=True, kw_only=True)
class Row:
    """One published figure: ours with its interval, the document's beside it."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    value: float | None
    low: float | None
    high: float | None
    document: float | str | None = None  # the document's own figure, where it gives one
    warning: str | None = None
    over: str | None = None  # what the interval is over: seeds, test items, both, draws
    values: Sequence[Any] | None = None  # what the figure is made of, one for each seed; no column of the table
    picture: str | None = None  # a PNG in base 64, for the plot; no column of the table


@runtime_checkable
class Recipe(Protocol):
    """A table or figure that can be run again."""

    title: str
    source: str  # which table or figure of which document, or that it is ebar's own

    def grid(self, scale: str) -> list[Cell]:
        """Every run, in order; each is independent of the others."""
        ...

    def run(self, cell: Cell, folder: Path) -> dict[str, Any]:
        """One run. What it gives must be plain JSON.

        `folder` is the run's own: what a long run leaves there it finds again when it was killed and is run anew.
        """
        ...

    def rows(self, scale: str, results: Sequence[tuple[Cell, dict[str, Any]]]) -> list[Row]:
        """The published figures, from all runs."""
        ...

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """The picture, as SVG."""
        ...


@runtime_checkable
class Shares(Protocol):
    """A recipe whose finished runs serve others too: a run is the same wherever its cell and its commit are."""

    @property
    def runs(self) -> str | None:
        """The name they are kept under; None: the recipe's own."""
        ...


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A result as its JSON has it, and the settings of its runs."""

    rows: Sequence[Row]
    cells: Sequence[Cell]
    beside: Callable[[str], Sequence[Row]] = lambda name: ()  # rows of another recipe that were read off the same runs


Items = str | Callable[[Row, Sequence[Cell]], str]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a page must say of a recipe's rows for them to be read rightly."""

    items: Items = ""  # what the interval of a single run is over
    shared: str = ""  # what all seeds have in common, whose error an interval over seeds therefore lacks
    ranges: Mapping[str, tuple[float, float]] = field(
        default_factory=dict
    )  # name of a figure → least and most it can be
    # Of the document's figures: their data, where those are not ours.
    elsewhere: Callable[[Sequence[Cell]], str | None] = lambda cells: None
    # Recorded rows with the names and the document's figures that they have today.
    correct: Callable[[Recorded], Sequence[Row]] = lambda recorded: recorded.rows
    # What sets the runs apart from the document's, in words.
    departures: Callable[[Sequence[Cell]], list[str]] = lambda cells: []


@runtime_checkable
class Read(Protocol):
    """A recipe that says how it is to be read."""

    @property
    def reading(self) -> Reading: ...


@runtime_checkable
class Remarks(Protocol):
    """A recipe that has something to say about its figures: what differs from the document, and why."""

    def remarks(self, rows: Sequence[Row]) -> list[str]: ...
