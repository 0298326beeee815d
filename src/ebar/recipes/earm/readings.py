"""What the smaller tables read off the finished runs of Table 1: systems side by side, paired over seeds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ebar.recipes.crossed import with_items
from ebar.recipes.earm.translation_settings import SENTENCES
from ebar.recipes.experiment import Result
from ebar.recipes.recipe import Row
from ebar.recipes.statistics import as_dot, as_estimate, grouped, over_seeds
from ebar.report.plots import Dots

Branch = Mapping[str, Any]  # what `translation.run_cell` has measured of one
Systems = Mapping[str, tuple[str, str]]  # name → variant of a run, branch of it
Pairs = Sequence[tuple[str, str]]  # a system, and what it is compared with

# Label smoothing in all of them, as in the document's tables 7 to 10.
VARIANTS = ("label smoothing", "scheduled sampling")
SYSTEMS: Systems = {
    "base": ("label smoothing", "base"),
    "E-ARM": ("label smoothing", "earm"),
    "scheduled sampling": ("scheduled sampling", "base"),
    "scheduled sampling + E-ARM": ("scheduled sampling", "earm"),
}
PAIRS: Pairs = (
    ("E-ARM", "base"),
    ("scheduled sampling", "base"),
    ("scheduled sampling + E-ARM", "scheduled sampling"),
)
PAIRED = ", paired difference"


def compared(
    results: Sequence[Result],
    figure: str,
    read: Callable[[Branch], Mapping[str, Any] | None],
    told: Mapping[tuple[str, str], float],
    *,
    systems: Systems = SYSTEMS,
    pairs: Pairs = PAIRS,
    **settings: Any,
) -> list[Row]:
    """One figure of each system and the differences, for each direction; `told` by direction and system.

    `read` gives an estimate as JSON has it, or none where there is nothing to measure.
    """
    rows = []
    for (direction,), runs in grouped(results, ("direction",)).items():
        found = {(cell["variant"], cell["seed"]): result["branches"] for cell, result in runs}
        seeds = sorted({seed for _, seed in found})
        values: dict[str, list[float]] = {}
        for system, (variant, branch) in systems.items():
            own = {"direction": direction, "system": system, **settings}
            trees = [tree for seed in seeds if (tree := read(found[variant, seed][branch])) is not None]
            if len(trees) < len(seeds):
                empty = "nothing to measure it on"
                rows.append(Row(name=figure, settings=own, value=None, low=None, high=None, warning=empty))
                continue
            values[system] = [float(tree["value"]) for tree in trees]
            document, warning = told.get((direction, system)), trees[0].get("warning")
            single = as_estimate(trees[0])
            row = over_seeds(figure, own, values[system], single=single, document=document, warning=warning)
            rows.append(with_items(row, single, SENTENCES))
        for one, other in pairs:
            if one in values and other in values:
                differences = [a - b for a, b in zip(values[one], values[other], strict=True)]
                ends = told.get((direction, one)), told.get((direction, other))
                document = None if ends[0] is None or ends[1] is None else round(ends[0] - ends[1], 2)
                own = {"direction": direction, "system": f"{one} − {other}", **settings}
                rows.append(over_seeds(figure + PAIRED, own, differences, document=document))
    return rows


def difference_dots(rows: Sequence[Row], title: str, x_label: str, *keys: str) -> Dots:
    """The paired differences, each under the settings that tell it from the others."""
    wanted = [row for row in rows if row.name.endswith(PAIRED)]
    directions = {row.settings["direction"] for row in wanted}
    shown = keys if len(directions) == 1 else ("direction", *keys)
    named = {", ".join(_label(row, key) for key in shown): as_dot(row) for row in wanted}
    return Dots(title=title, x_label=x_label, rows=named)


def _label(row: Row, key: str) -> str:
    text = row.name.removesuffix(PAIRED) if key == "name" else str(row.settings[key])
    # There is little room beside a plot.
    return text.replace("scheduled sampling", "SS").replace("label smoothing", "LS")
