"""Table 12: translations side by side, what differs from the reference set in italics."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import combinations
from typing import Any

from ebar.recipes.earm.readings import VARIANTS
from ebar.recipes.earm.translation import KEPT, run_cell
from ebar.recipes.earm.translation_settings import READING
from ebar.recipes.earm.translation_settings import cells as all_cells
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Row
from ebar.recipes.statistics import as_dot, over_seeds
from ebar.report.plots import Dots

# Name → variant of a run, branch of it: the document's Baseline, Baseline + S.S. and Ours.
SYSTEMS = {
    "base": ("label smoothing", "base"),
    "base + scheduled sampling": ("scheduled sampling", "base"),
    "E-ARM": ("label smoothing", "earm"),
}
SHOWN = 8
SHARE = "share of words that differ from the reference"
DIFFERENCE = SHARE + ", paired difference"


def cells(scale: str) -> list[Cell]:
    """Those of Table 1 with label smoothing, de→en."""
    return [cell for cell in all_cells(scale, variants=VARIANTS) if cell["direction"] == "de→en"]


def figures(results: Sequence[Result]) -> list[Row]:
    """The share of differing words over all that was written down, then the sentences systems differ most on."""
    found = {(cell["variant"], cell["seed"]): result for cell, result in results}
    seeds = sorted({seed for _, seed in found})
    rows, shares = [], {}
    for system, (variant, branch) in SYSTEMS.items():
        shares[system] = [
            share(found[variant, seed]["branches"][branch]["texts"], found[variant, seed]["references"])
            for seed in seeds
        ]
        rows.append(over_seeds(SHARE, {"system": system}, shares[system]))
    for system in list(SYSTEMS)[1:]:
        differences = [one - base for one, base in zip(shares[system], shares["base"], strict=True)]
        rows.append(over_seeds(DIFFERENCE, {"system": f"{system} − base"}, differences))
    return rows + _cases(found, seeds[0])


def _cases(found: Mapping[tuple[str, int], Mapping[str, Any]], seed: int) -> list[Row]:
    first = found[VARIANTS[0], seed]
    texts = {system: found[variant, seed]["branches"][branch]["texts"] for system, (variant, branch) in SYSTEMS.items()}
    rows = []
    for number, place in enumerate(most_different(list(texts.values())), 1):
        reference = first["references"][place]
        told = {"source": first["sources"][place], "reference": reference}
        shown = told | {system: marked(own[place], reference) for system, own in texts.items()}
        for system, text in shown.items():
            value = share([texts[system][place]], [reference]) if system in texts else None
            settings = {"system": system, "text": text}
            rows.append(Row(name=f"case {number}", settings=settings, value=value, low=None, high=None))
    return rows


def most_different(systems: Sequence[Sequence[str]], most: int = SHOWN) -> list[int]:
    """Sentences whose translations are least alike, whichever is the best: nobody's choice but theirs."""
    distances = [
        sum(share([one], [other]) for one, other in combinations(translations, 2))
        for translations in zip(*systems, strict=True)
    ]
    return sorted(range(len(distances)), key=lambda place: -distances[place])[:most]


def share(texts: Sequence[str], references: Sequence[str]) -> float:
    """Words of both sides that find no partner in order on the other, of all words."""
    alone = total = 0
    for text, reference in zip(texts, references, strict=True):
        words, others = text.split(), reference.split()
        partners = sum(block.size for block in _matcher(words, others).get_matching_blocks())
        total += len(words) + len(others)
        alone += len(words) + len(others) - 2 * partners
    return alone / max(total, 1)


def marked(text: str, reference: str) -> str:
    """The text with *…* around words that the reference has not, or not there."""
    words = text.split()
    parts = []
    for kind, begin, end, _, _ in _matcher(words, reference.split()).get_opcodes():
        if begin < end:
            part = " ".join(words[begin:end])
            parts.append(part if kind == "equal" else f"*{part}*")
    return " ".join(parts)


def _matcher(words: list[str], others: list[str]) -> SequenceMatcher[str]:
    return SequenceMatcher(None, words, others, autojunk=False)


def panels(rows: Sequence[Row]) -> list[Dots]:
    """The shares, and what changes them."""
    own = {row.settings["system"]: as_dot(row) for row in rows if row.name == SHARE}
    differences = {row.settings["system"]: as_dot(row) for row in rows if row.name == DIFFERENCE}
    return [
        Dots(title="Words that differ from the reference", x_label="share", rows=own),
        Dots(title="Paired over seeds", x_label="difference of shares", rows=differences),
    ]


RECIPE = Experiment(
    title="Translations side by side: base, scheduled sampling, E-ARM",
    source="document 003, Table 12 (IWSLT14); the runs of earm/table1, the sentences on which systems differ most",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    runs="earm/translation",
    reading=replace(
        READING,
        ranges={SHARE: (0.0, 1.0), DIFFERENCE: (-1.0, 1.0)},
        departures=lambda cells: [
            f"Shares are of the {KEPT} longest test sentences, on which systems do worse than on most. Cases are those "
            "of the first seed on which the systems' translations are least alike."
        ],
    ),
)
