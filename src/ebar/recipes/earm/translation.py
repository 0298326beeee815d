"""Translation with and without E-ARM: one run measured in every way that a table of Wang et al. 2022 asks for."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from jaxtyping import Bool
from torch import Generator, Tensor

from ebar.data.corpus import Corpus
from ebar.data.tokenisers import Spells
from ebar.energies.linear import OwnLogits, Reading
from ebar.evaluation.cross_entropy import cross_entropy
from ebar.evaluation.exposure_bias import exposure_bias
from ebar.evaluation.translation import bleu, bleu_by_length, bleu_difference, meteor, missing_for_meteor, rouge
from ebar.maths.log_space import effective_sample_size
from ebar.maths.randomness import folded
from ebar.models.construction import Autoregressive
from ebar.models.tilted import measured_energy
from ebar.recipes.earm.twins import BASE, EARM, curves, train_twins, twin_grid
from ebar.recipes.grid import PARTS, Grid, at
from ebar.recipes.recipe import Caption, Cell, Row
from ebar.samplers.beam import decode_contexts
from ebar.samplers.importance import flat_indices, multinomial
from ebar.samplers.joint import energy_resampling

# Fakes as long as their source lets them be, and two recent factors, are what E-ARM has by itself.
COMMON = {
    "data.kind": "parallel", "backbone.kind": "encoder_decoder", "optimiser.betas": [0.9, 0.98],
    "training.checkpoint_every": 200,
}  # fmt: skip
# The paper's Table 6, and what fits on two cores.
SCALES: dict[str, dict[str, Any]] = {
    "demo": {
        "data.vocabulary": 300, "data.length": 40, "data.limit": 150, "data.held_out_limit": None,
        "backbone.layers": 1, "backbone.encoder_layers": 1, "backbone.hidden": 16, "backbone.heads": 2,
        "backbone.feedforward": 32, "backbone.dropout": 0.1, "optimiser.learning_rate": 5e-3, "schedule.warmup": 5,
        "training.epochs": 2, "training.batch_tokens": 1024, "training.held_out_batch": 8192,
        "training.maximal_length": 40, "earm.start_epoch": 1, "measures.edges": [2, 3],
    },
    "cpu": {
        "data.vocabulary": 2000, "data.length": 50, "data.limit": 10_000, "data.held_out_limit": 1000,
        "backbone.layers": 1, "backbone.encoder_layers": 1, "backbone.hidden": 128, "backbone.heads": 4,
        "backbone.feedforward": 512, "backbone.dropout": 0.1, "optimiser.learning_rate": 2e-3, "schedule.warmup": 200,
        "training.epochs": 20, "training.batch_tokens": 2048, "training.held_out_batch": 16_384,
        "training.maximal_length": 100, "earm.start_epoch": 7, "measures.edges": [6, 10],
    },
    "paper": {
        "data.vocabulary": 10_000, "data.length": 176, "data.limit": None, "data.held_out_limit": None,
        "backbone.layers": 6, "backbone.encoder_layers": 6, "backbone.hidden": 512, "backbone.heads": 4,
        "backbone.feedforward": 1024, "backbone.dropout": 0.3, "optimiser.learning_rate": 5e-4,
        "optimiser.weight_decay": 1e-4, "schedule.warmup": 4000, "training.epochs": 100, "training.batch_tokens": 4096,
        "training.held_out_batch": 32_768, "training.maximal_length": 256, "earm.start_epoch": 15,
        "measures.edges": [25, 50],
    },
}  # fmt: skip
SEEDS = {"demo": range(2), "cpu": range(3), "paper": range(5)}
DIRECTIONS = ("de→en", "en→de", "en→it", "it→en", "es→en", "en→es")
SMOOTHED, SCHEDULED = "label smoothing", "scheduled sampling"
# Options of the objective, with E-ARM and without. Scheduled sampling has 80 % true tokens at the end of training.
VARIANTS: dict[str, dict[str, Any]] = {
    BASE: {}, SMOOTHED: {"label_smoothing": 0.1}, SCHEDULED: {"label_smoothing": 0.1, "slope": None, "floor": 0.8},
}  # fmt: skip
WIDTHS = (1, 5)  # of the beam
KEPT = 200  # translations written down: the longest, in which there is more to go wrong


def translation_grid(
    variants: Any = tuple(VARIANTS), paper: Sequence[str] = DIRECTIONS, *, ours: str = "de→en",
    corpus: str = "iwslt14", **more: Any,
) -> Grid:  # fmt: skip
    """Runs of these variants, the same or others at each scale; seeds first, so that whole pairs are there early."""
    directions = {
        "demo": [translation_pairs("toy", ours)],
        "cpu": [translation_pairs("tatoeba-deu-eng", ours)],
        "paper": [translation_pairs(corpus, direction) for direction in paper],
    }
    own = {scale: [_variant(name) for name in at(scale, variants)] for scale in SCALES}
    return twin_grid(COMMON, {"seed": SEEDS, "direction": directions, "variant": own, **more}, scales=SCALES)


def _variant(name: str) -> dict[str, Any]:
    options = {f"{of}.{key}": value for of in ("objective", "earm") for key, value in VARIANTS[name].items()}
    if name == SCHEDULED:
        options |= {"objective.kind": "scheduled_sampling", "earm.base": "scheduled_sampling"}
    return {"variant": name, **options, "measures.candidates": [5, 10] if name == SMOOTHED else []}


def translation_pairs(corpus: str, direction: str) -> dict[str, Any]:
    """IWSLT14 and WMT16 as fairseq's scripts leave them: a file for each language. The others: one with tabs."""
    tabs = {"toy": ("tsv", "de", "en"), "tatoeba-deu-eng": ("tsv.xz", "en", "de")}
    sides = dict(zip(("source", "target"), direction.split("→"), strict=True))
    found: dict[str, Any] = {"corpus": corpus, "direction": direction}
    for part, name in PARTS.items():
        if corpus in tabs:
            found[f"data.{part}"] = f"{corpus}/{name}.{tabs[corpus][0]}"
            found |= {f"data.{side}_column": tabs[corpus].index(one) - 1 for side, one in sides.items()}
        else:
            found[f"data.{part}"] = f"{corpus}/{name}.{sides['source']}"
            found[f"data.{part}_target"] = f"{corpus}/{name}.{sides['target']}"
    return {**found, "measures.meteor": sides["target"] == "en"}  # its synonyms are English


