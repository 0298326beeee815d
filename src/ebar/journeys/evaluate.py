"""How good a model is on held-out data, with intervals: which figures, is decided by the kind of data.

And what a text costs a model that goes on learning from it: dynamic evaluation as a user asks for it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from ebar.automata import measures
from ebar.data.corpus import Corpus
from ebar.data.stream import Stream
from ebar.data.tokenisers import Bytes, Tokeniser
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.evaluation.blocks import BLOCKS
from ebar.evaluation.cross_entropy import CrossEntropy, StreamCost, bits_per_dimension, cross_entropy, stream_cost
from ebar.evaluation.dynamic import (
    DECAY,
    EPSILON,
    LEARNING_RATE,
    DynamicCost,
    Rates,
    dynamic_evaluation,
    from_old_scaling,
    gradient_statistics,
)
from ebar.evaluation.moments import frequencies, mean_length
from ebar.evaluation.segments import in_columns, segment_cost
from ebar.evaluation.translation import bleu, bleu_by_length
from ebar.features.feature import Feature, Features, bind
from ebar.features.regular import Motif
from ebar.maths.randomness import default_generator
from ebar.report.page import Samples
from ebar.report.run_page import write_run_page
from ebar.samplers.beam import by_source, decode_contexts
from ebar.shards import Workers
from ebar.training.batches import to_device
from ebar.training.run import Run
from ebar.types import Context, Estimate, Sequences, Stepwise

SHOWN = 30  # translations or draws on the page
WINDOWS = 5  # of text, drawn for the page
HYPOTHESES, REFERENCES = "hypotheses.txt", "references.txt"  # of a run that translates, a line for each test pair
COLUMNS = 10  # of a stream, read side by side (Dai et al. 2019)


@dataclass(frozen=True)
class Evaluated:
    """Figures by name (estimates, and words such as a signature), and lines to show."""

    figures: dict[str, object]
    samples: Samples | None = None
    about: str = ""
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)  # lines of files, by name

    def write(self, folder: Path) -> Path:
        """Adds the figures to results.json of a run, keeps translations, and writes report.html: its path."""
        for name, lines in self.files.items():
            Run(folder).write(name, "".join(f"{' '.join(one.splitlines())}\n" for one in lines).encode())
        Run(folder).add_results(evaluation=self.figures)
        return write_run_page(folder, figures=self.figures, samples=self.samples)


@torch.no_grad()
def evaluate(
    model: Stepwise,
    data: Corpus,
    *,
    features: Sequence[Feature] = (),
    draws: int = 2000,
    width: int = 5,
    length_penalty: float = 1.0,
    edges: Sequence[int] = (6, 10),
    stride: int | None = None,
    segment: int | None = None,
    columns: int = COLUMNS,
    memory: int | None = None,
    clamp_length: int | None = None,
    same_length: bool | None = None,
    generator: Generator | None = None,
    workers: Workers | None = None,
) -> Evaluated:
    """On `data.test`. Translations: perplexity, and BLEU of a beam of this width, in all and by the length of the
    target (`edges`). Images: bits per dimension. Text: perplexity per token, byte and word, in windows that move on by
    `stride`. A stream: the same, its memory carried through segments of `segment` tokens in `columns` side by side;
    `memory`, `clamp_length` and `same_length` are the backbone's at evaluation. Sequences, with an end or of a fixed
    length: cross-entropy, next to the entropy where the language is known, and how often `features` are in `draws`
    draws. With `workers`, test items are scored and translated in shards by them, streams and draws excepted.
    """
    device = str(device_of(model))
    generator = default_generator(device) if generator is None else generator
    ends = data.space.end is not None or data.space.completes  # else a text that has no end
    if features and (data.source_tokeniser is not None or data.tokeniser is None or not ends):
        raise UserError(
            "Features are counted in draws of whole sequences, which text, translations and images are not: leave them "
            "out."
        )
    reading = {"segment": segment, "memory": memory, "clamp_length": clamp_length, "same_length": same_length}
    if isinstance(part := data.parts["test"], Stream) and stride is None:
        return _stream(model, data, part, columns, reading, generator)
    if any(value is not None for value in reading.values()):
        raise UserError(
            "Only data of kind stream are read by segments, and without a stride: leave out segment, memory, "
            "clamp_length and same_length."
        )
    test = to_device(data.test, device)
    if (sources := data.sources("test")) is not None:
        beam = {"width": width, "length_penalty": length_penalty}
        return _translations(model, data, test, to_device(sources, device), beam, edges, workers)
    if data.tokeniser is None:
        return Evaluated({"bits_per_dimension": bits_per_dimension(model, test, workers=workers)})
    if not ends:
        stream, length = test.tokens.flatten(), data.space.length
        costs = stream_cost(model, stream, stride=stride, workers=workers)
        about = f"{costs.tokens:,} tokens, windows of {length} moved on by {length if stride is None else stride}"
        return _text(model, data, stream, costs, about, generator)
    drawn = model.sample(draws, generator=generator)
    figures = _sequences(data, cross_entropy(model, test, workers=workers), drawn, features)
    return Evaluated(figures, _marked(data, drawn), f"{draws:,} draws")


def _sequences(data: Corpus, costs: CrossEntropy, drawn: Sequences, features: Sequence[Feature]) -> dict[str, object]:
    figures: dict[str, object] = {
        "cross_entropy": costs.per_sequence,
        "cross_entropy_per_token": costs.pooled_per_token,
        # As Parshakova et al. 2019 report it.
        "cross_entropy_per_token, mean over sequences": costs.per_token,
        "perplexity_per_token": costs.perplexity,
    }
    if data.language is not None:
        truth = data.language.distribution()
        nats = measures.entropy(truth)
        figures["entropy"] = Estimate.exact(nats)
        figures["entropy_per_token"] = Estimate.exact(nats / measures.mean_length(truth))
        # CE − H is KL(language‖model), whatever the test set's size: what the model still has to learn.
        figures["kl_from_language"] = costs.per_sequence.mapped(lambda cost: cost - nats)
        if data.language.motif is not None:
            features = [Motif(data.language.motif), *features]
    bound = Features([bind(feature, data.reading) for feature in features])
    figures |= {f"frequency of {name}": value for name, value in frequencies(drawn, bound).items()}
    figures["mean_length"] = mean_length(drawn)
    return figures


def _marked(data: Corpus, drawn: Sequences) -> Samples:
    lines = data.text(drawn.select(slice(SHOWN)))
    motif = None if data.language is None else data.language.motif
    if motif is None:
        return Samples(lines)
    return Samples(lines, [[found.span() for found in re.finditer(re.escape(motif), line)] for line in lines])


def _translations(
    model: Stepwise, data: Corpus, test: Sequences, sources: Context, beam: Mapping[str, Any], edges: Sequence[int],
    workers: Workers | None,
) -> Evaluated:  # fmt: skip
    """Perplexity of the references, and BLEU of a beam's translations against them as they were written."""
    costs = cross_entropy(model, test, context=sources, workers=workers)
    beams = decode_contexts(model, sources, **beam, maximal_length=by_source(sources), workers=workers)
    hypotheses, references = data.text(beams.first()), data.text(data.test)
    search = "greedy" if beam["width"] == 1 else "beam {width}, length penalty {length_penalty:g}".format(**beam)
    if data.written is None:  # the validation pairs serve, some of which may have been left out
        search += ", references decoded from their tokens"
    elif len(data.written) != len(references):
        raise UserError("The test file is not the one this run was evaluated with: it has another number of lines.")
    else:
        references = [target for _, target in data.written]
    score, signature = bleu(hypotheses, references)
    figures: dict[str, object] = {
        "cross_entropy_per_token": costs.pooled_per_token,
        "perplexity_per_token": costs.perplexity,
        "BLEU": score,
        "BLEU signature": signature,
    }
    for of_length in bleu_by_length(hypotheses, references, edges=edges):
        name = f"BLEU of {of_length.sentences:,} references of {of_length.name} words"
        figures[name] = "–" if of_length.score is None else of_length.score
    lines = [f"{own}   ⟵   {reference}" for own, reference in zip(hypotheses, references, strict=True)]
    return Evaluated(figures, Samples(lines[:SHOWN]), search, {HYPOTHESES: hypotheses, REFERENCES: references})


