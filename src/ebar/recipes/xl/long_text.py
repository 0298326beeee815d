"""A text far longer than a segment, written by a trained Transformer-XL in bounded memory."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ebar.recipes.pieces import Caption, Claim, Figure, Figures, Layout, Points, Recipe, Result, Row
from ebar.recipes.rows import chosen
from ebar.recipes.xl.cells import PAPER, RUNS, XL, run_cell
from ebar.recipes.xl.tables import AMOUNT, TABLE3_1

TEXTS = {"written by the model": "written", "what really follows": "real"}
PERPLEXITY, REPEATED = "perplexity under the model", "share of 4-grams that stood in the text before"
LESS, AGREES = "nats per token, written − real, paired", "nats per token, as drawn − as scored"
TEXT = "text"


def _nats(run: Mapping[str, Any], of: str) -> float:
    return float(run["written"]["nats"][of])


def _texts(results: Sequence[Result]) -> list[Row]:
    """The texts themselves."""
    texts = [{"seed": cell["seed"], "after": run["written"]["prompt"], "text": run["written"]["text"]}
             for cell, run in results]  # fmt: skip
    return [Row(name=TEXT, settings=one) for one in texts]


def _shown(rows: Sequence[Row]) -> list[str]:
    """The text of the first seed, as it was written; marks that a page would read as its own are left alone in code."""
    first = chosen(rows, TEXT, {})[0].settings
    after, text = (first[key].replace("`", "'") for key in ("after", "text"))
    return [f"After `{after}` the model of seed {first['seed']} wrote: `{text}`"]


RECIPE = Recipe(
    title="A long text by Transformer-XL",
    source=f"{PAPER}, chapter 3 (Dai et al. 2019 show such texts, without figures); at scale cpu the Transformer-XL of "
    "xl/table3_1, trained on segments of 64 words",
    grid=lambda scale: [cell for cell in TABLE3_1.grid(scale) if cell["model"] == XL],
    run=run_cell,
    figures=[
        Figures(
            Figure(name=PERPLEXITY, at=lambda run, of: math.exp(_nats(run, of)), each={"of": TEXTS}, range=AMOUNT),
            Figure(name=REPEATED, at="written.repeated.{of}", each={"of": TEXTS}, range=(0.0, 1.0)),
            Figure(name=LESS, at=lambda run: _nats(run, "written") - _nats(run, "real")),
            Figure(name=AGREES, at=lambda run: float(run["written"]["drawn"]) - _nats(run, "written")),
            by=(),
        ),
        _texts,
    ],
    tables=[Layout(rows=("of",), figures=(PERPLEXITY, REPEATED)), Layout(rows=(), figures=(LESS, AGREES))],
    plots=Points(of=[REPEATED], label="{of}", title="Repetition", x_label=REPEATED),
    claims=Claim(says="what the model writes costs it less than real text", figure=LESS, below=0.0),
    notes=_shown,
    runs=RUNS,
    reading=Caption(
        shared="All seeds go on from the same words, and the real text is the same.", items="one training, one text"
    ),
)  # fmt: skip
