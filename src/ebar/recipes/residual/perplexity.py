"""Perplexities of the joint models as intervals, beside the base's, RALM's and BALM's."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ebar.recipes.crossed import Interval, crossed, over_items, together
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Reading, Recorded, Row
from ebar.recipes.residual.distilled import JOINT
from ebar.recipes.residual.readings import BASES, NAMES, by_task, cell_of, named
from ebar.recipes.residual.run import run_cell
from ebar.recipes.residual.settings import cells
from ebar.recipes.statistics import as_dot, as_estimate, over_seeds
from ebar.report.plots import Dots

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


def figures(results: Sequence[Result]) -> list[Row]:
    """Each model's perplexity, and how far the joint models are from the base."""
    rows = []
    for cell, result in results:
        for kind, rival in result["rivals"].items():
            value = math.exp(math.fsum(rival["nats"]) / sum(rival["tokens"]))
            rows.append(
                Row(
                    name=PERPLEXITY,
                    settings={**named(cell, kind), "parameters": rival["parameters"]},
                    value=value,
                    low=None,
                    high=None,
                    document=_told(cell, kind),
                )
            )
        for kind in ("ralm", "balm"):
            if kind in result["rivals"]:
                rows.append(_rival(cell, kind, result["rivals"]))
        for kind, runs in result["energies"].items():
            rows += _joint(cell, kind, runs, result["rivals"]["base"]["tokens"])
    return rows


def _rival(cell: Any, kind: str, rivals: Mapping[str, Any]) -> Row:
    """How far a plain model is from the base on the same prefixes."""
    tokens = rivals["base"]["tokens"]
    gains = [own - base for own, base in zip(rivals[kind]["nats"], rivals["base"]["nats"], strict=True)]
    found = over_items(gains, tokens)
    over = f"{len(tokens)} prefixes, one seed"
    return Row(name=DIFFERENCE, settings=named(cell, kind), value=found.value, low=found.low, high=found.high, over=over)


def _joint(cell: Any, kind: str, runs: list[dict[str, Any]], tokens: list[int]) -> Iterable[Row]:
    about = named(cell, kind)
    for seed, run in enumerate(runs):
        joint = run["joint"]
        yield Row(
            name=PERPLEXITY,
            settings={**about, "energy seed": seed, "parameters": run["parameters"]},
            value=float(joint["value"]),
            low=float(joint["low"]),
            high=float(joint["high"]),
            document=_told(cell, kind),
            warning=joint["verdict"],
        )
        yield Row(name=MOVED, settings={**about, "energy seed": seed}, value=float(joint["moved"]), low=None, high=None)
        yield Row(
            name="share of the prefixes with k̂ < 0.7", settings={**about, "energy seed": seed},
            value=float(joint["share_light"]), low=None, high=None,
        )  # fmt: skip
    differences = [float(run["joint"]["difference"]["value"]) for run in runs]
    single = as_estimate(runs[0]["joint"]["difference"])
    row = over_seeds(DIFFERENCE, about, differences, single=single, warning=None if single is None else single.warning)
    yield row if len(runs) == 1 else _with_both(row, [run["gains"] for run in runs], tokens)
    accuracies = [float(run["held_out"]["accuracy"]) for run in runs]
    yield over_seeds(ACCURACY, about, accuracies)


def _with_both(row: Row, gains: list[list[float]], tokens: list[int]) -> Row:
    """Seeds of an energy are measured on the same prefixes: the errors of both are in the interval."""
    found = crossed(gains, tokens)
    assert row.value is not None
    low, high = row.value - (found.value - found.low), row.value + (found.high - found.value)
    over = f"{len(gains)} energy seeds and {len(tokens)} prefixes, which they share"
    return replace(row, low=low, high=high, over=over, values=gains)


def _told(cell: Any, kind: str) -> str | None:
    return DOCUMENT.get((cell["corpus"], kind)) if cell["base"] == "transformer" else None


