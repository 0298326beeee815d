"""Language models on a long text: the runs of Transformer-XL's tables, and what is measured of each.

All are trained on a stream, in contiguous columns, and scored on the test text the way it was published: in segments,
with what they carry from one to the next. Of a Transformer that carries nothing there are two figures: by segments, as
cheap as the others, and with a window that moves on by a few tokens, which gives every token nearly a whole window.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ebar.backbones.transformer_xl import TransformerXl
from ebar.data.stream import Stream
from ebar.evaluation.cross_entropy import stream_cost
from ebar.evaluation.segments import segment_cost
from ebar.models.construction import Autoregressive
from ebar.recipes.grid import PARTS
from ebar.recipes.recipe import Cell, Result
from ebar.recipes.training import trained
from ebar.recipes.xl.scoring import compared, timed, window_cost, written

PAPER = "Dai 2019 (thesis)"
RUNS = "xl/runs"  # all tables have one folder of runs: what one has trained, another need not
XL, VANILLA, LSTM, LOCAL = "Transformer-XL", "Transformer", "LSTM", "Local-XL"
SEGMENTS, SLIDING = "by segments", "with a sliding window"  # how a text is scored
SAME = 0.002  # a memory is as good as the best where its figure is at most so much higher, relatively
COMMON = {
    "data.kind": "stream", "head.kind": "softmax", "head.tied": True, "schedule.kind": "cosine", "training.clip": 0.25,
    "training.patience": 1000, "training.checkpoint_every": 500,
}  # fmt: skip


def files(
    corpus: str, suffix: str, tokeniser: str, vocabulary: int | None = None, *, tested: str = "test", **other: Any
) -> dict[str, Any]:  # fmt: skip
    """Where a corpus is, and what its tokens are; `tested` is the file that figures are of, the other one validates."""
    names = {**PARTS, "validation": "valid" if tested == "test" else "test", "test": tested}
    found = {f"data.{part}": f"{corpus}/{name}.{suffix}" for part, name in names.items()}
    return {**found, "data.tokeniser": tokeniser, "data.vocabulary": vocabulary,
            **{f"data.{key}": value for key, value in other.items()}}  # fmt: skip


ABSOLUTE = {"backbone.positions": "absolute"}
OF_ATTENTION = ("backbone.attention_dropout", "backbone.variational")


def systems(
    shared: Mapping[str, Any], *, layers: int, hidden: int, heads: int, feedforward: int, length: int, batch: int,
    lstm: int, dropout: float = 0.0, cutoffs: Sequence[int] = (), divide: int = 1, awd: Mapping[str, Any] | None = None,
    lstm_rate: float | None = None, local: Mapping[str, Any] | None = None, xl: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Models with equally many parameters that read equally many tokens a step: Transformer-XL and its rivals.

    A Transformer has no projection of distances, and a wider feed-forward part instead. `lstm` is the width of two
    layers, and `lstm_rate` its learning rate where it is not the others'; `awd` are options of AWD-LSTM in its place.
    `local` are options of Local-XL, and `xl` is what is measured of Transformer-XL alone. Large vocabularies have
    `cutoffs`, for adaptive inputs and an adaptive softmax.
    """
    sizes = {"data.length": length, "training.batch_size": batch, **shared}
    stack = {"backbone.layers": layers, "backbone.hidden": hidden, "backbone.heads": heads, "backbone.dropout": dropout}
    wide = {**sizes, **stack, **adaptive(cutoffs, divide), "backbone.kind": "transformer_xl", "backbone.memory": length}
    recurrent = {"backbone.layers": 2, "backbone.hidden": lstm, "backbone.embedding": lstm, "backbone.dropout": dropout}
    if lstm_rate is not None:
        recurrent |= {"optimiser.learning_rate": lstm_rate}
    found = [
        {"model": XL, **wide, "backbone.feedforward": feedforward, **(xl or {})},
        {"model": VANILLA, **wide, **ABSOLUTE, "backbone.recurrence": False,
         "backbone.feedforward": feedforward + hidden // 2},
        {"model": LSTM, **{key: value for key, value in sizes.items() if key not in OF_ATTENTION},
         **(awd or {"backbone.kind": "lstm", **recurrent})},
    ]  # fmt: skip
    if local is not None:
        own = {"backbone.kind": "local_xl", "backbone.feedforward": feedforward, **local}
        found.append({"model": LOCAL, **sizes, **stack, **own})
    return found


def adaptive(cutoffs: Sequence[int], divide: int) -> dict[str, Any]:
    """Input vectors and softmax by how frequent tokens are (Baevski & Auli 2019; Grave et al. 2017)."""
    if not cutoffs:
        return {}
    return {"backbone.cutoffs": list(cutoffs), "backbone.divide": divide, "head.kind": "adaptive_softmax"}


# What a run gives ---------------------------------------------------------------------------------------------------


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """What `ebar train` makes of the cell, and what it costs to score the test text with it."""
    run = trained(cell, folder)
    test = run.data.parts["test"]
    found: dict[str, Any] = {"parameters": sum(parameter.numel() for parameter in run.model.parameters())}
    if isinstance(test, Stream):
        found |= on_stream(run.model, test, cell["measures"])
    else:  # of a model that was trained on windows, each with the mark of a beginning
        tokens, stride = run.data.test.tokens.flatten(), cell["measures"]["stride"]
        found["segments"] = timed(lambda: stream_cost(run.model, tokens))
        found["sliding"] = timed(lambda: stream_cost(run.model, tokens, stride=stride))
    if "write" in cell["measures"]:
        found["written"] = written(run.model, run.data, seed=cell["seed"], **cell["measures"]["write"])
    return {**found, "training": training_seconds(cell, folder / "run")}


def on_stream(model: Autoregressive, test: Stream, measures: Mapping[str, Any]) -> dict[str, Any]:
    """Nats per token and seconds per 1,000 tokens by segments; without recurrence, with windows that move on too.

    A Transformer-XL may have another memory there than in training, as published ones have. Of one also nats per token
    by the length of its memory, and what evaluation costs without one.
    """
    backbone = model.backbone
    forgets = isinstance(backbone, TransformerXl) and not backbone.recurrence
    segment = model.space.length if forgets else measures["segment"]
    how = {"columns": measures["columns"], "segment": segment, "first": False}  # as published
    own = {"memory": measures["memory"], "clamp_length": measures["clamp"]} if "memory" in measures else {}
    found: dict[str, Any] = {"segments": timed(lambda: segment_cost(model, test.tokens, **how, **own))}
    if forgets:
        found["sliding"] = timed(lambda: window_cost(model, test.tokens, segment, measures["stride"]))
    if forgets or not isinstance(backbone, TransformerXl):
        return found
    clamp = measures["clamp"]
    found["memories"] = {
        str(places): segment_cost(model, test.tokens, memory=places, clamp_length=clamp, **how).per_token
        for places in measures.get("memories", ())
    }
    if "speed" in measures:
        found["speed"] = compared(model, test.tokens, clamp=clamp, **measures["speed"])
    return found


def training_seconds(cell: Cell, run: Path) -> float | None:
    """Per 1,000 tokens, as the run has logged it; None where it was too short for a line."""
    lines = (run / "timing.jsonl").read_text(encoding="utf-8").splitlines()
    options = cell["configuration"]
    tokens = options["data"]["length"] * options["training"]["batch_size"]
    return 1000 / (float(json.loads(lines[-1])["rate"]) * tokens) if lines else None


# How it is read -----------------------------------------------------------------------------------------------------


class Unit(NamedTuple):
    """What a table gives in place of nats per token."""

    name: str
    of: Callable[[float], float]


PERPLEXITY = Unit("test perplexity", math.exp)
BITS_PER_BYTE = Unit("test bits per byte", lambda nats: nats / math.log(2))
BITS_PER_CHARACTER = Unit("test bits per character", lambda nats: nats / math.log(2))


def by_protocol(cell: Cell, result: dict[str, Any]) -> Iterator[Result]:
    """A run as it is scored by segments, and, where it was, with a window that moves on."""
    yield {**cell, "scored": SEGMENTS}, {**result, **result["segments"]}
    if "sliding" in result:
        yield {**cell, "scored": SLIDING}, {**result, **result["sliding"]}


def by_memory(unit: Unit) -> Callable[[Mapping[str, Any]], dict[int, float]]:
    """The figure by the length of the memory, of one run."""
    return lambda result: {int(places): unit.of(nats_of(cost)) for places, cost in result["memories"].items()}


def nats_of(cost: Mapping[str, Any]) -> float:
    """The value of an estimate as JSON has it."""
    return float(cost["value"])


def levels_at(curve: Mapping[int, float]) -> int | None:
    """The smallest memory whose figure is at most 0.2 % above the best."""
    best = min(curve.values(), default=math.nan)
    return min((places for places, figure in curve.items() if figure <= best * (1 + SAME)), default=None)
