"""Table A.4: a mixture of softmaxes in the decoder of a sequence-to-sequence model, with several answers to a sentence.

The thesis has telephone talks (Switchboard), where a turn has several good answers. Of Tatoeba, English sentences
serve, which have up to eight German translations.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from ebar.data.corpus import Corpus
from ebar.evaluation.cross_entropy import cross_entropy, negative_log_scores
from ebar.evaluation.dialogue import ORDERS, answer_bleu
from ebar.models.construction import Autoregressive
from ebar.recipes.earm.translation import translation_pairs
from ebar.recipes.figures import crossed, found, row_of
from ebar.recipes.mos.words import PAPER, group, head
from ebar.recipes.pieces import Caption, Cell, Claim, Figure, Figures, Points, Recipe, Result, Row, layouts
from ebar.recipes.training import trained, training_grid
from ebar.samplers.beam import decode_contexts

SOFTMAX, MOC, MOS = "Seq2Seq-Softmax", "Seq2Seq-MoC", "Seq2Seq-MoS"
WIDTH, KEPT, LONGEST = 10, 5, 30  # of the beam; answers kept of it; tokens of an answer
SWITCHBOARD = "switchboard"


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """The model, trained; its perplexity, and BLEU of its answers."""
    run = trained(cell, folder)
    test, sources = run.data.sequences("test"), run.data.sources("test")
    scored = cross_entropy(run.model, test, context=sources)
    answers, references = answered(run.model, run.data, cell["measures"]["sentences"])
    return {
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "nats": scored.pooled_per_token,
        "costs": negative_log_scores(run.model, test, sources).tolist(),
        "tokens": test.lengths.tolist(),
        "bleu": {str(order): own._asdict() for order, own in answer_bleu(answers, references).items()},
    }


def answered(model: Autoregressive, data: Corpus, most: int | None) -> tuple[list[list[str]], list[list[str]]]:
    """For each of the first test sentences, the answers of a beam search and all that people gave."""
    sources = data.sources("test")
    assert data.written is not None
    assert sources is not None
    places: dict[str, list[int]] = {}
    for place, (source, _) in enumerate(data.written):
        places.setdefault(source, []).append(place)
    asked = list(places.values())[:most]
    context = sources.select(torch.tensor([own[0] for own in asked]))
    beams = decode_contexts(
        model, context, width=WIDTH, best=KEPT, maximal_length=min(LONGEST, model.space.length), enough=WIDTH
    )
    texts = data.text(beams.x)
    lengths = beams.x.lengths.tolist()
    answers = [
        [text for text, length in zip(texts[row : row + KEPT], lengths[row : row + KEPT], strict=True) if length]
        for row in range(0, len(texts), KEPT)
    ]
    return answers, [[data.written[place][1] for place in own] for own in asked]


def _model(name: str, components: int, size: int | None, **other: Any) -> dict[str, Any]:
    return {"model": name, **head(components, contexts=name == MOC), **({} if size is None else {"head.size": size}),
            **other}  # fmt: skip


def _models(components: int, size: int) -> list[dict[str, Any]]:
    """A mixture's vectors are shorter, so that it has as many parameters."""
    return [_model(SOFTMAX, 1, None), _model(MOC, components, size), _model(MOS, components, size)]


