"""Dynamic evaluation of a pretrained model: SmolLM2-135M on novels by authors that no gradient statistics are of."""

import math
from itertools import islice
from pathlib import Path
from typing import Any

from ebar.data.text import read_tokens, texts_of
from ebar.journeys.evaluate import dynamic
from ebar.models.construction import from_pretrained
from ebar.recipes.control.tables import write_toy
from ebar.recipes.grid import file_of, toy_file
from ebar.recipes.pieces import Caption, Cell, Claim, Figure, Figures, Grid, Layout, Points, Recipe
from ebar.recipes.residual.configurations import path_of
from ebar.store.writing import plain

RATIO = "perplexity per token, dynamic ÷ static"
STATISTICS = "from training text"
NOVELS = {"text": "gutenberg-novels/test.txt.xz", "training": "gutenberg-novels/train.txt.xz"}
WAYS: dict[str, Any] = {"gradients": [{"gradients": STATISTICS}, {"gradients": "plain", "plain": True}]}
RATES = {
    STATISTICS: {"learning_rate": 1e-5, "decay": 1e-3, "epsilon": 1e-4}, "plain": {"learning_rate": 1e-3, "decay": 0.0},
}  # fmt: skip
READ: dict[str, Any] = {"each": {"how": ("static", "dynamic")}, "range": (0.0, math.inf)}


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """What `ebar dynamic` finds."""
    toy = cell["model"] == "toy"
    where = str(write_toy(folder / "toy-model")) if toy else path_of(cell["model"])
    model = from_pretrained(where, length=cell["window"], dtype="float32")
    tokeniser = model.tokeniser
    assert tokeniser is not None
    paths = [toy_file(cell[name], folder) if toy else file_of(cell[name]) for name in ("text", "training")]
    text, training = (read_tokens(islice(texts_of(path), cell["lines"]), tokeniser) for path in paths)
    found = dynamic(
        model, text[: cell["tokens"]], training=None if cell["plain"] else training, tokeniser=tokeniser,
        **cell["rates"][cell["gradients"]], **cell["reading"],
    )  # fmt: skip
    return {"figures": plain(found.figures), "about": plain(found.about)}


RECIPE = Recipe(
    title="Dynamic evaluation of SmolLM2-135M on novels",
    source="ebar's own; dynamic evaluation of Krause et al. 2018, as in Tables A.1 and A.2 of Dai 2019 (thesis)",
    grid=Grid(
        common={"plain": False},
        scales={
            "demo": {
                "model": "toy", "text": "toy/test.txt", "training": "toy/train.txt", "lines": 100, "tokens": 300,
                "window": 24, "reading": {"segment": 8, "rows": 4, "batches": 4, "blocks": 10},
                "rates": {STATISTICS: {"learning_rate": 1e-3, "decay": 1e-3, "epsilon": 1e-3},
                          "plain": {"learning_rate": 0.1, "decay": 0.0}},
            },
            "cpu": {
                "model": "smollm2", **NOVELS, "lines": 3000, "tokens": 4096, "window": 256,
                "reading": {"segment": 64, "rows": 4, "batches": 24, "blocks": 16}, "rates": RATES,
            },
            "paper": {
                "model": "HuggingFaceTB/SmolLM2-135M", **NOVELS, "lines": None, "tokens": None, "window": 1024,
                "reading": {"segment": 64, "rows": 16, "batches": 1000, "blocks": 30}, "rates": RATES,
            },
        },
        axes=WAYS,
    ),
    run=run_cell,
    figures=Figures(
        Figure(name="perplexity per token, {how}", at="figures.perplexity_per_token, {how}", **READ),
        Figure(name=RATIO, at="figures.perplexity, dynamic over static", range=(0.0, math.inf)),
        Figure(
            name="perplexity per word, {how}", at="figures.perplexity_per_word, line breaks counted, {how}", **READ
        ),
        by=("gradients",),
    ),
    tables=Layout(rows=("gradients",), names={"gradients": "gradient statistics", "plain": "none"}),
    plots=Points(of=[RATIO], label="{gradients}", title=RATIO, x_label="ratio − 1", less=1.0),
    claims=Claim(says="learning from what it has read lowers its perplexity", figure=RATIO, below=1.0),
    reading=Caption(
        items="{reading[blocks]} blocks of the first {tokens:,} tokens, one model",
        departures=lambda cells: [
            "The rates were chosen on validation novels, not on the test novels; the thesis has none for this model."
        ],
    ),
)  # fmt: skip
