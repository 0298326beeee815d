"""Transformer language models and their E-ARM twins: Tables 3 and 4 of Wang et al. 2022."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import stdev
from typing import Any

from ebar.data.corpus import Corpus
from ebar.data.stream import Stream
from ebar.data.text import read_tokens, texts_of
from ebar.data.tokenisers import Bytes
from ebar.evaluation.cross_entropy import cross_entropy
from ebar.evaluation.segments import segment_cost
from ebar.models.construction import Autoregressive
from ebar.recipes.earm.twins import BASE, LEFT, PAPER, curves, paper_figures, share_of_learning, train_twins, twin_grid
from ebar.recipes.figures import alone, found
from ebar.recipes.grid import PARTS
from ebar.recipes.pieces import Caption, Cell, Claim, Curves, Figure, Figures, Points, Recipe, Result, Row, layouts
from ebar.recipes.power import smallest
from ebar.recipes.rows import chosen, settings_of, text
from ebar.recipes.training import SAME_TEXT
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
    "earm.window": 10,
}  # fmt: skip
ENWIK8 = {
    **_corpus("enwik8-10m", "bin.xz"), "data.length": 100, "data.limit": 500_000, "data.held_out_limit": 50_000,
    "backbone.layers": 2, "backbone.hidden": 128, "backbone.heads": 4, "backbone.feedforward": 512,
    "backbone.dropout": 0.1, "optimiser.learning_rate": 2e-3, "schedule.warmup": 200, "training.epochs": 8,
    "training.batch_size": 16,
}  # fmt: skip
WIKITEXT2 = {
    **ENWIK8, **_corpus("wikitext-2", "txt.xz", 8000), "data.length": 50, "data.limit": 150_000,
    "data.held_out_limit": 40_000, "schedule.warmup": 100, "training.batch_size": 32,
}  # fmt: skip
WIKITEXT103 = {  # Table 6, Tr-Base
    **_corpus("wikitext-103", "txt.xz", 30_000), "data.length": 512, "data.limit": None, "data.held_out_limit": None,
    "backbone.layers": 6, "backbone.hidden": 512, "backbone.heads": 8, "backbone.feedforward": 2048,
    "backbone.dropout": 0.1, "optimiser.learning_rate": 5e-4, "optimiser.weight_decay": 1e-2, "schedule.warmup": 4000,
    "training.epochs": 40, "training.batch_size": 8,
}  # fmt: skip
STREAM_COLUMNS = 4  # of the test text, read side by side
XL = {"data.kind": "stream", "backbone.kind": "transformer_xl", "schedule.kind": "cosine"}  # Table 6, Tr-XL
TOY_XL = {
    **TOY, **XL, "corpus": "toy, Transformer-XL", "data.length": 10, "data.limit": 1000, "backbone.memory": 10,
    "training.epochs": 3, "training.batch_size": 4, "earm.window": 5,
}  # fmt: skip
WIKITEXT2_XL = {
    **WIKITEXT2, **XL, **_corpus("wikitext-2", "txt.xz", 1000), "corpus": "wikitext-2, Transformer-XL",
    "data.length": 64, "data.limit": 200_000, "backbone.memory": 64, "optimiser.learning_rate": 1e-3,
    "training.batch_size": 16, "training.drop_last": False,
}  # fmt: skip
WIKITEXT103_XL = {  # Table 6, Tr-XL; the head is a softmax, as E-ARM needs one whose shift is free
    **WIKITEXT103, **XL, "corpus": "wikitext-103, Transformer-XL", "data.length": 150, "backbone.memory": 150,
    "backbone.layers": 16, "backbone.hidden": 410, "backbone.heads": 10, "backbone.feedforward": 2100,
    "optimiser.learning_rate": 2.5e-4, "optimiser.weight_decay": 0.0, "schedule.warmup": 10_000,
    "training.batch_size": 60, "training.drop_last": False,
}  # fmt: skip
READING = Caption(shared=SAME_TEXT)


def runs_of(
    corpus: Mapping[str, Any], weights: Sequence[float], start: int, seeds: Sequence[int]
) -> list[dict[str, Any]]:
    """For each seed one run, whose twins, one for each λ, share its epochs up to the start."""
    twins = {f"{weight:g}": {"weight": weight} for weight in weights}
    return [{**corpus, "seed": seed, "start epoch": start, "earm.start_epoch": start, "twins": twins} for seed in seeds]


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """All twins, trained, and their cost on the test text."""
    corpus, twins = train_twins(cell, folder)
    words = tokens_per_word(corpus)
    measured = {}
    for name, twin in twins.items():
        costs = test_cost(twin.model, corpus)
        measured[name] = {
            "nats_per_token": costs,
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


def nats(twin: Mapping[str, Any]) -> float:
    """Of a token of the test text."""
    return float(found(twin, "nats_per_token").value)


def by_weight(cell: Cell, result: dict[str, Any]) -> Iterator[Result]:
    """A run as one for each λ, that of the base being 0, with the share of the learning that is left to E-ARM."""
    left = share_of_learning(cell, cell["start epoch"], result["twins"][BASE]["curves"]["validation"])
    for name, own in result["twins"].items():
        yield {**cell, "λ": 0.0 if name == BASE else float(name), "twin": name != BASE}, {**own, "left": left}


# Table 3 ----------------------------------------------------------------------------------------------------------

PERPLEXITY, GAIN = "perplexity per token", "test nats per token, E-ARM − without, paired"
SHARE = "effective share of the fakes, smallest logged"
# Corpus → perplexity without E-ARM (λ = 0) and with it, and that λ.
TABLE3_PAPER = {
    "wikitext-103": {0.0: 30.56, 0.05: 29.89},
    "wikitext-103, Transformer-XL": {0.0: 24.20, 0.02: 23.81},
}
TOLD = {"wikitext-103": -0.0222, "wikitext-103, Transformer-XL": -0.0162}  # ln 29.89/30.56, ln 23.81/24.20


def _theirs(cell: Mapping[str, Any]) -> str:
    """The row of the paper's table whose network a run has."""
    return "wikitext-103, Transformer-XL" if "Transformer-XL" in cell["corpus"] else "wikitext-103"


