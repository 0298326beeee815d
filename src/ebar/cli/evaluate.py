"""`ebar evaluate`: how good a trained model is, with intervals.

How good a trained model is on held-out data, with intervals: cross-entropy next to the entropy where the language is
known, and features in the model's own draws; perplexity of text, per token, byte, character and word, of a stream
with its memory carried along; perplexity and BLEU of translations, by length too; bits per dimension of images; of a
fine-tuned run the figures of its task on the test examples. Writes results.json and report.html, and of translations
hypotheses.txt and references.txt. An option that the kind of data has no use for is an error.

Example:
    ebar evaluate runs/motif
    ebar evaluate runs/motif --feature motif:1011 'expression:(01){3}' --json
    ebar evaluate runs/de-en --width 5 --edges 6 10 --backend joblib
    ebar evaluate runs/stream --segment 64 --memory 640 --clamp_length 400
    ebar evaluate runs/reviews
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Generator

from ebar.bounds import Count, Natural
from ebar.build.finetune import is_finetuned, load_finetuned
from ebar.build.terms import Term, read_feature
from ebar.build.train import load_trained
from ebar.cli.show import show
from ebar.config.drawing import OfRun
from ebar.config.given import given_options
from ebar.config.reader import Manual, list_option, read
from ebar.data.corpus import Corpus
from ebar.data.stream import Stream
from ebar.errors import UserError
from ebar.estimators.exact import device_of
from ebar.journeys.evaluate import COLUMNS, Evaluated, evaluate
from ebar.progress import shown
from ebar.shards.workers import OptionalWorkers

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(OptionalWorkers, OfRun):
    """What is measured, and on how many draws."""

    n: Count = 2000
    """Draws from the model, of whole sequences."""
    feature: tuple[Term, ...] = list_option("KIND:ARGUMENT", lambda: "features to count in them")
    width: Count = 5
    """Of the beam that translates; 1 is greedy."""
    length_penalty: float = 1.0
    """Score is log p / length^A."""
    edges: tuple[Count, ...] = (6, 10)
    """Of the bins of target length."""
    stride: Count | None = None
    """Tokens by which windows of text move on, only the last of them scored; by default a whole window."""
    segment: Count | None = None
    """Tokens of a stream that are read at a time; by default as many as in training."""
    columns: Count = COLUMNS
    """Pieces of a stream that are read side by side, each from its beginning on without memory."""
    memory: Natural | None = None
    """Tokens of a stream that are remembered, where the backbone has such a memory; by default as many as in training.
    """
    clamp_length: Count | None = None
    """Largest distance between tokens that such a backbone tells apart."""
    same_length: bool | None = None
    """Whether every token sees as many tokens before it."""


SHARDS = ("backend", "workers", "threads")
# What each kind of data has options for, besides those that all have.
USES = {
    "a fine-tuned run": (),
    "a translation": ("width", "length_penalty", "edges", *SHARDS),
    "images": SHARDS,
    "a stream of text": ("stride", "segment", "columns", "memory", "clamp_length", "same_length"),
    "text": ("stride", *SHARDS),
    "whole sequences": ("n", "feature", *SHARDS),
}


def main(words: Sequence[str]) -> int:
    """Measure on held-out data and on the model's own draws."""
    config = read(words, MANUAL, EvaluateConfig)
    if is_finetuned(config.run):
        _refuse_idle(words, "a fine-tuned run")
        with shown(not config.json):
            measured = Evaluated(dict(load_finetuned(config.run).evaluate()))
        return _answer(config, measured, "test examples")
    trained = load_trained(config.run)
    _refuse_idle(words, _kind(trained.data))
    features = [read_feature(words) for words in config.feature]
    generator = Generator(device_of(trained.model)).manual_seed(config.seed)
    with shown(not config.json):
        found = evaluate(
            trained.model, trained.data, features=features, draws=config.n, width=config.width,
            length_penalty=config.length_penalty, edges=config.edges, stride=config.stride, segment=config.segment,
            columns=config.columns, memory=config.memory, clamp_length=config.clamp_length,
            same_length=config.same_length, generator=generator, workers=config.chosen,
        )  # fmt: skip
    return _answer(config, found, f"seed {config.seed}" + (f", {found.about}" if found.about else ""))


def _answer(config: EvaluateConfig, found: Evaluated, about: str) -> int:
    page = found.write(config.run)
    code = show(f"{config.run}: {about}", found.figures, as_json=config.json)
    if not config.json:
        sys.stdout.write(f"{page}\n")
    return code


def _kind(data: Corpus) -> str:
    """Which of USES the data are."""
    if data.source_tokeniser is not None:
        return "a translation"
    if data.tokeniser is None:
        return "images"
    if isinstance(data.parts["test"], Stream):
        return "a stream of text"
    return "whole sequences" if data.space.end is not None or data.space.completes else "text"


def _refuse_idle(words: Sequence[str], kind: str) -> None:
    """An option that does nothing here is a mistake."""
    asked = given_options(words)
    for other, names in USES.items():
        for name in names:
            if name in asked and name not in USES[kind]:
                raise UserError(f"--{name} is for {other}, and does nothing for {kind}: leave it out.")
