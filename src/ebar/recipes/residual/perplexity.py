"""Perplexities of the joint models as intervals, beside the base's, RALM's and BALM's."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from ebar.recipes.figures import crossed, found, over_seeds
from ebar.recipes.pieces import Caption, Cell, Claim, Figure, Figures, Layout, Points, Recipe, Result, Row
from ebar.recipes.residual import reading
from ebar.recipes.residual.cells import seeds_of_energy, sizes
from ebar.recipes.residual.reading import BASES, BY_TASK, MODEL, NAMES, RUNS, TASK, by_task, cell_of, energy_results
from ebar.types import Estimate

PERPLEXITY = "perplexity per token"
DIFFERENCE = "nats per token − the base LM's"
ACCURACY = "held-out class accuracy of the energy"
MOVED = "nats that log Z moves by when draws are doubled"
LIGHT = "share of the prefixes with light weights"
BASE, RALM, BALM, UNIT, BIT_BASE, BIT_MED, BASE_STAR, BOUNDED, LARGE_STAR = NAMES.values()
# “Estimated Perplexities”, in the paper's own tokens; of BiT from scratch on the Toronto Books it says nothing.
THEIRS = {
    "cc-news": {
        BASE: "14.89", RALM: "14.89", BALM: "13.92", UNIT: "13.81–13.82", BIT_BASE: "13.01–13.03",
        BIT_MED: "12.38–12.42", BASE_STAR: "12.93–12.95", LARGE_STAR: "12.10–12.16",
    },
    "toronto-books": {
        BASE: "18.14", RALM: "18.17", BALM: "18.24", UNIT: "17.46–17.48", BASE_STAR: "16.17–16.18",
        LARGE_STAR: "15.17–15.22",
    },
}  # fmt: skip
ALIKE = {"gmb-news": "cc-news", "gutenberg-novels": "toronto-books"}  # our corpora, and the paper's of that kind
# What the paper's table says, each on every text of which it has both figures: the first is below the second.
CLAIMS = (
    (UNIT, BASE, "an energy that reads as the base does lowers the perplexity"),
    (BIT_BASE, BASE, "so does a bidirectional one from scratch"),
    (BIT_MED, BIT_BASE, "the larger bidirectional one more"),
    (BASE_STAR, BASE, "so does a pretrained one"),
    (LARGE_STAR, BASE_STAR, "the larger pretrained one more"),
    (BASE_STAR, BALM, "a pretrained energy is worth more than as large a language model"),
    (UNIT, RALM, "normalising whole texts is worth more than normalising every token"),
)
PAIRED = "nats per token, {one} − {other}"
ELSEWHERE = (
    "Measured here is the pretrained energy that two cores have time for. RALM, BALM, UniT, BiT from scratch, "
    "BiT-Large* and the novels take two hours more: residual/sizes compares them, and what is not measured here is "
    "asked there."
)


def _rivals(cell: Cell, result: dict[str, Any]) -> list[Result]:
    """The base and the plain models of a cell, as runs of their own."""
    return [
        ({**reading.row_settings(cell, kind), "parameters": rival["parameters"]}, rival)
        for kind, rival in result["rivals"].items()
    ]


RIVALS = Figures(
    Figure(name=PERPLEXITY, at=lambda rival: math.exp(math.fsum(rival["nats"]) / sum(rival["tokens"])),
           bare=True, paper=lambda settings: _paper(settings)),
    by=(*MODEL, "parameters"), parts=_rivals,
)  # fmt: skip


def joint_perplexity(run: Mapping[str, Any]) -> Estimate:
    """Of a run, with the interval of Z on its prefixes."""
    value, low, high = (float(run["evaluation"]["perplexity"][name]) for name in ("value", "low", "high"))
    return Estimate(value, low, high, math.nan)


def _paper(settings: Mapping[str, Any]) -> str | None:
    """The paper's figure of the same text."""
    own = settings["base"] == BASES["transformer"]
    return THEIRS.get(settings["corpus"], {}).get(settings["model"]) if own else None


def _differences(results: Sequence[Result]) -> Iterator[Row]:
    """From the base on the same prefixes. Seeds of an energy share their prefixes: the errors of both count."""
    for cell, result in by_task(results):
        base = result["rivals"]["base"]
        for kind, rival in result["rivals"].items():
            if rival is not base:
                gains = [reading.less(rival["nats"], base["nats"])]
                yield reading.over_both(DIFFERENCE, reading.row_settings(cell, kind), gains, base["tokens"])
        for kind, runs in result["energies"].items():
            estimates = [found(run, "evaluation.perplexity.difference") for run in runs]
            row = over_seeds(
                DIFFERENCE, reading.row_settings(cell, kind), [one.value for one in estimates], single=estimates[0],
                warning=estimates[0].warning,
            )  # fmt: skip
            if len(runs) > 1:
                several = [run["gains"] for run in runs]
                both, value = crossed(several, base["tokens"]), float(row.value or 0.0)
                over = f"{len(runs)} energy seeds and {len(base['tokens'])} prefixes, which they share"
                low, high = value - (both.value - both.low), value + (both.high - both.value)
                row = replace(row, low=low, high=high, over=over, values=several)
            yield row