def correct(recorded: Recorded) -> list[Row]:
    """A record of the first format: the document's figures of other text left out, and both errors in differences.

    Student's interval over three seeds was called “paired over prefixes” there. The error of prefixes, of the first
    seed, stands in the record of `residual/distilled`, which is read off the same runs.
    """
    kinds = {name: kind for kind, name in NAMES.items()}
    alone = {
        (row.settings["corpus"], row.settings["base"], row.settings["model"]): row
        for row in recorded.beside("residual/distilled")
        if row.settings["of"] == JOINT
    }
    rows = []
    for row in recorded.rows:
        cell = cell_of(row, recorded.cells)
        row = replace(row, document=_told(cell, kinds[row.settings["model"]]) if row.name == PERPLEXITY else None)
        if row.name == PERPLEXITY and row.warning in ("below", "above"):
            row = replace(row, warning=f"{row.warning} the base's, on these prefixes")
        if row.name == OLD_DIFFERENCE:
            row = replace(row, name=DIFFERENCE)
            if cell["energy_seeds"] > 1:
                row = _with_first(row, alone.get(tuple(row.settings.values())), cell)
        rows.append(row)
    return rows


def _with_first(row: Row, first: Row | None, cell: Cell) -> Row:
    seeds = f"{cell['energy_seeds']} energy seeds"
    if first is None:
        lack = "the error of prefixes, which the seeds share, is not in the interval"
        return replace(row, over=seeds, warning=lack)
    found = together(*(Interval(float(one.value or 0), float(one.low or 0), float(one.high or 0)) for one in (row, first)))
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


def panels(rows: Sequence[Row]) -> list[Dots]:
    """Each model − base in nats, by base and corpus."""
    return [
        Dots(
            title=title,
            x_label="nats per token − base",
            rows={str(row.settings["model"]): as_dot(row) for row in here if row.name == DIFFERENCE},
        )
        for title, here in by_task(rows).items()
    ]


def notes(rows: Sequence[Row]) -> list[str]:
    """Which order the energies come in and whether it is a finding, beside the document's; and what the data may be."""
    said = []
    for title, here in by_task(rows).items():
        said += [*_order(title, here), *_beside_balm(title, here), *_twins(title, here)]
        if here[0].settings["base"] == "SmolLM2-135M":
            said.append("The novels are probably in SmolLM2's training data: its perplexity on them flatters it.")
    said += [
        "A perplexity's interval is for the prefixes given: from the lower confidence limit of T to the upper one of "
        "2J − T. “Below” is said only where k̂ < 0.7 for 95 % of the prefixes and doubling the draws moves log Z by "
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
            told = ", ".join(f"{NAMES[kind]} {figure}" for (corpus, kind), figure in DOCUMENT.items() if corpus == theirs)
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
        "every joint model below BALM."
    )
    if NAMES["balm"] not in gains:
        return [f"{text} The record has no interval for BALM: its cost of each prefix was not kept."]
    unclear = [model for model in above if _meet(gains[NAMES["balm"]], gains[model])]
    return [text + (f" The intervals of BALM and {' and '.join(unclear)} overlap: no finding." if unclear else "")]


def _twins(title: str, rows: Sequence[Row]) -> list[str]:
    """Two energies whose accuracies agree to the last digit: chance, or a fault that single figures would show."""
    found = [row for row in rows if row.name == ACCURACY and row.low is not None]
    return [
        f"{title}: the accuracies of {one.settings['model']} and {other.settings['model']} over seeds agree to the last "
        "digit, ends included. Whether by chance cannot be told from means."
        for place, one in enumerate(found)
        for other in found[place + 1 :]
        if (one.value, one.low, one.high) == (other.value, other.low, other.high)
    ]


def _meet(one: Row, other: Row) -> bool:
    ends = (one.low, one.high, other.low, other.high)
    if any(end is None for end in ends):
        return True
    return bool(one.low <= other.high and other.low <= one.high)  # type: ignore[operator]


RECIPE = Experiment(
    title="Perplexity of a language model with a discriminator as part of it",
    source="document 002, “Estimated Perplexities” (CC-News, Toronto Books); at scale cpu GMB news and novels",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    notes=notes,
    runs="residual/text",
    reading=Reading(items=items, ranges={ACCURACY: (0.0, 1.0)}, correct=correct, departures=departures),
)
