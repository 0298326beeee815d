"""How little data is enough: r and π against |D|, from the authors' r and from the best r we could train."""

import math
from collections.abc import Sequence
from dataclasses import replace

from ebar.recipes.figures import found, row_of
from ebar.recipes.gam.cells import ENTROPY, READING, STANDARD, cost, departures, gam_grid, run_cell
from ebar.recipes.pieces import Cell, Claim, Curves, Figure, Figures, Layout, Recipe, Result, Row

KEYS = ("recipe", "size")
SEEDS = {
    "demo": {60: 1},
    "cpu": {5000: 3, 500: 3, 100: 1, 50: 1},  # the longest first
    "paper": dict.fromkeys((20_000, 10_000, 5000, 1000, 500, 200, 100, 50), 5),
}
# Table 3, rs: mean of CE(π)/H over five motifs and three feature sets.
PAPER = {(start, size): cost for start in ("authors_then_ours", "tuned") for size, cost in ((500, 1.19), (5000, 1.09))}
DIFFERENCE = "CE(π) − CE(r), paired, nats per token"


def distractors(results: Sequence[Result]) -> list[Row]:
    """λ of d₀ … d₃: 0 where the model tilted already knows how often they hold, as r need not in the first round.

    Those constant in D have no λ, and a warning says so.
    """
    rows = []
    for cell, result in results:
        names = result["features"]
        for number, fitted in enumerate(result["matching"], 1):
            for place, feature in enumerate(names[-4:], len(names) - 4):
                start = f"λ, round {number}: "
                said = [words for words in result["warnings"] if words.startswith(f"{start}'{feature}' is")]
                interval, error = found(fitted, f"intervals.{place}"), math.sqrt(fitted["covariance"][place][place])
                errors = None if said or error == 0 else round(float(fitted["coefficients"][place]) / error, 2)
                settings = {**{key: cell[key] for key in (*KEYS, "seed")}, "round": number, "standard errors": errors}
                theirs = "close to 0" if cell["size"] == 5000 else None  # the caption of Table 2
                warning = said[0].removeprefix(start) if said else None
                name = f"λ of d{place - len(names) + 4}"
                rows.append(row_of(name, settings, interval, document=theirs, warning=warning))
    return rows


def more_departures(cells: Sequence[Cell]) -> list[str]:
    """What the paper's figures are of."""
    return [
        "The paper's CE(π)/H are means over five motifs and three feature sets (Table 3), by the authors' own r "
        "and π; here it is one motif and one feature set, and λ and π are by our own settings throughout. What it "
        "says of the λ of distractors is said of one run of the authors' (caption of Table 2).",
        *departures(cells),
    ]


NAMES = {"authors_then_ours": "authors' r", "tuned": "tuned r", "size": "|D|"}
RECIPE = Recipe(
    title="Cross-entropy of r and π against |D|, motif 10001011111000, ft 1001111: the authors' r and a tuned one",
    source="Parshakova et al. 2019, Figure 2(c) and Table 3, extended to less data",
    # Both starts share data and seed, so that they can be compared in pairs.
    grid=gam_grid(
        {
            "runs": {
                scale: [{"size": size, "seed": seed} for size, seeds in sizes.items() for seed in range(seeds)]
                for scale, sizes in SEEDS.items()
            },
            "recipe": ("authors_then_ours", "tuned"),
        },
        exact=True,
    ),
    run=run_cell,
    figures=[
        lambda results: Figures(ENTROPY, by=KEYS)(results)[:1],
        Figures(
            *(replace(one, paper=PAPER) if one.name == "CE(π)/H" else one for one in STANDARD),
            Figure(name=DIFFERENCE, at=lambda run: float(cost("π")(run)["value"] - cost("r")(run)["value"])),
            by=KEYS,
        ),
        distractors,
    ],
    tables=[
        Layout(rows=("size",), columns=("recipe", "figure"), figures=figures, names=NAMES, caption=caption)
        for figures, caption in (
            (("CE(r)/H", "CE(π)/H", DIFFERENCE), "Cross-entropy over entropy:"),
            (("motif frequency of r", "motif frequency of π"), "How often the motif is drawn:"),
            (("ℓ1_mom of r", "ℓ1_mom of π"), "Distance of the features' moments from the truth:"),
        )
    ],
    plots=[
        Curves(
            of={before: NAMES[start], after: f"π from {NAMES[start]}"},
            where={"recipe": start},
            x="size",
            x_label="|D|",
            y_label=label,
            title=f"{label}, from the {NAMES[start]}",
            dashed=(before,),
            levels={"the language": 1.0} if before == "CE(r)/H" else {},
            log_x=True,
        )
        for before, after, label in (
            ("CE(r)/H", "CE(π)/H", "CE/H, exact"),
            ("motif frequency of r", "motif frequency of π", "motif frequency"),
        )
        for start in ("authors_then_ours", "tuned")
    ],
    claims=Claim(says="π has a lower cross-entropy than the r it came from", figure=DIFFERENCE, below=0.0),
    reading=replace(
        READING,
        elsewhere=lambda cells: "other settings",
        departures=more_departures,
        shared="A seed decides the data, the first weights and the draws: an interval over seeds holds the errors of "
        "all three. Cross-entropies are exact, over all strings of the language.",
    ),
)
