"""Transformer language models and their E-ARM twins: Tables 3 and 4 of Wang et al. 2022, and two ablations."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ebar.data.corpus import Corpus
from ebar.data.stream import Stream
from ebar.data.text import read_tokens, texts_of
from ebar.data.tokenisers import Bytes
from ebar.evaluation.cross_entropy import cross_entropy, cross_entropy_difference
from ebar.evaluation.segments import segment_cost
from ebar.models.construction import Autoregressive
from ebar.recipes.earm.twins import (
    BASE,
    EARM,
    PAPER,
    alone,
    curves,
    each_twin,
    gain,
    laid,
    paper_figures,
    train_twins,
    twin_grid,
)
from ebar.recipes.figures import Figure, Figures, found
from ebar.recipes.grid import PARTS
from ebar.recipes.layout import Claim, Curves, Layout, Points
from ebar.recipes.recipe import Caption, Cell, Recipe, Row
from ebar.types import Estimate

COMMON = {
    "data.kind": "text", "backbone.kind": "transformer", "training.drop_last": True, "training.held_out_batch": 64,
    "training.checkpoint_every": 500,
}  # fmt: skip


def _corpus(corpus: str, suffix: str, vocabulary: int | None = None) -> dict[str, Any]:
    files = {f"data.{part}": f"{corpus}/{name}.{suffix}" for part, name in PARTS.items()}
    tokens = {"data.tokeniser": "bpe" if vocabulary else "bytes", "data.vocabulary": vocabulary}
    return {"corpus": corpus, **files, **tokens}


TOY = {
    **_corpus("toy", "txt"), "data.length": 20, "data.limit": 2000, "data.held_out_limit": 500, "backbone.layers": 1,
    "backbone.hidden": 16, "backbone.heads": 2, "backbone.feedforward": 32, "backbone.dropout": 0.0,
    "optimiser.learning_rate": 1e-2, "schedule.warmup": 2, "training.epochs": 4, "training.batch_size": 10,
    "earm.start_epoch": 2, "earm.window": 10,
}  # fmt: skip
ENWIK8 = {
    **_corpus("enwik8-10m", "bin.xz"), "data.length": 100, "data.limit": 120_000, "data.held_out_limit": 50_000,
    "backbone.layers": 2, "backbone.hidden": 128, "backbone.heads": 4, "backbone.feedforward": 512,
    "backbone.dropout": 0.1, "optimiser.learning_rate": 2e-3, "schedule.warmup": 50, "training.epochs": 5,
    "training.batch_size": 16, "earm.start_epoch": 3,
}  # fmt: skip
WIKITEXT2 = {
    **ENWIK8, **_corpus("wikitext-2", "txt.xz", 1000), "data.limit": 200_000, "data.held_out_limit": 40_000,
}  # fmt: skip
WIKITEXT103 = {  # Table 6, Tr-Base
    **_corpus("wikitext-103", "txt.xz", 30_000), "data.length": 512, "data.limit": None, "data.held_out_limit": None,
    "backbone.layers": 6, "backbone.hidden": 512, "backbone.heads": 8, "backbone.feedforward": 2048,
    "backbone.dropout": 0.1, "optimiser.learning_rate": 5e-4, "optimiser.weight_decay": 1e-2,
    "schedule.kind": "inverse_square_root", "schedule.warmup": 4000, "training.epochs": 40, "training.batch_size": 8,
    "earm.start_epoch": 15,
}  # fmt: skip
STREAM_COLUMNS = 4  # of the test text, read side by side
TOY_XL = {
    **TOY, "corpus": "toy, Transformer-XL", "data.kind": "stream", "data.length": 10, "data.limit": 500,
    "backbone.kind": "transformer_xl", "backbone.memory": 10, "training.epochs": 3, "training.batch_size": 4,
    "earm.window": 5,
}  # fmt: skip
WIKITEXT2_XL = {
    **WIKITEXT2, "corpus": "wikitext-2, Transformer-XL", "data.kind": "stream", "data.length": 64,
    "backbone.kind": "transformer_xl", "backbone.memory": 64, "optimiser.learning_rate": 1e-3, "training.epochs": 3,
    "training.drop_last": False, "earm.start_epoch": 2, "earm.weight": 0.02,
}  # fmt: skip
WIKITEXT103_XL = {  # Table 6, Tr-XL; the head is a softmax, as E-ARM needs one whose shift is free
    **WIKITEXT103, "corpus": "wikitext-103, Transformer-XL", "data.kind": "stream", "data.length": 150,
    "backbone.kind": "transformer_xl", "backbone.memory": 150, "backbone.layers": 16, "backbone.hidden": 410,
    "backbone.heads": 10, "backbone.feedforward": 2100, "optimiser.learning_rate": 2.5e-4,
    "optimiser.weight_decay": 0.0, "schedule.kind": "cosine", "schedule.warmup": 10_000, "training.batch_size": 60,
    "training.drop_last": False, "earm.start_epoch": 10, "earm.weight": 0.02,
}  # fmt: skip
ONE = {"demo": [TOY], "cpu": [ENWIK8], "paper": [WIKITEXT103]}
SEEDS = {"demo": 2, "cpu": 5, "paper": 5}
READING = Caption(
    shared="All seeds are trained and tested on the same text: an interval over seeds alone holds the error of "
    "training and not that of which text was tested."
)
Result = Mapping[str, Any]


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """All twins, trained; their cost on the test text, and how far it is from the base's."""
    corpus, twins = train_twins(cell, folder)
    base, words = twins[BASE].model, tokens_per_word(corpus)
    measured = {}
    for name, twin in twins.items():
        costs = test_cost(twin.model, corpus)
        windows = not isinstance(corpus.parts["test"], Stream)
        measured[name] = {
            "nats_per_token": costs,
            "difference": cross_entropy_difference(twin.model, base, corpus.test) if windows else None,
            "nats_per_word": None if words is None else costs.value * words,
            "curves": curves(twin),
        }
    return {"twins": measured}


