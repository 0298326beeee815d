"""Perplexities of the joint models as intervals, beside the base's, RALM's and BALM's."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from statistics import fmean
from typing import Any

from ebar.recipes.figures import Figure, Figures, crossed, found, over_items, over_seeds
from ebar.recipes.layout import Layout, Points, chosen, split
from ebar.recipes.recipe import Caption, Cell, Recipe, Result, Row
from ebar.recipes.residual.run import BASES, BY_TASK, MODEL, NAMES, RUNS, TASK, cell_of, energy_results, row_settings
from ebar.types import Estimate

PERPLEXITY = "perplexity per token"
DIFFERENCE = "nats per token − the base LM's"
ACCURACY = "held-out class accuracy of the energy"
MOVED = "nats that log Z moves by when draws are doubled"
LIGHT = "share of the prefixes with k̂ < 0.7"
BASE, RALM, BALM, UNIT, BIT, PRETRAINED = NAMES.values()
# In the paper's own tokens; of BiT on the Toronto Books it says nothing.
THEIRS = {
    "cc-news": {
        BASE: "14.89", RALM: "14.89", BALM: "13.92", UNIT: "13.81–13.82", BIT: "13.01–13.03",
        PRETRAINED: "12.93–12.95",
    },
    "toronto-books": {
        BASE: "18.14", RALM: "18.17", BALM: "18.24", UNIT: "17.46–17.48", PRETRAINED: "16.17–16.18",
    },
}  # fmt: skip
ALIKE = {"gmb-news": "cc-news", "gutenberg-novels": "toronto-books"}  # our corpora, and the paper's of that kind
ORDER = (PRETRAINED, BIT, UNIT)  # best first, where the paper has all three


def _rivals(cell: Cell, result: dict[str, Any]) -> list[Result]:
    """The base and the plain models of a cell, as runs of their own."""
    return [
        ({**row_settings(cell, kind), "parameters": rival["parameters"]}, rival)
        for kind, rival in result["rivals"].items()
    ]


def _perplexity(rival: Mapping[str, Any]) -> float:
    return math.exp(math.fsum(rival["nats"]) / sum(rival["tokens"]))


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
    for cell, result in results:
        base = result["rivals"]["base"]
        count = f"{len(base['tokens'])} prefixes"
        for kind, rival in result["rivals"].items():
            if rival is not base:
                gains = [own - other for own, other in zip(rival["nats"], base["nats"], strict=True)]
                value, low, high = over_items(gains, base["tokens"])
                yield Row(name=DIFFERENCE, settings=row_settings(cell, kind), value=value, low=low, high=high,
                          over=f"{count}, one seed")  # fmt: skip
        for kind, runs in result["energies"].items():
            estimates = [found(run, "evaluation.perplexity.difference") for run in runs]
            row = over_seeds(
                DIFFERENCE, row_settings(cell, kind), [one.value for one in estimates], single=estimates[0],
                warning=estimates[0].warning,
            )  # fmt: skip
            if len(runs) > 1:
                several = [run["gains"] for run in runs]
                both, value = crossed(several, base["tokens"]), float(row.value or 0.0)
                row = replace(
                    row, low=value - (both.value - both.low), high=value + (both.high - both.value),
                    over=f"{len(runs)} energy seeds and {count}, which they share", values=several,
                )  # fmt: skip
            yield row


def notes(rows: Sequence[Row]) -> list[str]:
    """Which order the energies come in and whether it is a finding, beside the paper's; and what the data may be."""
    said = []
    for task in split(rows, TASK):
        here, title = chosen(rows, "*", task), "{base} on {corpus}".format(**task)
        said += [*_order(title, here), *_beside_balm(title, here)]
        if task["base"] == BASES["smollm2"]:
            said.append("The novels are probably in SmolLM2's training data: its perplexity on them flatters it.")
    said.append(
        "A perplexity's interval is for the prefixes given: from the lower confidence limit of T to the upper one of "
        "2J − T. A verdict is given only where k̂ < 0.7 for 95 % of the prefixes and doubling the draws moves log Z by "
        "less than 0.05 nats; otherwise the page says “not established”. Whether other prefixes would say the same is "
        f"the question of “{DIFFERENCE}”: where its interval holds 0, that is not established."
    )
    corpora = {row.settings["corpus"] for row in rows}
    return said + [
        f"The paper's perplexities, on {theirs} and per token of its own vocabulary, are not to be set beside those on "
        f"{ours}: {', '.join(f'{model} {figure}' for model, figure in THEIRS[theirs].items())}."
        for ours, theirs in ALIKE.items()
        if ours in corpora
    ]