def _other_tokens(cells: Sequence[Cell]) -> list[str]:
    """What the paper has, where its figures are of other text and other tokens than ours."""
    others = dict.fromkeys(str(cell["corpus"]) for cell in cells)
    theirs = _theirs(cells[0])
    (_, without), (weight, with_earm) = TABLE3_PAPER[theirs].items()
    return [] if theirs in others else [
        f"The paper's perplexities, {without} and with E-ARM (λ = {weight:g}) {with_earm}, are of WikiText-103 and its "
        f"own tokens. On {' and '.join(others)} a token is something else (a piece of a small vocabulary, a byte), so "
        "that perplexities are not to be set beside them. What can be compared is the gain, in nats per token: theirs "
        f"is {TOLD[theirs]}, of which no spread over trainings is given."
    ]  # fmt: skip


def _power(rows: Sequence[Row]) -> str:
    """Whether these seeds would have told a gain such as the paper's from 0, whose tokens are others."""
    parts = []
    for row in chosen(rows, GAIN, {}):
        values = [float(value) for value in row.values or ()]
        if len(values) > 1:
            least = smallest(stdev(values), len(values))
            seen = "above" if least > abs(TOLD[_theirs(row.settings)]) else "below"
            parts.append(f"{settings_of(row)} {text(least)} ({seen} the paper's {TOLD[_theirs(row.settings)]})")
    return (
        "The smallest gain in nats per token that the seeds would have told from 0 with 80 % power, from the spread of "
        f"their paired differences: {'; '.join(parts) or 'not known from one seed'}."
    )


TABLE3 = Recipe(
    title="A Transformer language model with and without E-ARM",
    source=f"{PAPER}, Table 3 (WikiText-103); at scale cpu 500,000 bytes of enwik8 and 150,000 pieces of WikiText-2",
    grid=twin_grid(
        COMMON,
        {
            "run": {
                "demo": runs_of(TOY, (0.05, 0.5), 2, range(2)),
                "cpu": [
                    *runs_of(ENWIK8, (0.02, 0.05, 0.1, 0.2), 3, range(5)),
                    *runs_of(WIKITEXT2, (0.05,), 3, range(3)),
                ],
                "paper": runs_of(WIKITEXT103, (0.05,), 15, range(5)),
            }
        },
    ),
    run=run_cell,
    runs="earm/language",
    figures=Figures(
        Figure(
            name=PERPLEXITY, at=lambda twin: math.exp(nats(twin)),
            paper=lambda settings: TABLE3_PAPER.get(settings["corpus"], {}).get(settings["λ"]),
        ),
        Figure(name="bits per byte", at=lambda twin: nats(twin) / math.log(2), where={"corpus": "enwik8-10m"}),
        Figure(
            name="perplexity per word",
            at=lambda twin: None if (cost := twin["nats_per_word"]) is None else math.exp(float(cost)),
        ),
        Figure(
            name=GAIN, at=nats, minus={"λ": 0.0},
            paper={(corpus, list(rows)[1]): TOLD[corpus] for corpus, rows in TABLE3_PAPER.items()},
        ),
        Figure(
            name=SHARE, summary=alone(min), where={"twin": True},
            at=lambda twin: min(share for _, share in twin["curves"]["effective_share"]),
        ),
        Figure(name=LEFT, at="left", summary=alone(min), where={"twin": True}),
        by=("corpus", "λ"), parts=by_weight,
    ),
    tables=layouts(("corpus", "λ"), ("perplexity*", "bits*"), (GAIN, SHARE, LEFT)),
    plots=Points(of=[GAIN], label="{corpus}, λ = {λ:g}", title="Paired over seeds", x_label=GAIN),
    claims=[Claim(says="E-ARM lowers the perplexity", figure=GAIN, below=0.0), _power],
    reading=Caption(shared=READING.shared, departures=_other_tokens),
)  # fmt: skip
TABLE3_XL = replace(
    TABLE3,
    title="A Transformer-XL with and without E-ARM",
    source=f"{PAPER}, Table 3, the row of Transformer-XL (WikiText-103); at scale cpu a slice of WikiText-2 (BPE)",
    grid=twin_grid(
        COMMON,
        {
            "run": {
                "demo": runs_of(TOY_XL, (0.02,), 1, range(2)),
                "cpu": runs_of(WIKITEXT2_XL, (0.02,), 3, range(5)),
                "paper": runs_of(WIKITEXT103_XL, (0.02,), 10, range(5)),
            }
        },
    ),
    runs=None,
)  # fmt: skip

