"""How little data is enough: r and π against |D|, from the authors' r and from the best r we could train."""

from collections.abc import Sequence

from ebar.recipes.gam.cells import (
    Experiment,
    Result,
    curve,
    entropy_rows,
    estimate,
    grouped,
    over_seeds,
    panel,
    standard_rows,
)
from ebar.recipes.gam.settings import MOTIF, cell_for
from ebar.recipes.recipe import Cell, Row
from ebar.report.plots import Panel

FT = "1001111"
KEYS = ("recipe", "size")
SEEDS = {
    "demo": {60: 1},
    "cpu": {5000: 3, 500: 3, 200: 1, 100: 1, 50: 1},  # the longest first
    "paper": {20_000: 5, 10_000: 5, 5000: 5, 1000: 5, 500: 5, 200: 5, 100: 5, 50: 5},
}
DOCUMENT = {500: 1.19, 5000: 1.09}  # Table 3, rs, average of CE(π)/H over five motifs and three feature sets


def cells(scale: str) -> list[Cell]:
    """Both starts share data and seed, so that they can be compared in pairs."""
    return [
        cell_for(scale, motif=MOTIF, ft=FT, size=size, seed=seed, recipe=recipe, exact=True)
        for size, seeds in SEEDS[scale].items()
        for seed in range(seeds)
        for recipe in ("authors_then_ours", "tuned")
    ]


def figures(results: Sequence[Result]) -> list[Row]:
    """Curves, the paired difference of π from r, and λ of the distractors in standard errors."""
    rows = [
        row if row.name != "CE(π)/H" else _beside_document(row) for row in standard_rows(results, KEYS)
    ] + entropy_rows(results, KEYS)[:1]
    for (recipe, size), runs in grouped(results, KEYS).items():
        settings = {"recipe": recipe, "size": size}
        pairs = [(_exact(result, "r"), _exact(result, _student(result))) for _, result in runs]
        rows.append(over_seeds("CE(π) − CE(r), paired", settings, [after - before for before, after in pairs]))
        for _, result in runs:
            rows += _distractors({**settings, "seed": _["seed"]}, result)
    return rows


def _beside_document(row: Row) -> Row:
    return Row(
        name=row.name, settings=row.settings, value=row.value, low=row.low, high=row.high,
        document=DOCUMENT.get(row.settings["size"]),
    )  # fmt: skip


def _student(result: dict[str, dict[str, object]]) -> str:
    return list(result["models"])[-1]


def _exact(result: dict[str, dict[str, dict[str, dict[str, object]]]], model: str) -> float:
    found = estimate(result["models"][model]["exact"])
    assert found is not None
    return found.value


def _distractors(settings: dict[str, object], result: dict[str, list[dict[str, list[float]]]]) -> list[Row]:
    """λ₁ of d₀ … d₃, the first round's, in standard errors: they should be nothing. Constant ones are said to be so."""
    first = result["lambda"][0]
    rows = []
    errors = first["standard_errors"] or []
    for place, name in enumerate(result["names"][-4:], len(result["names"]) - 4):
        said = [words for words in result["warnings"] if f"'{name}' is" in str(words) and "round 1" in str(words)]
        constant = str(said[0]) if said else None
        value = None if constant or not errors else float(first["coefficients"][place]) / float(errors[place])
        rows.append(
            Row(name=f"λ of d{place - len(result['names']) + 4} in standard errors", settings=settings, value=value,
                low=None, high=None, warning=constant)
        )  # fmt: skip
    return rows


def panels(rows: Sequence[Row]) -> list[Panel]:
    """CE/H and motif frequency."""
    names = {"authors_then_ours": "authors' r", "tuned": "tuned r"}
    costs, frequencies = [], []
    for recipe, name in names.items():
        costs += [
            curve(rows, "CE(r)/H", name, dashed=True, recipe=recipe),
            curve(rows, "CE(π)/H", f"π from {name}", recipe=recipe),
        ]
        frequencies += [
            curve(rows, "motif frequency of r", name, dashed=True, recipe=recipe),
            curve(rows, "motif frequency of π", f"π from {name}", recipe=recipe),
        ]
    return [
        panel("Cross-entropy over entropy, exact", "CE/H", costs, {"the language": 1.0}),
        panel("How often the motif is drawn", "motif frequency", frequencies),
    ]


RECIPE = Experiment(
    title="Cross-entropy of r and π against |D|, motif 10001011111000, ft 1001111: the authors' r and a tuned one",
    source="document 000, Figure 2(c) and Table 3, extended to less data",
    cells=cells,
    figures=figures,
    panels=panels,
)
