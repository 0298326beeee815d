"""What `ebar evaluate` measures of models of text and of translation."""

from dataclasses import dataclass

import torch
from torch import Generator

from ebar.bounds import Count, Natural
from ebar.cli.trained import Trained
from ebar.config.drawing import OfRun
from ebar.config.reader import listed
from ebar.config.terms import Term
from ebar.data.tokenisers import Bytes, Tokeniser
from ebar.errors import UserError
from ebar.estimators.models import device_of
from ebar.evaluation.cross_entropy import cross_entropy
from ebar.evaluation.perplexity import stream_cost
from ebar.evaluation.translation import bleu, bleu_by_length
from ebar.report.page import Samples
from ebar.samplers.beam import by_source, decode
from ebar.types import Context, Sequences

SHOWN = 30  # translations on the page
DRAWN = 5  # windows of text on the page


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(OfRun):
    """What is measured, and on how many draws."""

    n: Count = 2000
    """Draws from the model."""
    feature: tuple[Term, ...] = listed("KIND:ARGUMENT", lambda: "features to count in them")
    seed: Natural = 0
    """Of the draws."""
    width: Count = 5
    """Of the beam that translates; 1 is greedy."""
    length_penalty: float = 1.0
    """Score is log p / length^A."""
    edges: tuple[Count, ...] = (6, 10)
    """Of the bins of target length."""
    stride: Count | None = None
    """Tokens by which windows of text move on, only the last of them scored; by default a whole window."""


@dataclass(frozen=True)
class Measured:
    """Figures by name (estimates, and words such as a signature), and lines to show."""

    figures: dict[str, object]
    samples: Samples | None
    about: str = ""


def translation_figures(trained: Trained, arguments: EvaluateConfig) -> Measured:
    """Perplexity of the references, and BLEU of a beam's translations against them as they were written."""
    corpus, device = trained.corpus, device_of(trained.model)
    sources = corpus.sources("test")
    assert sources is not None
    x = _on(corpus.test, device)
    context = Context(_on(sources.given, device))
    costs = cross_entropy(trained.model, x, context=context)
    beams = decode(
        trained.model, context, width=arguments.width, length_penalty=arguments.length_penalty,
        maximal_length=by_source(context),
    )  # fmt: skip
    hypotheses = corpus.text(beams.first())
    written = _references(trained)
    references = corpus.text(corpus.test) if written is None else written
    score, signature = bleu(hypotheses, references)
    figures: dict[str, object] = {
        "cross_entropy_per_token": costs.pooled_per_token,
        "perplexity_per_token": costs.perplexity,
        "BLEU": score,
        "BLEU signature": signature,
    }
    for of_length in bleu_by_length(hypotheses, references, edges=arguments.edges):
        name = f"BLEU of {of_length.sentences:,} references of {of_length.name} words"
        figures[name] = "–" if of_length.score is None else of_length.score
    search = (
        "greedy" if arguments.width == 1 else f"beam {arguments.width}, length penalty {arguments.length_penalty:g}"
    )
    if written is None:
        search += ", references decoded from their tokens"
    lines = [f"{own}   ⟵   {reference}" for own, reference in zip(hypotheses, references, strict=True)]
    return Measured(figures, Samples(lines[:SHOWN]), search)


def text_figures(trained: Trained, arguments: EvaluateConfig, generator: Generator) -> Measured:
    """Perplexity of the test text, per token, and per byte and word of what the tokens spell."""
    corpus, device = trained.corpus, device_of(trained.model)
    stream = corpus.test.tokens.flatten()
    costs = stream_cost(trained.model, stream.to(device), stride=arguments.stride)
    assert corpus.tokeniser is not None
    size, words = _extent(corpus.tokeniser, stream.tolist())
    figures: dict[str, object] = {
        "cross_entropy_per_token": costs.per_token,
        "perplexity_per_token": costs.perplexity,
        "bits_per_byte": costs.bits_per(size),
        # A line break is a word: what comes after it is predicted too.
        "perplexity_per_word, line breaks counted": costs.perplexity_per(words),
    }
    drawn = trained.model.sample(DRAWN, generator=generator)
    lines = [line.replace("\n", "\\n") for line in corpus.text(drawn)]
    moved = corpus.space.length if arguments.stride is None else arguments.stride
    about = f"{costs.tokens:,} tokens, windows of {corpus.space.length} moved on by {moved}"
    return Measured(figures, Samples(lines), about)


def _extent(tokeniser: Tokeniser, tokens: list[int]) -> tuple[int, int]:
    """Bytes and words of a text, line breaks among both."""
    text = tokeniser.decode(tokens)
    size = len(tokens) if isinstance(tokeniser, Bytes) else len(text.encode())
    return max(size, 1), max(len(text.split()) + text.count("\n"), 1)


def _references(trained: Trained) -> list[str] | None:
    """The test translations as they were written; None where only their tokens can be had."""
    if trained.corpus.written is None:  # the validation pairs serve, some of which may have been left out
        return None
    found = [target for _, target in trained.corpus.written]
    if len(found) != len(trained.corpus.test.lengths):
        raise UserError("The test file is not the one this run was evaluated with: it has another number of lines.")
    return found


def _on(x: Sequences, device: torch.device) -> Sequences:
    return Sequences(x.tokens.to(device), x.lengths.to(device))