# Table 4 ----------------------------------------------------------------------------------------------------------

FROM_BEST = "test nats per token − that of the paper's best, paired"
BEST_WEIGHT, BEST_START = 0.05, {"toy": 2, "enwik8-10m": 3, "wikitext-103": 15}
STARTS = (5, 15, 25)  # of 40 epochs: ours, of 8, are the same shares
# Corpus and λ → perplexity, by the start epoch.
TABLE4_PAPER = {
    ("wikitext-103", 0.0): (30.56, 30.56, 30.56), ("wikitext-103", 0.01): (30.48, 30.12, 30.22),
    ("wikitext-103", 0.05): (30.43, 29.89, 30.16), ("wikitext-103", 0.1): (30.60, 30.03, 30.14),
    ("wikitext-103", 0.5): (30.71, 30.36, 30.47),
}  # fmt: skip


def _theirs_by_start(cells: Sequence[Cell]) -> list[str]:
    return [] if cells[0]["corpus"] == "wikitext-103" else [
        "The paper has E-ARM from epochs 5, 15 and 25 of 40 on, ours begins after the same shares of its epochs. Its "
        "best is λ = 0.05 from epoch 15 on, 0.67 in perplexity (0.022 nats) below the base; from 5 on it is 0.13 "
        "(0.004 nats), from 25 on 0.40 (0.013 nats), each of one training."
    ]  # fmt: skip


TABLE4_FIGURES = Figures(
    Figure(
        name=PERPLEXITY, at=lambda twin: math.exp(nats(twin)),
        paper=paper_figures(TABLE4_PAPER, STARTS, "corpus", "λ", "start epoch"),
    ),
    Figure(name=GAIN, at=nats, minus={"λ": 0.0}),
    Figure(
        name=FROM_BEST, at=nats, where={"twin": True},
        minus=lambda cell: {"λ": BEST_WEIGHT, "start epoch": BEST_START[cell["corpus"]]},
    ),
    Figure(name=LEFT, at="left", summary=alone(min), where={"λ": BEST_WEIGHT}),
    by=("λ", "start epoch"), parts=by_weight,
)  # fmt: skip
TABLE4 = Recipe(
    title="How λ and the start epoch of E-ARM matter to a language model",
    source=f"{PAPER}, Table 4 (WikiText-103, 40 epochs); at scale cpu enwik8, 8 epochs; the runs of earm/table3 and "
    "those of two more start epochs",
    grid=twin_grid(
        COMMON,
        {
            "run": {
                "demo": [*runs_of(TOY, (0.05, 0.5), 2, range(2)), *runs_of(TOY, (0.05, 0.5), 1, range(2))],
                "cpu": [
                    *runs_of(ENWIK8, (0.02, 0.05, 0.1, 0.2), 3, range(5)),
                    *(run for start in (1, 5) for run in runs_of(ENWIK8, (0.05,), start, range(3))),
                ],
                "paper": [
                    run for start in STARTS for run in runs_of(WIKITEXT103, (0.01, 0.05, 0.1, 0.5), start, range(3))
                ],
            }
        },
    ),
    run=run_cell,
    runs=TABLE3.runs,
    # By λ and start epoch, whichever runs came first.
    figures=lambda results: sorted(
        TABLE4_FIGURES(results), key=lambda row: (row.settings["λ"], row.settings["start epoch"])
    ),
    tables=[
        *layouts(("λ",), PERPLEXITY, GAIN, FROM_BEST, columns=("start epoch",)), *layouts(("start epoch",), (LEFT,)),
    ],
    plots=Curves(of={GAIN: "λ = {λ:g}"}, x="start epoch", title=GAIN, by=("λ",)),
    claims=[
        Claim(says="E-ARM lowers the cost, whatever λ and start epoch", figure=GAIN, below=0.0),
        Claim(says="no other λ or start epoch is as good as λ = 0.05 from 3/8 on", figure=FROM_BEST, above=0.0),
    ],
    reading=Caption(shared=READING.shared, departures=_theirs_by_start),
)  # fmt: skip
