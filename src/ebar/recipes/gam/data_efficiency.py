"""How little data is enough: r and π against |D|, from the authors' r and from the best r we could train."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ebar.recipes.experiment import Result
from ebar.recipes.gam.cells import curve, entropy_rows, gam_experiment, panel, standard_rows
from ebar.recipes.gam.settings import MOTIF, cell_for
from ebar.recipes.recipe import Cell, Reading, Recorded, Row
from ebar.recipes.statistics import as_estimate, grouped, over_seeds
from ebar.report.plots import Panel

FT = "1001111"
KEYS = ("recipe", "size")
SEEDS = {
    "demo": {60: 1},
    "cpu": {5000: 3, 500: 3, 100: 1, 50: 1},  # the longest first
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
    """Curves, the paired difference of π from r, and λ of the distractors."""
    rows = entropy_rows(results, KEYS)[:1]
    for row in standard_rows(results, KEYS):
        beside = DOCUMENT.get(row.settings["size"]) if row.name == "CE(π)/H" else None
        rows.append(replace(row, document=beside))
    for (recipe, size), runs in grouped(results, KEYS).items():
        settings = {"recipe": recipe, "size": size}
        differences = [_exact(result, list(result["models"])[-1]) - _exact(result, "r") for _, result in runs]
        rows.append(over_seeds("CE(π) − CE(r), paired, nats per token", settings, differences))
        for cell, result in runs:
            rows += _distractors({**settings, "seed": cell["seed"]}, result)
    return rows


def _exact(result: dict[str, Any], model: str) -> float:
    found = as_estimate(result["models"][model]["exact"])
    assert found is not None
    return found.value


def _told(size: int) -> str | None:
    """Of the weights of distractors, at |D| = 5,000 alone (caption of Table 2)."""
    return "close to 0" if size == 5000 else None


def correct(recorded: Recorded) -> list[Row]:
    """Records of the first format have the document say 0 of each λ, at sizes too of which it says nothing."""
    return [
        replace(row, document=_told(row.settings["size"])) if row.name.startswith("λ of") else row
        for row in recorded.rows
    ]


def _distractors(settings: dict[str, Any], result: dict[str, Any]) -> list[Row]:
    """λ of d₀ … d₃: 0 where the model tilted already knows how often they hold, as r need not in the first round.

    Those constant in D have no λ, and are told.
    """
    names = result["names"]
    rows = []
    for number, fitted in enumerate(result["lambda"], 1):
        for place, name in enumerate(names[-4:], len(names) - 4):
            start = f"λ, round {number}: "
            said = [words for words in result["warnings"] if words.startswith(f"{start}'{name}' is")]
            interval = as_estimate(fitted["intervals"][place])
            assert interval is not None
            error = float(fitted["standard_errors"][place])
            errors = None if said or error == 0 else round(float(fitted["coefficients"][place]) / error, 2)
            rows.append(
                Row(
                    name=f"λ of d{place - len(names) + 4}",
                    settings={**settings, "round": number, "standard errors": errors},
                    value=interval.value,
                    low=interval.low,
                    high=interval.high,
                    document=_told(settings["size"]),
                    warning=said[0].removeprefix(start) if said else None,
                )
            )
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


RECIPE = gam_experiment(
    title="Cross-entropy of r and π against |D|, motif 10001011111000, ft 1001111: the authors' r and a tuned one",
    source="document 000, Figure 2(c) and Table 3, extended to less data",
    cells=cells,
    figures=figures,
    panels=panels,
    reading=Reading(
        elsewhere=lambda cells: "other settings",
        departures=lambda cells: [
            "The document's CE(π)/H are means over five motifs and three feature sets (Table 3), by the authors' own r "
            "and π; here it is one motif and one feature set, and λ and π are by our own settings throughout. What it "
            "says of the λ of distractors is said of one run of the authors' (caption of Table 2)."
        ],
        shared="A seed decides the data, the first weights and the draws: an interval over seeds holds the errors of "
        "all three. Cross-entropies are exact, over all strings of the language.",
        correct=correct,
    ),
)
