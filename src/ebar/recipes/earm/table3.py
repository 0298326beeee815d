"""Table 3: perplexity of a Transformer language model with and without E-ARM."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ebar.recipes.earm.language_modelling import run_twins
from ebar.recipes.earm.language_settings import SCALES, SEEDS, SHARED, cell_for
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Reading, Recorded, Row
from ebar.recipes.statistics import as_dot, grouped, over_seeds
from ebar.report.plots import Dots

DOCUMENT = {"wikitext-103": {"base": 30.56, "earm": 29.89}}
DIFFERENCE = "test nats per token, E-ARM − without, paired"


def cells(scale: str) -> list[Cell]:
    """Every corpus over all seeds."""
    return [cell_for(scale, corpus, seed) for corpus in SCALES[scale] for seed in range(SEEDS[scale])]


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """The base and its twin, which share their history up to the start epoch."""
    return run_twins(cell, folder, {"earm": cell["earm"]})


def nats(result: dict[str, Any], branch: str) -> float:
    """Of a token of the test text."""
    return float(result[branch]["nats_per_token"]["value"])


def figures(results: Sequence[Result]) -> list[Row]:
    """Perplexities, and the paired difference in nats, which is that of their logarithms."""
    rows = []
    for (corpus,), runs in grouped(results, ("corpus",)).items():
        found = [result for _, result in runs]
        told = DOCUMENT.get(corpus, {})
        for branch, label in (("base", "perplexity per token"), ("earm", "perplexity per token with E-ARM")):
            values = [math.exp(nats(one, branch)) for one in found]
            rows.append(over_seeds(label, {"corpus": corpus}, values, document=told.get(branch)))
            if corpus == "enwik8-10m":
                bits = [nats(one, branch) / math.log(2) for one in found]
                rows.append(
                    over_seeds(label.replace("perplexity per token", "bits per byte"), {"corpus": corpus}, bits)
                )
            elif found[0][branch]["nats_per_word"] is not None:
                words = [math.exp(float(one[branch]["nats_per_word"])) for one in found]
                rows.append(over_seeds(label.replace("token", "word"), {"corpus": corpus}, words))
        differences = [nats(one, "earm") - nats(one, "base") for one in found]
        rows.append(over_seeds(DIFFERENCE, {"corpus": corpus}, differences, document=_gain(corpus)))
        shares = [share for one in found for _, share in one["earm"]["curves"]["effective_share"]]
        rows.append(
            Row(name="effective share of the fakes, smallest logged", settings={"corpus": corpus}, value=min(shares),
                low=None, high=None)
        )  # fmt: skip
    return rows


def _gain(corpus: str) -> float | None:
    told = DOCUMENT.get(corpus)
    return None if told is None else round(math.log(told["earm"] / told["base"]), 4)


def correct(recorded: Recorded) -> list[Row]:
    """Records of the first format have WikiText-103's figures beside those of any corpus."""
    return [row if row.settings["corpus"] in DOCUMENT else replace(row, document=None) for row in recorded.rows]


def departures(cells: Sequence[Cell]) -> list[str]:
    """What the document has, where its figures are of other text and other tokens than ours."""
    others = [corpus for corpus in dict.fromkeys(str(cell["corpus"]) for cell in cells) if corpus not in DOCUMENT]
    if not others:
        return []
    told = DOCUMENT["wikitext-103"]
    return [
        f"The document's perplexities, {told['base']} and with E-ARM {told['earm']}, are of WikiText-103 and its own "
        f"tokens. On {' and '.join(others)} a token is something else (a piece of a small vocabulary, a byte), so that "
        "neither perplexities nor nats per token are to be set beside them."
    ]


def panels(rows: Sequence[Row]) -> list[Dots]:
    """The paired differences."""
    named = {str(row.settings["corpus"]): as_dot(row) for row in rows if row.name == DIFFERENCE}
    return [Dots(title="E-ARM − without, paired over seeds", x_label="test nats per token", rows=named)]


RECIPE = Experiment(
    title="A Transformer language model with and without E-ARM",
    source="document 003, Table 3 (WikiText-103); at scale cpu slices of WikiText-2 (BPE) and of enwik8 (bytes)",
    cells=cells,
    work=run_cell,
    figures=figures,
    panels=panels,
    reading=Reading(shared=SHARED, correct=correct, departures=departures),
)
