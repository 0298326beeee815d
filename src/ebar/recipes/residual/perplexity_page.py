"""What the page of `residual/perplexity` says: which order the energies come in, and over what its intervals are."""

import math
from collections.abc import Sequence
from dataclasses import replace

from ebar.recipes.crossed import Interval, together
from ebar.recipes.recipe import Cell, Reading, Recorded, Row
from ebar.recipes.residual.readings import BASES, JOINT, NAMES, about, by_task, cell_of, doubts

PERPLEXITY = "perplexity per token"
DIFFERENCE = "nats per token − the base LM's"
ACCURACY = "held-out class accuracy of the energy"
MOVED = "nats that log Z moves by when draws are doubled"
OLD_DIFFERENCE = "nats per token, joint − base LM, paired over prefixes"  # its name in records of the first format
# In the document's own tokens; of BiT on the Toronto Books it says nothing.
DOCUMENT = {
    ("cc-news", "base"): "14.89", ("cc-news", "ralm"): "14.89", ("cc-news", "balm"): "13.92",
    ("cc-news", "unit"): "13.81–13.82", ("cc-news", "bit"): "13.01–13.03", ("cc-news", "pretrained"): "12.93–12.95",
    ("toronto-books", "base"): "18.14", ("toronto-books", "ralm"): "18.17", ("toronto-books", "balm"): "18.24",
    ("toronto-books", "unit"): "17.46–17.48", ("toronto-books", "pretrained"): "16.17–16.18",
}  # fmt: skip
ALIKE = {"gmb-news": "cc-news", "gutenberg-novels": "toronto-books"}  # our corpora, and the document's of that kind
ORDER = ("pretrained", "bit", "unit")  # best first, where the document has all three


def told(cell: Cell, kind: str) -> str | None:
    """The document's figure of the same text."""
    return DOCUMENT.get((cell["corpus"], kind)) if cell["base"] == "transformer" else None


def correct(recorded: Recorded) -> list[Row]:
    """A record of the first format: the document's figures of other text left out, and both errors in differences.

    Student's interval over three seeds was called “paired over prefixes” there. The error of prefixes, of the first
    seed, stands in the record of `residual/distilled`, which is read off the same runs.
    """
    kinds = {name: kind for kind, name in NAMES.items()}
    alone = {about(row): row for row in recorded.beside("residual/distilled") if row.settings["of"] == JOINT}
    unsure = doubts(recorded.rows)
    rows = []
    for row in recorded.rows:
        cell = cell_of(row, recorded.cells)
        row = replace(row, document=told(cell, kinds[row.settings["model"]]) if row.name == PERPLEXITY else None)
        if row.name == PERPLEXITY and row.warning in ("below", "above"):
            row = replace(row, warning=f"{row.warning} the base's, on these prefixes")
        if row.name == OLD_DIFFERENCE:
            row = replace(row, name=DIFFERENCE, warning=row.warning or unsure.get(about(row)))
            if cell["energy_seeds"] > 1:
                row = _with_first(row, alone.get(about(row)), cell)
        rows.append(row)
    return rows


def _with_first(row: Row, first: Row | None, cell: Cell) -> Row:
    seeds = f"{cell['energy_seeds']} energy seeds"
    if first is None:
        lack = "the error of prefixes, which the seeds share, is not in the interval"
        return replace(row, over=seeds, warning=lack)
    found = together(
        *(Interval(float(one.value or 0), float(one.low or 0), float(one.high or 0)) for one in (row, first))
    )
    over = f"{seeds} and {cell['test_chunks']} prefixes, which they share (the prefixes' error is that of seed 0)"
    return replace(row, low=found.low, high=found.high, over=over)


def items(row: Row, cells: Sequence[Cell]) -> str:
    """What the intervals are over, row by row."""
    cell = cell_of(row, cells)
    if row.name == PERPLEXITY:
        return f"{cell['draws']} draws for each Z, on these {cell['test_chunks']} prefixes and no others"
    if row.name == ACCURACY:
        return f"{cell['energy_seeds']} energy seeds"
    return f"{cell['test_chunks']} prefixes, one energy seed"


def notes(rows: Sequence[Row]) -> list[str]:
    """Which order the energies come in and whether it is a finding, beside the document's; and what the data may be."""
    said = []
    for title, here in by_task(rows).items():
        said += [*_order(title, here), *_beside_balm(title, here), *_twins(title, here)]
        if here[0].settings["base"] == "SmolLM2-135M":
            said.append("The novels are probably in SmolLM2's training data: its perplexity on them flatters it.")
    said += [
        "A perplexity's interval is for the prefixes given: from the lower confidence limit of T to the upper one of "
        "2J − T. A verdict is given only where k̂ < 0.7 for 95 % of the prefixes and doubling the draws moves log Z by "
        "less than 0.05 nats; otherwise the page says “not established”. Whether other prefixes would say the same is "
        f"the question of “{DIFFERENCE}”: where its interval holds 0, that is not established.",
    ]
    return said + _document({str(row.settings["corpus"]) for row in rows})