def test_cost(model: Autoregressive, corpus: Corpus) -> Estimate:
    """Nats per token of the test text: window by window, or of a stream with what the model carries along."""
    test = corpus.parts["test"]
    if isinstance(test, Stream):
        return segment_cost(model, test.tokens.long(), columns=STREAM_COLUMNS, first=False).per_token
    return cross_entropy(model, corpus.test).pooled_per_token


def tokens_per_word(corpus: Corpus) -> float | None:
    """Of the test text, to turn a token's cost into a word's; the end of a line is a word, as in WikiText."""
    if corpus.tokeniser is None or isinstance(corpus.tokeniser, Bytes):
        return None
    path: Path = corpus.source.test
    return len(read_tokens(path, corpus.tokeniser)) / sum(len(text.split()) + 1 for text in texts_of(path))


def nats(twin: Result) -> float:
    """Of a token of the test text."""
    return float(found(twin, "nats_per_token").value)


# Table 3 ----------------------------------------------------------------------------------------------------------

GAIN = "test nats per token, E-ARM − without, paired"
SHARE = "effective share of the fakes, smallest logged"
# Perplexity without E-ARM and with it.
TABLE3_PAPER = {("wikitext-103",): (30.56, 29.89), ("wikitext-103, Transformer-XL",): (24.20, 23.81)}
TWINS = {"": BASE, " with E-ARM": EARM}


def _per_word(result: Result, twin: str) -> float | None:
    cost = result["twins"][twin]["nats_per_word"]
    return None if cost is None else math.exp(float(cost))


def _other_tokens(cells: Sequence[Cell]) -> list[str]:
    """What the paper has, where its figures are of other text and other tokens than ours."""
    others = dict.fromkeys(str(cell["corpus"]) for cell in cells)
    (without, with_earm), (xl_without, xl_with_earm) = TABLE3_PAPER.values()
    return [] if "wikitext-103" in others else [
        f"The paper's perplexities, {without} and with E-ARM {with_earm}, of Transformer-XL {xl_without:.2f} and "
        f"{xl_with_earm}, are of WikiText-103 and its own tokens. On "
        f"{' and '.join(others)} a token is something else (a piece of a small vocabulary, a byte), so that neither "
        "perplexities nor nats per token are to be set beside them."
    ]  # fmt: skip


TRANSFORMERS = twin_grid(COMMON, {"corpus": {**ONE, "cpu": [WIKITEXT2, ENWIK8]}}, seeds=SEEDS)
WITH_MEMORY = twin_grid(
    COMMON, {"corpus": {"demo": [TOY_XL], "cpu": [WIKITEXT2_XL], "paper": [WIKITEXT103_XL]}}, seeds={**SEEDS, "cpu": 3}
)