def run_cell(cell: Cell, folder: Path) -> dict[str, Any]:
    """Both twins, trained and measured."""
    corpus, twins = train_twins(cell, folder)
    assert corpus.written is not None
    references = [target for _, target in corpus.written]
    texts = {name: {str(w): translated(twin.model, corpus, w) for w in WIDTHS} for name, twin in twins.items()}
    return {
        "twins": {
            name: {**translation_figures(cell, corpus, twin.model, texts[name]), "curves": curves(twin)}
            for name, twin in twins.items()
        },
        "difference": {w: bleu_difference(texts[EARM][w], texts[BASE][w], references) for w in texts[BASE]},
        "exposure": {
            part: exposure_figures(twins[EARM].model, twins[BASE].model, corpus, part, cell["seed"])
            for part in ("train", "test")
        },
        "sources": [source for source, _ in corpus.written[-KEPT:]],
        "references": references[-KEPT:],
    }


def translated(model: Autoregressive, corpus: Corpus, width: int) -> list[str]:
    """The test sources: greedy for width 1, else by beam search.

    At most twice the source and ten more tokens: longer than any reference here, and a bound on a bad model.
    """
    sources = corpus.sources("test")
    assert sources is not None
    limits = (2 * sources.given.lengths + 10).clamp(max=corpus.space.length)
    return corpus.text(decode_contexts(model, sources, width=width, maximal_length=limits, enough=width).first())


def translation_figures(
    cell: Cell, corpus: Corpus, model: Autoregressive, texts: Mapping[str, list[str]]
) -> dict[str, Any]:
    """BLEU of the translations, by the width of the beam, and more of the widest beam's."""
    measures, sources, best = cell["measures"], corpus.sources("test"), texts[str(max(WIDTHS))]
    assert corpus.written is not None
    references = [target for _, target in corpus.written]
    with_meteor = measures["meteor"] and missing_for_meteor() is None
    return {
        "bleu": {width: bleu(own, references).score for width, own in texts.items()},
        "by_length": {part.name: part.score for part in bleu_by_length(best, references, edges=measures["edges"])},
        "overlap": rouge(best, references) | ({"METEOR": meteor(best, references)} if with_meteor else {}),
        "resampling": {str(k): _resampling(model, corpus, k, cell["seed"]) for k in measures["candidates"]},
        "nats_per_token": cross_entropy(model, corpus.sequences("test"), context=sources).pooled_per_token,
        "texts": best[-KEPT:],
    }


