"""A recipe: a grid of configurations, and how to read what they give. Both are data.

A whole one, to be put in `RECIPES` under a name such as "mine/table1":

    from ebar.recipes.pieces import Claim, Curves, Figure, Figures, Grid, Layout, Recipe

    RECIPE = Recipe(
        title="Training by rejection against importance sampling",
        source="Author et al. 2019, Table 1",
        grid=Grid(
            common={"motif": "101"},
            scales={"demo": {"hidden": 16}, "cpu": {"hidden": 200}, "paper": {"hidden": 200}},
            axes={"size": {"demo": [60], "cpu": [500, 5000], "paper": [500, 1000, 5000]}, "matching": ["rs", "snis"]},
            seeds={"demo": 1, "cpu": 3, "paper": 10},
        ),
        run=run_cell,  # (cell, folder) → plain JSON: the journey that the command calls
        figures=Figures(
            Figure(name="time rs/snis", at="seconds.λ", where={"matching": "rs"}, over={"matching": "snis"}),
            Figure(name="frequency rs/snis", at="models.π.motif", where={"matching": "rs"}, over={"matching": "snis"}),
            by=["size"],
            paper={500: (2.92, 0.998), 1000: (2.038, 1.009)},  # |D| → one number for each figure
        ),
        tables=Layout(rows=["size"], columns=["figure"]),
        plots=Curves(of={"time rs/snis": "rs / snis"}, x="size", title="Time", levels={"equal": 1.0}, log_x=True),
        claims=Claim(says="rejection takes longer", figure="time rs/snis", above=1.0),
    )

Of `figures`, `tables`, `plots` and `claims` there may be one or a list. Wherever data do not suffice, a function does:
each of these and `grid` are called; `Grid`, `Figures`, `Layout`, `Curves` and `Claim` are objects that can be called.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ebar.report.plots import Dots, Panel, plot_panels

Cell = Mapping[str, Any]  # the settings of one run, its seed among them, as plain JSON
Result = tuple[Cell, dict[str, Any]]  # a cell, and what its run gave


Kind = TypeVar("Kind")
Some: TypeAlias = Kind | Sequence[Kind]  # one or several


def several(some: Some[Kind]) -> Sequence[Kind]:
    """One or several, as several."""
    return some if isinstance(some, Sequence) else [some]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One published figure: ours with its interval, the paper's beside it."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    value: float | None = None
    low: float | None = None
    high: float | None = None
    document: float | str | None = None  # the paper's own figure, where it gives one
    warning: str | None = None
    over: str | None = None  # what the interval is over: seeds, test items, both, draws
    values: Sequence[Any] | None = None  # what the figure is made of, one for each seed; not on the page
    picture: str | None = None  # a PNG in base 64, for the plot; not on the page


class Laid(NamedTuple):
    """A table as text: what it shows, its header and cells, and what its intervals are over."""

    caption: str
    header: list[str]
    cells: list[list[str]]
    notes: list[str]


class Finding(NamedTuple):
    """What became of a claim: the verdict in a word, and the whole sentence, which begins with it."""

    verdict: str
    sentence: str
    says: str = ""  # the claim, in words
    rows: Sequence[Row] = ()  # the figures it was judged by


Items = str | Callable[[Row, Sequence[Cell]], str]
Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Caption:
    """What a page must say for its figures to be read rightly."""

    items: Items = (
        ""  # what the interval of a single run is over; words may name settings: "{measures[images]:,} images"
    )
    shared: str = ""  # what all seeds have in common, whose error an interval over seeds therefore lacks
    ranges: Mapping[str, Range] = field(default_factory=dict)  # name of a figure → least and most it can be
    # The data of the paper's figures, where those are not ours.
    elsewhere: Callable[[Sequence[Cell]], str | None] = lambda cells: None
    # What sets the runs apart from the paper's, in words.
    departures: Callable[[Sequence[Cell]], list[str]] = lambda cells: []


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A table or figure that can be run again."""

    title: str
    source: str  # which table or figure of which paper, or that it is ebar's own
    # At a scale: every run, in order; each is independent of the others.
    grid: Callable[[str], list[Cell]]
    # One run, whose result must be plain JSON. The folder is its own: what an interrupted run leaves there it finds
    # again when it is run anew.
    run: Callable[[Cell, Path], dict[str, Any]]
    figures: Some[Callable[[Sequence[Result]], list[Row]]]
    plots: Some[Callable[[Sequence[Row]], Sequence[Panel | Dots]]] = ()
    tables: Some[Callable[[Sequence[Row], str], Laid]] = ()  # as the paper lays them out; empty: a list of all rows
    # What the paper says, and whether it is so here; a sentence that passes no verdict is just shown.
    claims: Some[Callable[[Sequence[Row]], Finding | str]] = ()
    notes: Callable[[Sequence[Row]], list[str]] = lambda rows: []
    picture: Callable[[Sequence[Row], Path], None] | None = None  # in place of plots
    runs: str | None = None  # recipes read off the same runs name one folder for them
    reading: Caption = field(default_factory=Caption)

    def rows(self, results: Sequence[Result]) -> list[Row]:
        """The published figures, from all runs."""
        return [row for part in several(self.figures) for row in part(results)]

    def plot(self, rows: Sequence[Row], path: Path) -> None:
        """The picture, as SVG."""
        if self.picture is not None:
            return self.picture(rows, path)
        plot_panels([panel for part in several(self.plots) for panel in part(rows)], path)
        return None

    @property
    def read(self) -> Caption:
        """The reading, with what single figures say of their ranges and intervals."""
        own = [figure for part in several(self.figures) for figure in getattr(part, "of", ())]
        ranges = {name: figure.range for figure in own if figure.range is not None for name in figure.labelled}

        def items(row: Row, cells: Sequence[Cell]) -> str:
            said = next((one.items for one in own if one.items and one.names(row.name)), self.reading.items)
            return said.format(**cells[0]) if isinstance(said, str) else said(row, cells)

        return replace(self.reading, ranges={**ranges, **self.reading.ranges}, items=items)
