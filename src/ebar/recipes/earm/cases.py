"""Table 12 of Wang et al. 2022: translations side by side, what differs from the reference in italics."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import combinations

from ebar.recipes.earm.tables import RUNS, systems
from ebar.recipes.earm.translation import KEPT, READING, SCHEDULED, SMOOTHED, translation_grid
from ebar.recipes.earm.twins import BASE, EARM, PAIRED, PAPER, paired_figures
from ebar.recipes.layout import list_of_figures
from ebar.recipes.pieces import Figures, Layout, Points, Recipe, Result, Row
from ebar.recipes.rows import chosen

# The paper's Baseline, Baseline + S.S. and Ours.
CASES_OF = {"base": (SMOOTHED, BASE), "base + scheduled sampling": (SCHEDULED, BASE), "E-ARM": (SMOOTHED, EARM)}
SHOWN = 8
DIFFERENT = "share of words that differ from the reference"


def unmatched_share(texts: Sequence[str], references: Sequence[str]) -> float:
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


def most_different(translations: Sequence[Sequence[str]], most: int = SHOWN) -> list[int]:
    """Sentences whose translations are least alike, whichever is the best: nobody's choice but theirs."""
    distances = [
        sum(unmatched_share([one], [other]) for one, other in combinations(alike, 2))
        for alike in zip(*translations, strict=True)
    ]
    return sorted(range(len(distances)), key=lambda place: -distances[place])[:most]


def _cases(results: Sequence[Result]) -> list[Row]:
    """Of the first seed, the sentences that systems differ most on."""
    seed = min(cell["seed"] for cell, _ in results)
    runs = {cell["variant"]: result for cell, result in results if cell["seed"] == seed}
    texts = {system: runs[variant]["twins"][twin]["texts"] for system, (variant, twin) in CASES_OF.items()}
    rows = []
    for number, place in enumerate(most_different(list(texts.values())), 1):
        source, reference = (runs[SMOOTHED][side][place] for side in ("sources", "references"))
        shown = {"source": source, "reference": reference}
        shown |= {system: marked(own[place], reference) for system, own in texts.items()}
        for system, text in shown.items():
            value = unmatched_share([texts[system][place]], [reference]) if system in texts else None
            rows.append(Row(name=f"case {number}", settings={"system": system, "text": text}, value=value))
    return rows


CASES = Recipe(
    title="Translations side by side: base, scheduled sampling, E-ARM",
    source=f"{PAPER}, Table 12 (IWSLT14); the runs of earm/table1, the sentences on which systems differ most",
    grid=translation_grid((SMOOTHED, SCHEDULED), ["de→en"]),
    figures=[
        Figures(
            *paired_figures(DIFFERENT, "system", dict.fromkeys(list(CASES_OF)[1:], "base"), at="different"),
            by=("system",),
            parts=lambda cell, result: (
                (part, {"different": unmatched_share(twin["texts"], result["references"])})
                for part, twin in systems(CASES_OF)(cell, result)
            ),
        ),
        _cases,
    ],
    tables=[
        Layout(rows=("system",), figures=(DIFFERENT, DIFFERENT + PAIRED)),
        lambda rows, elsewhere: list_of_figures(chosen(rows, "case *", {})),
    ],
    plots=[
        Points(of=[figure], label="{system}", title=figure, x_label="share")
        for figure in (DIFFERENT, DIFFERENT + PAIRED)
    ],
    reading=replace(
        READING,
        ranges={DIFFERENT: (0.0, 1.0), DIFFERENT + PAIRED: (-1.0, 1.0)},
        departures=lambda cells: [
            f"Shares are of the {KEPT} longest test sentences, on which systems do worse than on most. Cases are those "
            "of the first seed on which the systems' translations are least alike."
        ],
    ),
    **RUNS,
)