TABLE3 = Recipe(
    title="A Transformer language model with and without E-ARM",
    source=f"{PAPER}, Table 3 (WikiText-103); at scale cpu slices of WikiText-2 (BPE) and of enwik8 (bytes)",
    grid=lambda scale: [*TRANSFORMERS(scale), *WITH_MEMORY(scale)],
    run=run_cell,
    figures=Figures(
        Figure(
            name="perplexity per token{twin}", at=lambda result, twin: math.exp(nats(result["twins"][twin])),
            each={"twin": TWINS}, paper=paper_figures(TABLE3_PAPER, tuple(TWINS), "corpus", "twin"),
        ),
        Figure(
            name="bits per byte{twin}", at=lambda result, twin: nats(result["twins"][twin]) / math.log(2),
            each={"twin": TWINS}, where={"corpus": "enwik8-10m"},
        ),
        Figure(name="perplexity per word{twin}", at=_per_word, each={"twin": TWINS}),
        Figure(
            name=GAIN, at=gain("nats_per_token"),
            paper={"wikitext-103": -0.0222, "wikitext-103, Transformer-XL": -0.0162},
        ),
        Figure(
            name=SHARE, summary=alone(min),
            at=lambda result: min(share for _, share in result["twins"][EARM]["curves"]["effective_share"]),
        ),
        by=("corpus",),
    ),
    tables=[
        Layout(rows=("corpus",), figures=("perplexity*", "bits*")), Layout(rows=("corpus",), figures=(GAIN, SHARE)),
    ],
    plots=Points(of=[GAIN], label="{corpus}", title="Paired over seeds", x_label=GAIN),
    claims=Claim(says="E-ARM lowers the perplexity", figure=GAIN, below=0.0),
    reading=Caption(shared=READING.shared, departures=_other_tokens),
)  # fmt: skip

# Table 4 ----------------------------------------------------------------------------------------------------------

PERPLEXITY, FROM_BASE = "perplexity per token", "nats per token, E-ARM − without, paired over windows"
WEIGHTS = {"demo": (0.05, 0.5), "cpu": (0.01, 0.05, 0.5), "paper": (0.01, 0.05, 0.1, 0.5)}
STARTS = {"demo": (1, 2), "cpu": (1, 3, 4), "paper": (5, 15, 25)}
# Corpus and λ → perplexity, by the start epoch, of 40.
TABLE4_PAPER = {
    ("wikitext-103", 0.0): (30.56, 30.56, 30.56), ("wikitext-103", 0.01): (30.48, 30.12, 30.22),
    ("wikitext-103", 0.05): (30.43, 29.89, 30.16), ("wikitext-103", 0.1): (30.60, 30.03, 30.14),
    ("wikitext-103", 0.5): (30.71, 30.36, 30.47),
}  # fmt: skip


def _windows(row: Row, cells: Sequence[Cell]) -> str:
    """What the interval of a single run is over."""
    data = cells[0]["configuration"]["data"]
    count = "all" if data["held_out_limit"] is None else f"{data['held_out_limit'] // data['length']:,}"
    return f"{count} windows of the test text, one training"


TABLE4 = Recipe(
    title="How λ and the start epoch of E-ARM matter to a language model",
    source=f"{PAPER}, Table 4 (WikiText-103, 40 epochs); at scale cpu enwik8, 5 epochs",
    # One run for each start, whose first epochs all λ share.
    grid=twin_grid(
        COMMON,
        {
            "seed": {"demo": [0], "cpu": [0], "paper": [0, 1, 2]},
            "corpus": ONE,
            "start": {
                scale: [
                    {"start epoch": start, "earm.start_epoch": start, "twins": {str(w): {"weight": w} for w in weights}}
                    for start in STARTS[scale]
                ]
                for scale, weights in WEIGHTS.items()
            },
        },
    ),
    run=run_cell,
    figures=Figures(
        Figure(
            name=PERPLEXITY, at=lambda twin: math.exp(nats(twin)), bare=True,
            paper=paper_figures(TABLE4_PAPER, STARTS["paper"], "corpus", "λ", "start epoch"),
        ),
        Figure(name=FROM_BASE, at="nats_per_token", minus={"λ": 0.0}, single="difference"),
        by=("λ", "start epoch", "seed"),
        parts=each_twin(lambda cell, name: {"λ": 0.0 if name == BASE else float(name)}),
    ),
    tables=laid(("λ", "seed"), ("start epoch",), PERPLEXITY, FROM_BASE),
    plots=Curves(of={PERPLEXITY: "λ = {λ:g}"}, x="start epoch", title=PERPLEXITY, by=("λ",), bands=False),
    reading=Caption(
        items=_windows,
        departures=lambda cells: [
            "Differences of single trainings: an interval over windows says nothing of another seed, and differences "
            "between λ or start epochs may be those between trainings."
        ],
    ),
)  # fmt: skip

# How many recent factors ------------------------------------------------------------------------------------------

COST, FROM_TWO = "test nats per token", "test nats per token, m − 2, paired"


def _recent(*factors: int | None) -> dict[str, Any]:
    return {"twins": {"all" if m is None else str(m): {"recent": m} for m in factors}}


