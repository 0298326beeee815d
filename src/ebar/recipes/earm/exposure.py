"""Table 8 of Wang et al. 2022: how often the true word is likelier under E-ARM than under its base."""

from collections.abc import Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any

from ebar.recipes.earm.tables import RUNS
from ebar.recipes.earm.translation import PAIRS, READING, SMOOTHED, translation_grid
from ebar.recipes.earm.twins import PAPER
from ebar.recipes.figures import alone, found
from ebar.recipes.pieces import Cell, Claim, Figure, Figures, Layout, Points, Recipe, Result

# Direction → N / total on IWSLT14.
TABLE8_PAPER = {
    "de→en": 0.6412, "en→de": 0.6312, "en→it": 0.6331, "it→en": 0.5976, "es→en": 0.6833, "en→es": 0.6743,
}  # fmt: skip
OWN, WORDS = "own decoding", "words"
PARTS = {"training pairs": "train", "test pairs": "test"}
SHARE, EXCESS = "share of true words or tokens likelier under E-ARM", "the same, minus one half"
DOCUMENTS = {"pairs": "training pairs", "of": WORDS, "prefix": OWN}  # what the paper counts


def _each(cell: Cell, result: dict[str, Any]) -> Iterator[Result]:
    """A run as one for each part of the data, unit and prefix."""
    for pairs, part in PARTS.items():
        for of, own in result["exposure"][part].items():
            for prefix, name in ((OWN, "own"), ("reference", "gold")):
                counted = {"share": own[name], "tested": own[f"{name}_tested"]}
                yield {**cell, "pairs": pairs, "of": of, "prefix": prefix}, counted


def _told(less: float) -> dict[tuple[str, ...], float]:
    return {(direction, *DOCUMENTS.values()): round(share - less, 4) for direction, share in TABLE8_PAPER.items()}


TABLE8 = Recipe(
    title="Exposure bias: how often the true word is likelier under E-ARM",
    source=f"{PAPER}, Table 8 (words of 1,000 training pairs of IWSLT14); the runs of earm/table1",
    grid=translation_grid([SMOOTHED]),
    figures=Figures(
        Figure(name=SHARE, at="share", paper=_told(0.0), range=(0.0, 1.0)),
        Figure(
            name=EXCESS, paper=_told(0.5),
            at=lambda counted: found(counted, "share").mapped(lambda share: share - 0.5),
        ),
        # What E-ARM owes to bearing its own mistakes.
        Figure(
            name="paired difference of the shares", at=lambda counted: found(counted, "share").value,
            where={"prefix": OWN}, minus={"prefix": "reference"}, about={"prefix": f"{OWN} − reference"},
        ),
        Figure(name="tested, mean over seeds", at="tested", summary=alone(fmean)),
        by=("direction", "pairs", "of", "prefix"), parts=_each,
    ),
    tables=[
        Layout(rows=("pairs", "of", "prefix"), columns=("direction", "figure"), figures=(SHARE, "tested*")),
        Layout(rows=("pairs", "of"), columns=("direction",), figures=("paired*",), caption="own decoding − reference"),
    ],
    plots=Points(of=[EXCESS], label="{direction}, {pairs}, {of}, {prefix}", title=SHARE, x_label="share − ½"),
    claims=[
        Claim(says="after its own decoding, most words of training pairs are", figure=EXCESS, above=0.0,
              where=DOCUMENTS),
        Claim(says="and so are most of test pairs", figure=EXCESS, above=0.0,
              where={**DOCUMENTS, "pairs": "test pairs"}),
    ],
    reading=replace(
        READING,
        items=f"{PAIRS:,} sentence pairs, one training",
        elsewhere=lambda cells: None if cells[0]["corpus"] == "iwslt14" else "words of training pairs of IWSLT14",
        departures=lambda cells: [
            "The paper's text says that it counts words of 1,000 training pairs, the caption of its table speaks of "
            "test sets: both are shown, in words (what stands between blanks) and in tokens; their number in the "
            "paper, some 22 a sentence, fits either. Before a word each model sees as many words of its own greedy "
            "decoding as precede it in the reference; words past the end of a decoding are not tested.",
            "A model that was trained on a pair has seen its words: a share on training pairs compares how well both "
            "models fit them, too, and not their bearing of mistakes alone. The difference between the shares after "
            "their own decoding and after the reference is free of that.",
        ],
    ),
    **RUNS,
)  # fmt: skip
