"""Full against local attention in XLNet: what chunks cost in accuracy, and what they save in time and memory.

Dai 2019 (thesis), Table 5.1.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from ebar.backbones.xlnet import XlNet
from ebar.recipes.local.scaling import curves, gradient_cost
from ebar.recipes.pieces import Caption, Cell, Claim, Figure, Figures, Grid, Layout, Points, Recipe, layouts
from ebar.recipes.xl.tables import AMOUNT
from ebar.recipes.xlnet import cells
from ebar.recipes.xlnet.tables import BASE, POLARITY, READING, REVIEWS, SHORT, TOY, glue, snippets, squad, toy

FULL, LOCAL = "full attention", "local attention"
SCORE, WORSE = "test score", f"test score − {FULL}"
SECONDS, KEPT = "seconds per 1,000 tokens of a fine-tuning step", "kilobytes kept for the gradient, per token"
TIMES = f"times faster than {FULL}"
THEIRS = {
    FULL: {"SQuAD 2.0, exact_match": 85.1, "SQuAD 2.0, f1": 87.8, "RTE": 81.2, "SST-2": 94.9, "MRPC": 90.4,
           "CoLA, matthews": 65.2, "STS-B, pearson": 91.1},
    LOCAL: {"SQuAD 2.0, exact_match": 84.1, "SQuAD 2.0, f1": 86.9, "RTE": 80.5, "SST-2": 94.8, "MRPC": 90.6,
            "CoLA, matthews": 64.3, "STS-B, pearson": 91.0},
}  # fmt: skip


def attentions(
    tree: Mapping[str, Any], tasks: Mapping[str, Any], *, chunk: int, update: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The same network with full and with local attention; `update` is what is timed, with chunks of its own."""
    return [
        {"model": name, "scratch": False, "pretraining": {**tree, "backbone": {**tree["backbone"], "chunk": size}},
         "tasks": dict(tasks), "update": dict(update)}
        for name, size in ((FULL, None), (LOCAL, chunk))
    ]  # fmt: skip


def reviews_of(length: int) -> str:
    """The name of the task of classifying reviews that are cut after so many tokens."""
    return f"{REVIEWS}, {length:,} tokens"


LENGTHS = [128, 512, 1024]
CELLS = {
    "demo": attentions(
        TOY, {POLARITY: toy("polarity", [40])}, chunk=6,
        update={"layers": 1, "hidden": 16, "heads": 2, "chunk": 8, "lengths": [16, 32], "tokens": 64},
    ),
    "cpu": attentions(
        SHORT,
        {POLARITY: snippets("sentence_polarity", [1000], 5),
         **{reviews_of(length): snippets("movie_reviews", [300], 3, length, epochs=2, batch=4096 // length)
            for length in LENGTHS}},
        chunk=16,
        update={"layers": 2, "hidden": 128, "heads": 4, "chunk": 64, "lengths": LENGTHS, "tokens": 2048},
    ),
    "paper": attentions(
        BASE,
        {"SQuAD 2.0": squad("2.0"), "RTE": glue("RTE"), "SST-2": glue("SST-2"), "MRPC": glue("MRPC"),
         "CoLA": glue("CoLA", measures=["matthews"]), "STS-B": glue("STS-B", task="regression", measures=["pearson"])},
        chunk=64,
        update={"layers": 12, "hidden": 768, "heads": 12, "chunk": 64, "lengths": LENGTHS, "tokens": 8192},
    ),
}  # fmt: skip


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Pretrained and fine-tuned; and what a step of fine-tuning costs by the length of the texts."""
    found = cells.run_cell(cell, folder)
    update = cell["update"]
    sizes = {name: update[name] for name in ("layers", "hidden", "heads")}
    chunk = update["chunk"] if cell["model"] == LOCAL else None
    return {
        **found,
        "lengths": {
            str(length): step_cost(XlNet(1000, chunk=chunk, **sizes), update["tokens"] // length, length)
            for length in update["lengths"]
        },
    }


def step_cost(network: XlNet, rows: int, length: int) -> dict[str, float]:
    """Of classifying texts of random tokens by their last place, and the gradient."""
    tokens = torch.randint(network.vocabulary, (rows, length), generator=Generator().manual_seed(0))
    classes = nn.Linear(network.width, 2)

    def loss() -> Tensor:
        return F.cross_entropy(classes(network(tokens).content[:, -1]), tokens[:, -1] % 2)

    return gradient_cost(network.train(), loss, tokens.numel())


TABLE5_1 = Recipe(
    title="XLNet with full and with local attention",
    source=f"{cells.PAPER}, Table 5.1 and section 5.4",
    grid=Grid(axes={"model": CELLS}, seeds=1),
    run=run_cell,
    figures=[
        Figures(
            Figure(name=SCORE, at="score", range=(-1.0, 1.0), paper=lambda row: THEIRS[row["model"]].get(row["task"])),
            Figure(name=WORSE, at="score", where={"model": LOCAL}, minus={"model": FULL}, range=(-1.0, 1.0)),
            by=("model", "task"), parts=cells.by_seed,
        ),
        Figures(
            Figure(name=SECONDS, at="lengths.{length}.seconds", each={"length": "lengths"}, range=AMOUNT),
            Figure(name=KEPT, at="lengths.{length}.kept", each={"length": "lengths"}, range=AMOUNT),
            Figure(name=TIMES, at=lambda run, length: 1 / run["lengths"][length]["seconds"], where={"model": LOCAL},
                   over={"model": FULL}, each={"length": "lengths"}, range=AMOUNT, paper={(LOCAL, 512): "about 2"}),
            by=("model",),
        ),
    ],
    tables=[
        Layout(rows=("task",), columns=("model",), figures=(SCORE,)),
        Layout(rows=("task",), figures=(WORSE,)),
        *layouts(("model",), SECONDS, TIMES, KEPT, columns=("length",)),
    ],
    plots=[Points(of=[WORSE], label="{task}", title="Paired", x_label=WORSE), *curves(SECONDS, KEPT)],
    claims=[
        Claim(says="local attention loses nothing on short texts", figure=WORSE, above=-0.02, where={"task": POLARITY}),
        *(Claim(says=f"it loses on texts of {length:,} tokens", figure=WORSE, below=0.0,
                where={"task": reviews_of(length)}) for length in LENGTHS),
    ],
    notes=lambda rows: [
        "Kept for the gradient is counted, not measured: all that the backward pass needs of the forward pass, weights "
        "left out. Batches have equally many tokens at all lengths. Times are the fastest of three steps on one thread "
        "of a machine that computed other things as well; of one run, so that they have no interval: "
        "`benchmarks/xlnet.py` compares them in turns."
    ],
    reading=Caption(
        items="seeds of fine-tuning, one pretraining", elsewhere=lambda cells: "12 layers, in per cent", **READING
    ),
)  # fmt: skip
