"""Tables A.3 and A.12: LSTMs without dropout on shuffled news, and on characters, where a softmax is no bottleneck."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ebar.recipes.figures import found
from ebar.recipes.mos.measures import PLAIN, run_cell
from ebar.recipes.mos.words import PAPER, SEEDS, STREAM, dropouts, group, head, text
from ebar.recipes.pieces import Caption, Claim, Figure, Figures, Points, Recipe, layouts
from ebar.recipes.training import SAME_TEXT, training_grid

NONE = {**STREAM, **dropouts(embedding=0.0, input=0.0, hidden=0.0, output=0.0, weight=0.0)}
BASE, MIXED = "Softmax", "MoS"
PARTS = ("train", "validation", "test")


def _cost(result: Mapping[str, Any], part: str) -> float:
    """Nats per token; of training data as the last updates saw it."""
    cost = found(result["evaluations"][PLAIN], part) if part != "train" else result["training"]
    return float(getattr(cost, "value", cost))


def _model(name: str, components: int, **sizes: int) -> dict[str, Any]:
    return {"model": name, **head(components), **group("backbone", **sizes)}


def _reading(corpus: str, said: str, *departures: str) -> Caption:
    return Caption(
        shared=SAME_TEXT,
        elsewhere=lambda cells: None if cells[0]["corpus"] == corpus else said,
        departures=lambda cells: list(departures),
    )


def _figures(
    name: str, unit: Callable[[float], float], paper: Mapping[str, Sequence[float]], against: str
) -> Figures:  # fmt: skip
    """A figure of each part, and the test figure in that of the softmax, paired by seed."""
    return Figures(
        Figure(name="parameters", at="parameters", bare=True),
        Figure(
            name=name, at=lambda result, part: unit(_cost(result, part)), range=(0.0, math.inf), each={"part": PARTS},
            paper=lambda row: paper[row["model"]][PARTS.index(row["part"])] if row["model"] in paper else None,
        ),
        Figure(name=against, at=lambda run: unit(_cost(run, "test")), over={"model": BASE}, range=(0.0, math.inf)),
        by=("model",),
    )  # fmt: skip


# Table A.3 ----------------------------------------------------------------------------------------------------------

TABLE_A3_AGAINST = "test perplexity ÷ that of Softmax"
NEWS = {"demo": {
    **text("toy", "txt", shuffle=True, length=10, vocabulary=None, limit=900, held_out_limit=300),
    **group("optimiser", kind="adam", learning_rate=1e-2), **group("training", epochs=2, batch_size=5),
    **group("measures", parts=["validation", "test"], segment=20, updates=20), "backbone.layers": 2,
}, "cpu": {
    **text("gmb-news", "txt.xz", shuffle=True, length=35, vocabulary=5000, limit=200_000, held_out_limit=20_000),
    **group("optimiser", kind="sgd", learning_rate=20.0), **group("schedule", kind="cosine", warmup=50),
    **group("training", epochs=2, batch_size=10), "backbone.layers": 2,
    **group("measures", parts=["validation", "test"], segment=70, updates=100),
}, "paper": {
    **text("one-billion-word", "txt", shuffle=False, length=35, vocabulary=100_000, limit=None, held_out_limit=None),
    **group("optimiser", kind="sgd", learning_rate=20.0), **group("training", epochs=10, batch_size=60),
    **group("measures", parts=["validation", "test"], segment=70, updates=4000), "backbone.layers": 2,
}}  # fmt: skip
NEWS_MODELS = {
    "demo": [_model(BASE, 1, embedding=6, hidden=12), _model(MIXED, 2, embedding=4, hidden=12, last=8)],
    "cpu": [_model(BASE, 1, embedding=64, hidden=128), _model(MIXED, 3, embedding=56, hidden=142, last=72)],
    # Table A.10.
    "paper": [_model(BASE, 1, embedding=1024, hidden=1024), _model(MIXED, 7, embedding=900, hidden=1024, last=1024)],
}
TABLE_A3 = Recipe(
    title="A large corpus of sentences in no order: a softmax and a mixture of softmaxes, without dropout",
    source=f"{PAPER}, Table A.3 (One Billion Word); at scale cpu news of the Groningen Meaning Bank, its sentences "
    "shuffled",
    grid=training_grid({**NONE, "data.tokeniser": "words"}, {"model": NEWS_MODELS}, scales=NEWS, seeds=SEEDS),
    run=run_cell,
    figures=_figures(
        "perplexity, {part}", math.exp, {BASE: (41.47, 43.86, 42.77), MIXED: (36.39, 38.01, 37.10)}, TABLE_A3_AGAINST
    ),
    tables=layouts(("model",), ("parameters", "perplexity,*"), (TABLE_A3_AGAINST,)),
    plots=Points(of=[TABLE_A3_AGAINST], label="{model}", title="Paired over seeds", x_label="ratio − 1", less=1.0),
    claims=Claim(says="the mixture has a lower perplexity", figure=TABLE_A3_AGAINST, below=1.0),
    reading=_reading(
        "one-billion-word", "One Billion Word",
        "Neither thesis nor code says how many passes over the text were made; at scale paper it is read ten times. "
        "The thesis's text is in lower case, which a file given at scale paper must be. At scale cpu both models have "
        "the rate 20, where the runs of Table A.1 give mixtures 15: no other was tried, so that part of what a mixture "
        "loses may be its rate's.",
    ),
)  # fmt: skip

# Table A.12 ---------------------------------------------------------------------------------------------------------

TABLE_A12_AGAINST = "test bits per character ÷ those of Softmax"


def _characters(components: int, hidden: int, embedding: int) -> dict[str, Any]:
    """One layer, as wide as said."""
    name = BASE if components == 1 else f"{MIXED}-{components} (hid {hidden}, emb {embedding})"
    return _model(name, components, layers=1, last=hidden, embedding=embedding)


LETTERS = {"demo": {
    **text("toy", "txt", clean="text8", length=20, limit=4000, held_out_limit=600),
    **group("optimiser", kind="adam", learning_rate=1e-2), **group("training", epochs=2, batch_size=10),
    **group("measures", parts=["validation", "test"], segment=50, updates=20),
}, "cpu": {
    **text("enwik8-10m", "bin.xz", clean="wikipedia", length=50, limit=400_000, held_out_limit=30_000),
    **group("optimiser", kind="adam", learning_rate=4e-3), **group("schedule", kind="cosine", warmup=50),
    **group("training", epochs=2, batch_size=8),
    **group("measures", parts=["validation", "test"], segment=200, updates=100),
}, "paper": {
    **text("text8", "txt", clean="text8", length=200, limit=None, held_out_limit=None),
    **group("optimiser", kind="adam", learning_rate=1e-3), **group("schedule", kind="cosine", warmup=50),
    **group("training", epochs=20, batch_size=128),
    **group("measures", parts=["validation", "test"], segment=200, updates=4000),
}}  # fmt: skip
LETTERS_MODELS = {
    "demo": [_characters(1, 16, 16), _characters(3, 12, 8)],
    "cpu": [_characters(1, 160, 160), _characters(7, 142, 80), _characters(7, 117, 117)],
    "paper": [
        _characters(1, 1024, 1024), _characters(7, 910, 510), _characters(7, 750, 750), _characters(10, 860, 452),
        _characters(10, 683, 683),
    ],
}  # fmt: skip
# Bits per character of training, validation and test text.
BITS = {
    BASE: (1.35, 1.41, 1.49), "MoS-7 (hid 910, emb 510)": (1.35, 1.40, 1.49),
    "MoS-7 (hid 750, emb 750)": (1.38, 1.42, 1.50), "MoS-10 (hid 860, emb 452)": (1.35, 1.41, 1.49),
    "MoS-10 (hid 683, emb 683)": (1.38, 1.42, 1.50),
}  # fmt: skip
TABLE_A12 = Recipe(
    title="Characters, of which there are fewer than a softmax has dimensions: a mixture gains nothing",
    source=f"{PAPER}, Table A.12 (text8); at scale cpu the beginning of enwik8 in letters and blanks, as text8 is",
    grid=training_grid(
        {**NONE, "data.tokeniser": "characters", "data.vocabulary": None}, {"model": LETTERS_MODELS}, scales=LETTERS,
        seeds=SEEDS,
    ),
    run=run_cell,
    figures=_figures("bits per character, {part}", lambda nats: nats / math.log(2), BITS, TABLE_A12_AGAINST),
    tables=layouts(("model",), ("parameters", "bits per character,*"), (TABLE_A12_AGAINST,)),
    plots=Points(of=[TABLE_A12_AGAINST], label="{model}", title="Paired over seeds", x_label="ratio − 1", less=1.0),
    claims=Claim(says="with few characters a mixture gains less than 1 %", figure=TABLE_A12_AGAINST, above=0.99),
    reading=_reading(
        "text8", "text8", "The thesis does not say how the character models were trained; ours by Adam.",
    ),
)  # fmt: skip