def pairs(results: Sequence[Result]) -> Iterator[Row]:
    """The paper's comparisons, paired over prefixes; both errors count where seeds vary."""
    for cell, result in by_task(results):
        base = result["rivals"]["base"]
        about = {"base": BASES[cell["base"]], "corpus": cell["corpus"]}
        runs = {NAMES[kind]: [reading.less(one["nats"], base["nats"])] for kind, one in result["rivals"].items()}
        runs |= {NAMES[kind]: [run["gains"] for run in own] for kind, own in result["energies"].items()}
        for one, other, _ in CLAIMS:
            if one in runs and other in runs:
                name, theirs = PAIRED.format(one=one, other=other), _their_difference(cell, one, other)
                several = [reading.less(a, runs[other][seed % len(runs[other])]) for seed, a in enumerate(runs[one])]
                yield reading.over_both(name, about, several, base["tokens"], document=theirs)


def _their_difference(cell: Cell, one: str, other: str) -> float | None:
    """The paper's, from the middles of its intervals, on text of that kind."""
    corpus = str(cell["corpus"])
    known = THEIRS.get(ALIKE.get(corpus, corpus), {})
    if cell["base"] != "transformer" or one not in known or other not in known:
        return None
    middles = [fmean(map(float, known[model].split("–"))) for model in (one, other)]
    return round(math.log(middles[0] / middles[1]), 4)


def notes(rows: Sequence[Row]) -> list[str]:
    """How to read the intervals, and what the data are."""
    said = [
        "A perplexity's interval is for the prefixes given: from the lower confidence limit of T to the upper one of "
        "2J − T. It is believed only where weights are light (k̂ < 0.7, or with a bounded energy an effective sample "
        "size of 30, for 95 % of the prefixes) and doubling the draws moves log Z by less than 0.05 nats; a certified "
        "one holds whatever the weights. Whether other prefixes would say the same is the question of “"
        f"{DIFFERENCE}”."
    ]
    corpora = {row.settings["corpus"] for row in rows}
    return said + [
        f"The paper's perplexities, on {theirs} and per token of its own vocabulary, are not to be set beside those on "
        f"{ours}: {', '.join(f'{model} {figure}' for model, figure in THEIRS[theirs].items())}."
        for ours, theirs in ALIKE.items()
        if ours in corpora
    ]


def _seeds(cells: Sequence[Cell]) -> list[str]:
    """What one seed is, where energies have several."""
    seeds = Counter[str]()
    for cell in cells:
        for kind in cell["energies"]:
            seeds[f"{BASES[cell['base']]} on {cell['corpus']}, {NAMES[kind]}"] += len(seeds_of_energy(cell, kind))
    counts = "; ".join(f"{energy}: {count}" for energy, count in seeds.items())
    return [
        f"The base, its rivals and the draws for Z have one seed each. Seeds of each energy: {counts}.",
        *([] if any("unit" in cell["energies"] for cell in cells) else [ELSEWHERE]),
    ]


def _items(row: Row, cells: Sequence[Cell]) -> str:
    """What the intervals are over, row by row."""
    cell = cell_of(row, cells)
    if row.name == PERPLEXITY:
        return f"{cell['draws']} draws for each Z, on these {cell['prefixes']} prefixes and no others"
    if row.name == ACCURACY:
        return f"{cell['energy_seeds']} energy seeds"
    return f"{cell['prefixes']} prefixes, one energy seed"


RECIPE = Recipe(
    title="Perplexity of a language model with a discriminator as part of it",
    source="Deng et al. 2020, “Estimated Perplexities” (CC-News, Toronto Books); at scale cpu GMB news and novels",
    figures=[
        lambda results: RIVALS(by_task(results)),
        Figures(
            Figure(name=PERPLEXITY, at=joint_perplexity, warns="evaluation.perplexity.verdict", paper=_paper),
            by=(*MODEL, "energy seed", "parameters"), parts=energy_results,
        ),
        Figures(
            Figure(name=MOVED, at="evaluation.perplexity.moved", bare=True),
            Figure(name=LIGHT, at="evaluation.perplexity.share_light", bare=True),
            by=(*MODEL, "energy seed"), parts=energy_results,
        ),
        lambda results: list(_differences(results)),
        lambda results: list(pairs(results)),
        Figures(Figure(name=ACCURACY, at="held_out.accuracy"), by=MODEL, parts=energy_results),
    ],
    tables=[
        Layout(rows=("model", "energy seed"), columns=TASK, figures=[PERPLEXITY], caption=f"{PERPLEXITY}:"),
        Layout(rows=("model",), columns=TASK, figures=[DIFFERENCE], caption=f"{DIFFERENCE}:"),
        Layout(rows=("figure",), columns=TASK, figures=["nats per token, *"], caption="The paper's comparisons:"),
        Layout(rows=MODEL, figures=[ACCURACY]),
    ],
    claims=[
        Claim(says=f"{says} (paper: {one} below {other})", figure=PAIRED.format(one=one, other=other), below=0.0)
        for one, other, says in CLAIMS
    ],
    plots=Points(of=[DIFFERENCE], label="{model}", x_label="nats per token − base", **BY_TASK),
    notes=notes,
    reading=Caption(
        items=_items, ranges={ACCURACY: (0.0, 1.0)}, departures=_seeds,
        elsewhere=lambda cells: "CC-News, Toronto Books" if any(cell["corpus"] in ALIKE for cell in cells) else None,
    ),
    **RUNS,
)  # fmt: skip

SIZES = replace(RECIPE, title="Perplexity by the size of the energy, from scratch and pretrained", grid=sizes)