SCALES: dict[str, dict[str, Any]] = {
    "demo": {
        **translation_pairs("toy", "de→en"), **group("data", vocabulary=300, length=40, limit=150, held_out_limit=None),
        **group("backbone", layers=1, encoder_layers=1, hidden=16, heads=2, feedforward=32, dropout=0.1),
        **group("training", epochs=2, batch_tokens=1024, held_out_batch=8192, maximal_length=40),
        "optimiser.learning_rate": 5e-3, "schedule.warmup": 5, "measures.sentences": 15,
    },
    "cpu": {
        **translation_pairs("tatoeba-deu-eng", "en→de"),
        **group("data", vocabulary=2000, length=50, limit=12_000, held_out_limit=1500),
        **group("backbone", layers=1, encoder_layers=1, hidden=128, heads=4, feedforward=512, dropout=0.1),
        **group("training", epochs=6, batch_tokens=2048, held_out_batch=16_384, maximal_length=100),
        "optimiser.learning_rate": 2e-3, "schedule.warmup": 100, "measures.sentences": 400,
    },
    "paper": {
        **group("data", **{part: f"{SWITCHBOARD}/{part}.tsv" for part in ("train", "validation", "test")}),
        "corpus": SWITCHBOARD, **group("data", vocabulary=10_000, length=100, limit=None, held_out_limit=None),
        **group("backbone", layers=2, encoder_layers=2, hidden=400, heads=4, feedforward=1600, dropout=0.3),
        **group("training", epochs=30, batch_tokens=4096, held_out_batch=32_768, maximal_length=100),
        "optimiser.learning_rate": 5e-4, "schedule.warmup": 4000, "measures.sentences": None,
    },
}  # fmt: skip
GRID = training_grid(
    {
        **group("data", kind="parallel", tokeniser="bpe"), "backbone.kind": "encoder_decoder",
        **group("training", clip=1.0, patience=1000, checkpoint_every=200), "optimiser.betas": [0.9, 0.98],
        "schedule.kind": "cosine",
    },
    {"model": {"demo": _models(2, 12), "cpu": _models(3, 108), "paper": _models(5, 300)}},
    scales=SCALES,
    seeds={"demo": 1, "cpu": 1, "paper": 3},
)  # fmt: skip
SIDES = ("precision", "recall")
PERPLEXITIES = {SOFTMAX: 34.657, MOC: 33.291, MOS: 32.727}
# Precision and recall of BLEU-1 to BLEU-4, here of 100.
BLEUS = {
    SOFTMAX: ((24.9, 18.8), (19.3, 15.1), (16.8, 13.3), (14.1, 11.1)),
    MOC: ((25.9, 19.8), (20.2, 15.9), (17.6, 14.0), (14.8, 11.7)),
    MOS: ((27.2, 20.6), (21.3, 16.6), (18.5, 14.6), (15.7, 12.3)),
}
BLEU = "BLEU-{order}, {side}"
PAIRED = f"nats per token − {SOFTMAX}'s, paired over test sentences"


def compared(results: Sequence[Result]) -> Iterator[Row]:
    """How much less a mixture's test sentences cost than a softmax's: over sentences, and over seeds if there are."""
    costs: dict[str, list[list[float]]] = {}
    for cell, result in results:
        costs.setdefault(cell["model"], []).append(result["costs"])
    tokens = results[0][1]["tokens"]
    for model in (MOC, MOS):
        pairs = zip(costs[model], costs[SOFTMAX], strict=True)
        gains = [[one - other for one, other in zip(*pair, strict=True)] for pair in pairs]
        seeds = f"{len(gains)} seeds" if len(gains) > 1 else "one training"
        yield row_of(
            PAIRED, {"model": model}, crossed(gains, tokens), over=f"{len(tokens):,} test sentences, {seeds}",
            document=round(math.log(PERPLEXITIES[model] / PERPLEXITIES[SOFTMAX]), 4),
        )  # fmt: skip


TABLE_A4 = Recipe(
    title="A mixture of softmaxes in the decoder of a sequence-to-sequence model",
    source=f"{PAPER}, Table A.4 (Switchboard); at scale cpu sentences of Tatoeba, en→de",
    grid=GRID,
    run=run_cell,
    figures=[Figures(
        Figure(name="parameters", at="parameters", bare=True),
        Figure(
            name="perplexity", at=lambda result: found(result, "nats").mapped(math.exp), range=(0.0, math.inf),
            shared="test sentences", paper=PERPLEXITIES,
        ),
        Figure(
            name=BLEU, at="bleu.{order}.{side}", range=(0.0, 100.0), shared="test sentences",
            each={"order": [str(order) for order in ORDERS], "side": SIDES},
            paper=lambda row: BLEUS[row["model"]][int(row["order"]) - 1][SIDES.index(row["side"])],
        ),
        by=("model",),
    ), lambda results: list(compared(results))],
    tables=layouts(("model",), ("parameters", "perplexity"), PAIRED, ("BLEU-1*", "BLEU-2*"), ("BLEU-3*", "BLEU-4*")),
    plots=[
        Points(of=[PAIRED], label="{model}", title="Test sentences", x_label=PAIRED),
        Points(of=["BLEU-4*"], label="{model}, {figure}", title="BLEU-4 of five answers", x_label="BLEU"),
    ],
    claims=[
        Claim(says="a mixture of softmaxes has a lower perplexity than a softmax", figure=PAIRED, below=0.0,
              where={"model": MOS}),
        Claim(says="so has a mixture of contexts", figure=PAIRED, below=0.0, where={"model": MOC}),
    ],
    reading=Caption(
        items="test sentences, one training",
        elsewhere=lambda cells: None if cells[0]["corpus"] == SWITCHBOARD else "Switchboard",
        departures=lambda cells: [
            "The thesis does not say how its models were built and trained: ours are Transformers, with mixtures whose "
            "vectors are shorter so that all have as many parameters. Sentence BLEU is smoothed as sacreBLEU does, "
            "theirs by another rule: values are not to be compared, the order of models may be. Theirs are of 1, and "
            "shown here of 100.",
            "One training of each: intervals are over test sentences and say nothing of another seed.",
        ],
    ),
)  # fmt: skip
