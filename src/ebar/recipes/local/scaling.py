"""Chunked local attention by the length of a text, and what chunk sizes and convolutions cost in nats.

Dai 2019 (thesis), chapter 5. Time and memory are those of an update: reading a text, its loss and its gradient.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ebar.evaluation.speed import speed
from ebar.heads.head import target_log_probs
from ebar.models.construction import Autoregressive, assemble
from ebar.models.continued import Continued, begin
from ebar.recipes.pieces import Caption, Cell, Claim, Curves, Figure, Figures, Layout, Points, Recipe, layouts
from ebar.recipes.training import SAME_TEXT, training_grid
from ebar.recipes.xl import cells as xl
from ebar.recipes.xl.tables import AMOUNT, SEEDS, TUNED, scored, trained
from ebar.types import Space

FULL = "full attention"
BITS, FROM_FULL = xl.BITS_PER_BYTE.name, f"test nats per token − {FULL}'s, paired"
SECONDS, KEPT = "seconds per 1,000 tokens of an update", "kilobytes kept for the gradient, per token"
TIMES, PARAMETERS = f"times faster than {FULL}", "parameters, millions"
REPEATS = 3  # of an update, of which the fastest counts: others may use the machine
Settings = dict[str, Any]


def variants(
    shared: Mapping[str, Any], *, layers: int, hidden: int, heads: int, feedforward: int, length: int, batch: int,
    chunks: Sequence[int], grows: Sequence[int], kernel: int, lengths: Sequence[int], longest: int,
) -> list[Settings]:  # fmt: skip
    """Local attention of several chunk sizes, full attention (one chunk), and convolutions with as many parameters.

    `grows` are chunks from the lowest layer to the highest. Times are taken at `lengths`, full attention's up to
    `longest`. A convolution has fewer projections and a wider feed-forward part.
    """
    common = {
        **shared, "data.length": length, "training.batch_size": batch, "backbone.layers": layers,
        "backbone.hidden": hidden, "backbone.heads": heads, "backbone.dropout": 0.0, "measures.lengths": list(lengths),
    }  # fmt: skip
    local = {**common, "backbone.kind": "local_xl", "backbone.feedforward": feedforward}
    convolution = {**common, "backbone.kind": "convolution", "backbone.kernel_size": kernel}
    return [
        {**local, "model": FULL, "backbone.chunk": length, "measures.lengths": [n for n in lengths if n <= longest]},
        *({**local, "model": f"chunks of {chunk}", "backbone.chunk": chunk} for chunk in chunks),
        {**local, "model": f"chunks of {', '.join(map(str, grows))}", "backbone.chunk": list(grows)},
        {**convolution, "model": "LightConv", "backbone.kernel": "light", "backbone.feedforward": feedforward + hidden},
        {**convolution, "model": "DynamicConv", "backbone.kernel": "dynamic",
         "backbone.feedforward": feedforward + hidden - heads * kernel // 2},
    ]  # fmt: skip


TOY = variants(
    {**xl.files("toy", "txt", "bytes", limit=2000, held_out_limit=300), **trained(1e-2, 2), **scored(2, 16, None)},
    layers=2, hidden=16, heads=2, feedforward=32, length=16, batch=4, chunks=[4], grows=[2, 8], kernel=5,
    lengths=[16, 64], longest=64,
)  # fmt: skip
SLICE = variants(
    {**xl.files("enwik8-10m", "bin.xz", "bytes", **TUNED, limit=300_000), **trained(3e-3, 50),
     **scored(4, 256, None)},
    layers=3, hidden=128, heads=4, feedforward=384, length=256, batch=4, chunks=[16, 32, 64], grows=[16, 32, 64],
    kernel=31, lengths=[256, 512, 1024, 2048, 4096, 8192], longest=2048,
)  # fmt: skip
ENWIK8 = variants(
    {**xl.files("enwik8", "bin.xz", "bytes"), **trained(1e-4, 10_000, 50), **scored(10, 512, None)},
    layers=12, hidden=512, heads=8, feedforward=2048, length=512, batch=22, chunks=[32, 64, 128],
    grows=[16, 16, 16, 32, 32, 32, 64, 64, 64, 128, 128, 128], kernel=31, lengths=[512, 1024, 2048, 4096, 8192],
    longest=8192,
)  # fmt: skip


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """What `ebar train` makes of the cell, scored; and what an update costs by the length of the text."""
    found = xl.run_cell(cell, folder)
    measures, backbone = cell["measures"], dict(cell["configuration"]["backbone"])
    kind, tokens = backbone.pop("kind"), max(measures["lengths"])
    costs = {}
    for length in measures["lengths"]:
        options = {**backbone, "chunk": length} if cell["model"] == FULL else backbone
        model = assemble(Space(256, length), kind, options, "softmax", {"tied": True}).train()
        costs[str(length)] = update_cost(model, max(1, min(tokens, 2048) // length), length)
    return {**found, "lengths": costs}


def update_cost(model: Autoregressive, rows: int, length: int) -> dict[str, float]:
    """Of reading a text of random tokens and the gradient of its loss."""
    tokens = torch.randint(model.space.vocabulary, (rows, length), generator=torch.Generator().manual_seed(0))

    def loss() -> Tensor:
        hidden, _ = Continued(model, begin(model, rows)).read(tokens)
        return -target_log_probs(model.head, hidden, tokens).mean()

    return gradient_cost(model, loss, tokens.numel())


def gradient_cost(model: nn.Module, loss: Callable[[], Tensor], tokens: int) -> dict[str, float]:
    """Seconds per 1,000 tokens of a loss and its gradient, and what is kept in between, kilobytes per token."""
    kept: dict[int, int] = {}
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: _noted(tensor, kept), lambda tensor: tensor):
        first = loss()
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    size = sum(held for place, held in kept.items() if place not in own)
    del first
    found = speed(lambda: loss().backward(), tokens, runs=REPEATS)  # type: ignore[no-untyped-call]
    return {"seconds": 1000 / found.tokens_per_second, "kept": size / tokens / 1024}


def _noted(tensor: Tensor, kept: dict[int, int]) -> Tensor:
    """Tensors that share their memory count once."""
    if not isinstance(tensor, nn.Parameter):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return tensor


def curves(*figures: str) -> list[Curves]:
    """Figures by the length of a text, a line for each model."""
    return [
        Curves(of={figure: "{model}"}, by=("model",), x="length", title=figure, log_x=True, log_y=True)
        for figure in figures
    ]


def _cost(of: str) -> Any:
    """Of an update; None at lengths that were not measured."""
    return lambda run, length: run["lengths"].get(length, {}).get(of)


RECIPE = Recipe(
    title="Local attention by length, by chunk size, and beside convolutions",
    source=f"{xl.PAPER}, sections 5.3 and 5.4; its Table 5.1 is of pretrained XLNets. At scale cpu a slice of enwik8, "
    "one thread",
    grid=training_grid(xl.COMMON, {"model": {"demo": TOY, "cpu": SLICE, "paper": ENWIK8}}, seeds=SEEDS),
    run=run_cell,
    figures=[
        Figures(
            Figure(name=BITS, at=lambda run: xl.BITS_PER_BYTE.of(xl.nats_of(run["segments"]["nats"])), range=AMOUNT),
            Figure(name=FROM_FULL, at="segments.nats", minus={"model": FULL}),
            Figure(name=PARAMETERS, at=lambda run: float(run["parameters"]) / 1e6, exact=True),
            by=("model",),
        ),
        Figures(
            Figure(name=SECONDS, at=_cost("seconds"), each={"length": "lengths"}, range=AMOUNT),
            Figure(name=KEPT, at=_cost("kept"), each={"length": "lengths"}, range=AMOUNT),
            Figure(
                name=TIMES, at=lambda run, length: 1 / value if (value := _cost("seconds")(run, length)) else None,
                each={"length": "lengths"}, over={"model": FULL}, range=AMOUNT,
                paper={("chunks of 64", 512): "about 2"},
            ),
            by=("model",),
        ),
    ],
    tables=[
        Layout(rows=("model",), figures=(BITS, FROM_FULL, PARAMETERS)),
        *layouts(("model",), SECONDS, TIMES, KEPT, columns=("length",)),
    ],
    plots=[
        Points(of=[FROM_FULL], label="{model}", title="Paired over seeds", x_label=FROM_FULL), *curves(SECONDS, KEPT),
    ],
    claims=[
        Claim(says="local attention costs more nats than full attention", figure=FROM_FULL, above=0.0),
        Claim(says="at length 2,048 chunks are at least twice as fast", figure=TIMES, above=2.0,
              where={"length": 2048}),
    ],
    notes=lambda rows: [
        "Full attention is one chunk as long as the text. All read segments of the same length with what they carry "
        "from the segment before, so that full attention reaches two segments back at most.",
        "Kept for the gradient is counted, not measured: all that the backward pass needs of the forward pass, weights "
        "left out. Times are the fastest of three updates, while the other core was busy.",
    ],
    reading=Caption(
        shared=SAME_TEXT,
        elsewhere=lambda cells: "finetuning, on TPUs",
        departures=lambda cells: [
            "All have the learning rate that suited Transformer-XL on the corpus's test file; figures are of the file "
            "that usually validates."
        ],
    ),
)  # fmt: skip
