"""`ebar evaluate`: how good a trained model is, with intervals.

How good a trained model is on held-out data, with intervals: cross-entropy next to the entropy where the language is
known, and features in the model's own draws; perplexity of text, per token, byte and word; perplexity and BLEU of
translations, by length too; bits per dimension of images. Writes results.json and report.html.

Example:
    ebar evaluate runs/motif
    ebar evaluate runs/motif --feature motif:1011 'expression:(01){3}' --json
    ebar evaluate runs/de-en --width 5 --edges 6 10
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Generator

from ebar.bounds import Count
from ebar.build.terms import Term, read_feature
from ebar.build.train import load_trained
from ebar.cli.show import show
from ebar.config.drawing import OfRun
from ebar.config.reader import Manual, list_option, read
from ebar.estimators.exact import device_of
from ebar.journeys.evaluate import evaluate
from ebar.progress import shown

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig(OfRun):
    """What is measured, and on how many draws."""

    n: Count = 2000
    """Draws from the model."""
    feature: tuple[Term, ...] = list_option("KIND:ARGUMENT", lambda: "features to count in them")
    width: Count = 5
    """Of the beam that translates; 1 is greedy."""
    length_penalty: float = 1.0
    """Score is log p / length^A."""
    edges: tuple[Count, ...] = (6, 10)
    """Of the bins of target length."""
    stride: Count | None = None
    """Tokens by which windows of text move on, only the last of them scored; by default a whole window."""


def main(words: Sequence[str]) -> int:
    """Measure on held-out data and on the model's own draws."""
    config = read(words, MANUAL, EvaluateConfig)
    trained = load_trained(config.run)
    features = [read_feature(words) for words in config.feature]
    generator = Generator(device_of(trained.model)).manual_seed(config.seed)
    with shown(not config.json):
        found = evaluate(
            trained.model, trained.data, features=features, draws=config.n, width=config.width,
            length_penalty=config.length_penalty, edges=config.edges, stride=config.stride, generator=generator,
        )  # fmt: skip
    found.write(config.run)
    about = f", {found.about}" if found.about else ""
    return show(f"{config.run}: seed {config.seed}{about}", found.figures, as_json=config.json)