# How one of K candidates is chosen: drawn in proportion to a weight, or the one whose weight is largest. The weights
# are e^(logit of the last token), which is the paper's wording (section 4); q·e^LSE, which is what its equations make
# p_θ; and q itself, without an energy.
WEIGHTS = ("last logit", "q·exp(LSE)", "q alone")
WAYS = tuple(f"{way} by {weight}" for way in ("drawn", "best") for weight in WEIGHTS)


def _resampling(model: Autoregressive, corpus: Corpus, candidates: int, seed: int) -> dict[str, Any]:
    """BLEU by the way to choose, and by the weight how many of the K candidates are in the running."""
    assert corpus.written is not None
    references = [target for _, target in corpus.written]
    texts, effective = resampled(model, corpus, candidates, seed)
    return {"bleu": {way: bleu(own, references).score for way, own in texts.items()}, "effective": effective}


def resampled(
    model: Autoregressive, corpus: Corpus, candidates: int, seed: int
) -> tuple[dict[str, list[str]], dict[str, float]]:
    """One of the K likeliest translations that a beam of K finds, chosen in every way (section D.4).

    And the effective number of candidates by each weight, the mean over sentences: K where all are alike.
    """
    sources = corpus.sources("test")
    generator = Generator().manual_seed(folded(seed, candidates))
    beam = energy_resampling(model, sources, candidates=candidates, distinct=True, generator=generator)
    pool, joint = beam.candidates.x, beam.candidates.log_weights  # those of q·e^LSE
    with torch.no_grad():
        lse, logit = (
            -measured_energy(OwnLogits(model, reading), pool, sources).double().view_as(joint)
            for reading in get_args(Reading)
        )
    absent = joint == -math.inf  # where there are fewer than K
    weights = dict(zip(WEIGHTS, (logit.masked_fill(absent, -math.inf), joint, joint - lse), strict=True))
    texts, effective = {}, {}
    for weight, log_weights in weights.items():
        effective[weight] = float(effective_sample_size(log_weights).mean())
        ways = {"drawn": multinomial(log_weights, 1, generator), "best": log_weights.argmax(1, keepdim=True)}
        for way, chosen in ways.items():
            texts[f"{way} by {weight}"] = corpus.text(pool.select(flat_indices(chosen, candidates)))
    return texts, effective


PAIRS = 1000  # sentence pairs that exposure bias is counted on, as in the paper


def exposure_figures(
    model: Autoregressive, baseline: Autoregressive, corpus: Corpus, part: str, seed: int
) -> dict[str, Any]:
    """Table 8 on a part of the data, counted in words and in tokens."""
    x, sources = corpus.sequences(part), corpus.sources(part)
    assert sources is not None
    rows = torch.randperm(len(x.lengths), generator=Generator().manual_seed(folded(seed, 5)))[:PAIRS]
    some = x.select(rows), sources.select(rows)
    begins = word_beginnings(corpus)
    return {
        of: exposure_bias(model, baseline, *some, begins=own)._asdict()
        for of, own in (("words", begins), ("tokens", None))
    }


def word_beginnings(corpus: Corpus) -> Bool[Tensor, " vocabulary"]:
    """Which tokens a word begins with: those that spell a blank first, as words stand between blanks."""
    assert isinstance(corpus.tokeniser, Spells)
    spelt = [*corpus.tokeniser.spellings(), *[None] * corpus.space.vocabulary][: corpus.space.vocabulary]
    return torch.tensor([one is not None and one[:1].isspace() for one in spelt])


SENTENCES = "test sentences"


def sentences(row: Row, cells: Sequence[Cell]) -> str:
    """What the interval of a single run is over."""
    count = cells[0]["configuration"]["data"]["held_out_limit"]
    return f"{'all' if count is None else f'{count:,}'} {SENTENCES}, one training"


def elsewhere(corpus: str, said: str) -> Any:
    """Of which data the paper's figures are, where ours are of others."""
    return lambda cells: None if cells[0]["corpus"] == corpus else said


READING = Caption(
    items=sentences,
    shared="All seeds are tested on the same sentences: an interval over seeds alone holds the error of training and "
    "not that of which sentences were tested, so that on other sentences differences may vary more than it says.",
    elsewhere=elsewhere("iwslt14", "IWSLT14"),
)