RECENT = Recipe(
    title="How many recent factors E-ARM's gradient goes through",
    source=f"{PAPER}, equation 11 and its footnote 4; at scale cpu a slice of enwik8",
    grid=twin_grid(
        COMMON,
        {
            "corpus": ONE,
            "recent": {"demo": [_recent(0, 2, None)], "cpu": [_recent(0, 1, 2, 3, 5, None)],
                       "paper": [_recent(0, 1, 2, 3, 5, None)]},
            # Seven models in one run: less text than in Table 3.
            "smaller": {
                "demo": [{"training.epochs": 3}],
                "cpu": [{"data.limit": 60_000, "data.held_out_limit": 40_000, "data.length": 50,
                         "training.batch_size": 32}],
                "paper": [{}],
            },
        },
        seeds=SEEDS,
    ),
    run=run_cell,
    figures=Figures(
        Figure(name=COST, at=nats, paper={"2": "best"}),
        Figure(name=GAIN, at=nats, minus={"m": "without E-ARM"}),
        Figure(name=FROM_TWO, at=nats, where={"twin": True}, minus={"m": "2"}, paper=("above 0",)),
        by=("m",),
        parts=each_twin(lambda cell, name: {"m": "without E-ARM" if name == BASE else name, "twin": name != BASE}),
    ),
    tables=Layout(rows=("m",)),
    plots=[Points(of=[figure], label="m = {m}", title=figure, x_label=COST) for figure in (GAIN, FROM_TWO)],
    claims=Claim(says="two recent factors are best", figure=FROM_TWO, above=0.0),
    reading=READING,
)  # fmt: skip

# Without cross-entropy --------------------------------------------------------------------------------------------

CROSS_ENTROPY, BOTH, SCRATCH = "cross-entropy", "cross-entropy and E-ARM", "equation 12 alone, from scratch"
TERM = {"weight": 1.0, "cross_entropy": False, "window": None}
# All from the same first weights, over the same batches; those after pre-training from the same model.
ALONE: dict[str, dict[str, Any]] = {
    SCRATCH: {**TERM, "start_epoch": 0},
    "without its data term, from scratch": {**TERM, "start_epoch": 0, "data_term": False},
    "equation 12 alone, after pre-training": TERM,
    "without its data term, after pre-training": {**TERM, "data_term": False},
}
HELD_OUT = "held-out nats per token"
AT_THE_END = f"{HELD_OUT} at the end, minus that of cross-entropy, paired"


def run_without(cell: Cell, folder: Path) -> dict[str, Any]:
    """All twins, trained."""
    return {"twins": {name: curves(twin) for name, twin in train_twins(cell, folder)[1].items()}}


WITHOUT_CE = Recipe(
    title="E-ARM without cross-entropy",
    source=f"{PAPER}, section 4: training from scratch by equation 12 alone did not work well; "
    "at scale cpu a slice of enwik8",
    grid=twin_grid(
        {**COMMON, "twins": {BOTH: {}, **ALONE}},
        {
            "corpus": ONE,
            # Windows as long as the fakes: the term sees all of the text that the cross-entropy sees.
            "smaller": {
                "demo": [{"data.limit": 1000, "data.held_out_limit": 300, "training.epochs": 2, "earm.start_epoch": 1,
                          "earm.window": 50}],
                "cpu": [{"data.limit": 50_000, "data.held_out_limit": 40_000, "data.length": 50, "training.epochs": 6,
                         "training.batch_size": 32}],
                "paper": [{"data.length": 50, "training.batch_size": 80}],
            },
        },
        seeds={"demo": 2, "cpu": 3, "paper": 3},
    ),
    run=run_without,
    figures=Figures(
        Figure(
            name=HELD_OUT, at="validation.{epoch}.1", range=(0.0, math.inf),
            each={"epoch": lambda twin: {place + 1: place for place in range(len(twin["validation"]))}},
        ),
        Figure(
            name=AT_THE_END, at=lambda twin: float(twin["validation"][-1][1]),
            minus={"trained by": CROSS_ENTROPY}, paper={SCRATCH: "did not work well"},
            about=lambda runs: {"epoch": len(runs[0][1]["validation"])},
        ),
        by=("trained by",),
        parts=each_twin(lambda cell, name: {"trained by": CROSS_ENTROPY if name == BASE else name}),
    ),
    tables=[*laid(("trained by",), ("epoch",), HELD_OUT), Layout(rows=("trained by",), figures=(AT_THE_END,))],
    plots=Curves(
        of={HELD_OUT: "{trained by}"}, x="epoch", title=HELD_OUT, by=("trained by",), dashed=tuple(ALONE)
    ),
    claims=Claim(says="by itself it costs more", figure=AT_THE_END, above=0.0, where={"trained by": SCRATCH}),
    reading=READING,
)  # fmt: skip