def departures(cells: Sequence[Cell]) -> list[str]:
    """What one seed is, where energies have several."""
    seeds = {f"{BASES[cell['base']]} on {cell['corpus']}": cell["energy_seeds"] for cell in cells}
    counts = "; ".join(f"{title}: {count}" for title, count in seeds.items())
    return [f"The base, its rivals and the draws for Z have one seed each. Seeds of each energy: {counts}."]


def _document(corpora: set[str]) -> list[str]:
    """The document's perplexities are of other text in other tokens: in a sentence, not in a column beside ours."""
    said = []
    for ours, theirs in ALIKE.items():
        if ours in corpora:
            told = ", ".join(
                f"{NAMES[kind]} {figure}" for (corpus, kind), figure in DOCUMENT.items() if corpus == theirs
            )
            said.append(
                f"The document's perplexities, on {theirs} and per token of its own vocabulary, are not to be set "
                f"beside those on {ours}: {told}."
            )
    return said


def _order(title: str, rows: Sequence[Row]) -> list[str]:
    gains = {str(row.settings["model"]): row for row in rows if row.name == DIFFERENCE}
    corpus = str(rows[0].settings["corpus"])
    ours = sorted((NAMES[kind] for kind in ORDER if NAMES[kind] in gains), key=lambda model: gains[model].value or 0.0)
    if len(ours) < 2:
        return []
    text = f"{title}: best first {', '.join(ours)}."
    pairs = [(one, other) for place, one in enumerate(ours) for other in ours[place + 1 :]]
    unclear = [f"{one} and {other}" for one, other in pairs if _meet(gains[one], gains[other])]
    text += (
        f" The intervals of {', of '.join(unclear)} overlap: their order is no finding."
        if unclear
        else " No two intervals overlap."
    )
    told = [NAMES[kind] for kind in ORDER if (ALIKE.get(corpus, corpus), kind) in DOCUMENT and NAMES[kind] in gains]
    known = [model for model in ours if model in told]
    missing = [model for model in ours if model not in told]
    if len(known) > 1:
        text += f" The document, on other text, has {', '.join(told)}" + (", as here" if known == told else "") + "."
    if missing and rows[0].settings["base"] == BASES["transformer"]:
        text += f" Of {' and '.join(missing)} on such text it says nothing."
    if known != told and "BiT" in ours:
        text += (
            " A bidirectional energy from scratch has seen a few hundred thousand tokens here and billions there; one "
            "that starts from the base's own weights begins with what the base knows."
        )
    return [text]


def _beside_balm(title: str, rows: Sequence[Row]) -> list[str]:
    """In the document every joint model is below a plain one of matched size."""
    values: dict[str, list[float]] = {}
    for row in rows:
        if row.name == PERPLEXITY and row.value is not None:
            values.setdefault(str(row.settings["model"]), []).append(row.value)
    means = {model: math.fsum(found) / len(found) for model, found in values.items()}
    balm = means.get(NAMES["balm"])
    above = [NAMES[kind] for kind in ORDER if balm is not None and means.get(NAMES[kind], 0.0) > balm]
    if not above:
        return []
    gains = {str(row.settings["model"]): row for row in rows if row.name == DIFFERENCE}
    text = (
        f"{title}: BALM's perplexity is below that of {' and '.join(above)}, where the document, on other text, has "
        "every joint model of which it has a figure below BALM."
    )
    if NAMES["balm"] not in gains:
        return [f"{text} The record has no interval for BALM: its cost of each prefix was not kept."]
    unclear = [model for model in above if _meet(gains[NAMES["balm"]], gains[model])]
    return [text + (f" The intervals of BALM and {' and '.join(unclear)} overlap: no finding." if unclear else "")]


def _twins(title: str, rows: Sequence[Row]) -> list[str]:
    """Two energies whose accuracies agree to the last digit: chance, or a fault that single figures would show."""
    found = [row for row in rows if row.name == ACCURACY and row.low is not None]
    return [
        f"{title}: the accuracies of {one.settings['model']} and {other.settings['model']} over seeds agree to the "
        "last digit, ends included. Whether by chance cannot be told from means."
        for place, one in enumerate(found)
        for other in found[place + 1 :]
        if (one.value, one.low, one.high) == (other.value, other.low, other.high)
    ]


def _meet(one: Row, other: Row) -> bool:
    ends = (one.low, one.high, other.low, other.high)
    if any(end is None for end in ends):
        return True
    return bool(one.low <= other.high and other.low <= one.high)  # type: ignore[operator]


READING = Reading(items=items, ranges={ACCURACY: (0.0, 1.0)}, correct=correct, departures=departures)