def _stream(
    model: Stepwise, data: Corpus, part: Stream, columns: int, reading: dict[str, Any], generator: Generator
) -> Evaluated:
    """A test text that is read by segments; in fewer columns where these would be shorter than a segment."""
    length = reading["segment"] or part.length
    columns = max(1, min(columns, len(part.tokens) // length))
    costs = segment_cost(model, part.tokens, columns=columns, **reading)
    about = f"{costs.tokens:,} tokens in {columns} columns, memory carried through segments of {length}"
    return _text(model, data, in_columns(part.tokens, columns).flatten(), costs, about, generator)


def _spelt(tokeniser: Tokeniser, tokens: Int[Tensor, " tokens"]) -> tuple[int, int, int]:
    """Bytes, characters and words of what tokens spell. A line break is a word: what comes after it is predicted
    too."""
    text = tokeniser.decode(tokens.tolist())
    size = len(tokens) if isinstance(tokeniser, Bytes) else len(text.encode())
    return max(size, 1), max(len(text), 1), max(len(text.split()) + text.count("\n"), 1)


def _text(
    model: Stepwise, data: Corpus, stream: Int[Tensor, " tokens"], costs: StreamCost, about: str, generator: Generator
) -> Evaluated:
    """Perplexity of the test text, per token, and per byte, character and word of what the tokens spell."""
    assert data.tokeniser is not None
    size, characters, words = _spelt(data.tokeniser, stream)
    figures: dict[str, object] = {
        "cross_entropy_per_token": costs.per_token,
        "perplexity_per_token": costs.perplexity,
        "bits_per_byte": costs.bits_per(size),
        "bits_per_character": costs.bits_per(characters),
        "perplexity_per_word, line breaks counted": costs.perplexity_per(words),
    }
    lines = [line.replace("\n", "\\n") for line in data.text(model.sample(WINDOWS, generator=generator))]
    return Evaluated(figures, Samples(lines), about)


def dynamic(
    model: Stepwise, text: Int[Tensor, " text"], *, training: Int[Tensor, " training"] | None = None,
    tokeniser: Tokeniser | None = None, learning_rate: float = LEARNING_RATE, decay: float = DECAY,
    epsilon: float = EPSILON, old_scaling: bool = False, segment: int = 5, rows: int = 100,
    batches: int | None = None, blocks: int = BLOCKS,
) -> Evaluated:  # fmt: skip
    """Perplexity of a text, static and dynamic, per token and, where a tokeniser tells what they spell, per word.

    Gradient statistics are those of the `training` text, in `rows` columns; without it the model learns by plain
    gradient descent. `old_scaling`: the rates are those of the authors' earlier code.
    """
    device, statistics, rates = device_of(model), None, Rates(learning_rate, decay, epsilon)
    how = "gradient descent"
    if old_scaling and training is None:
        raise UserError("The old scaling converts rates by gradient statistics: give a training text, or leave it out.")
    if training is not None:
        statistics = gradient_statistics(model, training.to(device), rows=rows, segment=segment, batches=batches)
        how = f"statistics of {statistics.batches:,} batches of {rows} × {segment} tokens"
        if old_scaling:
            rates = from_old_scaling(statistics, **rates._asdict())
    found = dynamic_evaluation(
        model, text.to(device), statistics=statistics, segment=segment, blocks=blocks, **rates._asdict()
    )
    about = f"{found.static.tokens:,} tokens in segments of {segment}, {how}"
    return Evaluated({**_figures(found, text, tokeniser), **rates._asdict()}, None, about)


def _figures(found: DynamicCost, text: Int[Tensor, " tokens"], tokeniser: Tokeniser | None) -> dict[str, object]:
    figures: dict[str, object] = {
        "perplexity_per_token, static": found.static.perplexity,
        "perplexity_per_token, dynamic": found.dynamic.perplexity,
        "perplexity, dynamic over static": found.perplexity_ratio,
        "cross_entropy_per_token, static": found.static.per_token,
        "cross_entropy_per_token, dynamic": found.dynamic.per_token,
        "cross_entropy_per_token, difference": found.difference,
    }
    if tokeniser is not None:
        size, _, words = _spelt(tokeniser, text)
        for name, cost in (("static", found.static), ("dynamic", found.dynamic)):
            figures[f"bits_per_byte, {name}"] = cost.bits_per(size)
            figures[f"perplexity_per_word, line breaks counted, {name}"] = cost.perplexity_per(words)
    return figures