def _order(title: str, rows: Sequence[Row]) -> list[str]:
    gains, corpus = _gains(rows), str(rows[0].settings["corpus"])
    ours = sorted((model for model in ORDER if model in gains), key=lambda model: gains[model].value or 0.0)
    if len(ours) < 2:
        return []
    unclear = [f"{one} and {other}" for one, other in combinations(ours, 2) if _meet(gains[one], gains[other])]
    overlap = f"The intervals of {', of '.join(unclear)} overlap: their order is no finding."
    text = f"{title}: best first {', '.join(ours)}. {overlap if unclear else 'No two intervals overlap.'}"
    known = THEIRS.get(ALIKE.get(corpus, corpus), {})
    theirs = [model for model in ORDER if model in known and model in ours]
    same = theirs == [model for model in ours if model in known]
    missing = [model for model in ours if model not in known]
    if len(theirs) > 1:
        text += f" The paper, on other text, has {', '.join(theirs)}{', as here' if same else ''}."
    if missing and rows[0].settings["base"] == BASES["transformer"]:
        text += f" Of {' and '.join(missing)} on such text it says nothing."
    if not same and BIT in ours:
        text += (
            " A bidirectional energy from scratch has seen a few hundred thousand tokens here and billions there; one "
            "that starts from the base's own weights begins with what the base knows."
        )
    return [text]


def _beside_balm(title: str, rows: Sequence[Row]) -> list[str]:
    """In the paper every joint model is below a plain one of matched size."""
    means = {model: fmean([row.value or 0.0 for row in chosen(rows, PERPLEXITY, {"model": model})] or [0.0])
             for model in (*ORDER, BALM)}  # fmt: skip
    above = [model for model in ORDER if means[model] > means[BALM] > 0]
    if not above:
        return []
    gains = _gains(rows)
    unclear = [model for model in above if BALM in gains and _meet(gains[BALM], gains[model])]
    return [
        f"{title}: BALM's perplexity is below that of {' and '.join(above)}, where the paper, on other text, has every "
        "joint model of which it has a figure below BALM."
        + (f" The intervals of BALM and {' and '.join(unclear)} overlap: no finding." if unclear else "")
    ]


def _gains(rows: Sequence[Row]) -> dict[str, Row]:
    return {str(row.settings["model"]): row for row in chosen(rows, DIFFERENCE, {})}


def _meet(one: Row, other: Row) -> bool:
    ends = [-math.inf if row.low is None else row.low for row in (one, other)]
    tops = [math.inf if row.high is None else row.high for row in (one, other)]
    return max(ends) <= min(tops)


def _seeds(cells: Sequence[Cell]) -> list[str]:
    """What one seed is, where energies have several."""
    counts = "; ".join(f"{BASES[cell['base']]} on {cell['corpus']}: {cell['energy_seeds']}" for cell in cells)
    return [f"The base, its rivals and the draws for Z have one seed each. Seeds of each energy: {counts}."]


def _items(row: Row, cells: Sequence[Cell]) -> str:
    """What the intervals are over, row by row."""
    cell = cell_of(row, cells)
    if row.name == PERPLEXITY:
        return f"{cell['draws']} draws for each Z, on these {cell['test_chunks']} prefixes and no others"
    if row.name == ACCURACY:
        return f"{cell['energy_seeds']} energy seeds"
    return f"{cell['test_chunks']} prefixes, one energy seed"


RECIPE = Recipe(
    title="Perplexity of a language model with a discriminator as part of it",
    source="Deng et al. 2020, “Estimated Perplexities” (CC-News, Toronto Books); at scale cpu GMB news and novels",
    figures=[
        Figures(
            Figure(name=PERPLEXITY, at=_perplexity, bare=True, paper=_paper),
            by=(*MODEL, "parameters"), parts=_rivals,
        ),
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
        Figures(Figure(name=ACCURACY, at="held_out.accuracy"), by=MODEL, parts=energy_results),
    ],
    tables=[
        Layout(rows=("model", "energy seed"), columns=TASK, figures=[PERPLEXITY], caption=f"{PERPLEXITY}:"),
        Layout(rows=("model",), columns=TASK, figures=[DIFFERENCE], caption=f"{DIFFERENCE}:"),
        Layout(rows=MODEL, figures=[ACCURACY]),
    ],
    plots=Points(of=[DIFFERENCE], label="{model}", x_label="nats per token − base", **BY_TASK),
    notes=notes,
    reading=Caption(items=_items, ranges={ACCURACY: (0.0, 1.0)}, departures=_seeds),
    **RUNS,
)  # fmt: skip
