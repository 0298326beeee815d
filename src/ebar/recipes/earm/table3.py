"""Table 3: perplexity of a Transformer language model with and without E-ARM."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ebar.recipes.earm.language_modelling import run_twins
from ebar.recipes.earm.language_settings import SCALES, SEEDS, cell_for
from ebar.recipes.experiment import Experiment, Result
from ebar.recipes.recipe import Cell, Row
from ebar.recipes.statistics import as_dot, grouped, over_seeds
from ebar.report.plots import Dots

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
    told = {"base": 30.56, "earm": 29.89}
    for (corpus,), runs in grouped(results, ("corpus",)).items():
        found = [result for _, result in runs]
        for branch, label in (("base", "perplexity per token"), ("earm", "perplexity per token with E-ARM")):
            values = [math.exp(nats(one, branch)) for one in found]
            rows.append(over_seeds(label, {"corpus": corpus}, values, document=told[branch]))
            if corpus == "enwik8-10m":
                bits = [nats(one, branch) / math.log(2) for one in found]
                rows.append(
                    over_seeds(label.replace("perplexity per token", "bits per byte"), {"corpus": corpus}, bits)
                )
            elif found[0][branch]["nats_per_word"] is not None:
                words = [math.exp(float(one[branch]["nats_per_word"])) for one in found]
                rows.append(over_seeds(label.replace("token", "word"), {"corpus": corpus}, words))
        differences = [nats(one, "earm") - nats(one, "base") for one in found]
        document = round(math.log(29.89 / 30.56), 4)
        rows.append(over_seeds(DIFFERENCE, {"corpus": corpus}, differences, document=document))
        shares = [share for one in found for _, share in one["earm"]["curves"]["effective_share"]]
        rows.append(
            Row(name="effective share of the fakes, smallest logged", settings={"corpus": corpus}, value=min(shares),
                low=None, high=None)
        )  # fmt: skip
    return rows


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
)
