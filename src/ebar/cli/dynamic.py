"""`ebar dynamic`: what a text costs a model that goes on learning from it.

Dynamic evaluation (Krause et al. 2018): each segment of the text is scored, and then learnt from, as far as gradient
statistics of the training text allow. Beside it stands what the text costs the model as it is. The model itself is
not changed. Of a run of `ebar train` both texts are the run's own unless given; a pretrained model needs --text, and
without --training learns by plain gradient descent.

Example:
    ebar dynamic runs/text --segment 5
    ebar dynamic FOLDER --text novel.txt --training others.txt --tokens 20000 --window 256 --segment 32 --rows 4
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxtyping import Int
from torch import Tensor

from ebar.bounds import Count, Location, NonNegative
from ebar.build.train import load_trained
from ebar.cli.show import show
from ebar.config.reader import Answer, Manual, argument, read
from ebar.data.corpus import Corpus
from ebar.data.text import read_tokens
from ebar.data.tokenisers import Tokeniser
from ebar.errors import UserError
from ebar.evaluation.blocks import BLOCKS
from ebar.evaluation.dynamic import DECAY, EPSILON, LEARNING_RATE
from ebar.journeys.evaluate import dynamic
from ebar.models.construction import from_pretrained
from ebar.progress import shown
from ebar.training.run import Run

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class DynamicConfig(Answer):
    """Which model and texts, and how it learns."""

    model: Location = argument()
    """Folder of a trained run; or a folder, hub name or file of a causal language model."""
    text: Path | None = None
    """Text to score; of a run by default its test text."""
    training: Path | None = None
    """Text to gather gradient statistics from; of a run by default its training text."""
    plain: bool = False
    """Learn by plain gradient descent, without gradient statistics."""
    tokens: Count | None = None
    """Score at most so many tokens, the text's first."""
    segment: Count = 5
    """Tokens that are scored, and then learnt from, at a time."""
    window: Count = 256
    """Tokens that a pretrained model reads at a time, the segment and what comes before it; a run has its own."""
    learning_rate: NonNegative = LEARNING_RATE
    """η: with gradient statistics in units of the typical gradient, without them of the gradient itself."""
    decay: NonNegative = DECAY
    """λ: how fast weights go back to those of training."""
    epsilon: NonNegative = EPSILON
    """Added to the typical gradient of each weight."""
    old_scaling: bool = False
    """Whether the three rates are those of the authors' earlier code, as papers of 2017 and 2018 state them."""
    rows: Count = 100
    """Columns of the training text in a batch of the gradient statistics."""
    batches: Count | None = None
    """Batches of the gradient statistics; by default all that the training text has."""
    blocks: Count = BLOCKS
    """Of the text, over whose means the intervals are."""
    device: str | None = None
    """Where to compute with a pretrained model, such as cpu or cuda."""
    trust_remote_code: bool = False
    """Whether to run code that comes with a pretrained model."""


def main(words: Sequence[str]) -> int:
    """Score a text segment by segment, learning from each."""
    config = read(words, MANUAL, DynamicConfig)
    place = Path(config.model)
    is_run = (place / "config.yaml").exists()
    model, data = _opened(config, place if is_run else None)
    tokeniser = model.tokeniser if data is None else data.tokeniser
    if tokeniser is None or model.space.end is not None:
        raise UserError(f"{config.model} models no running text, and dynamic evaluation reads one long text.")
    text = _stream(config.text, data, "test", tokeniser)
    training = None if config.plain else _stream(config.training, data, "train", tokeniser)
    if text is None:
        raise UserError("Give --text, the text that the pretrained model is to be evaluated on.")
    with shown(not config.json):
        found = dynamic(
            model, text[: config.tokens], training=training, tokeniser=tokeniser, learning_rate=config.learning_rate,
            decay=config.decay, epsilon=config.epsilon, old_scaling=config.old_scaling, segment=config.segment,
            rows=config.rows, batches=config.batches, blocks=config.blocks,
        )  # fmt: skip
    if is_run:
        Run(place).add_results(dynamic_evaluation=found.figures)
    return show(f"{config.model}: {found.about}", found.figures, as_json=config.json)


def _opened(config: DynamicConfig, run: Path | None) -> tuple[Any, Corpus | None]:
    """The model, and its data where it is a run's."""
    if run is not None:
        trained = load_trained(run)
        return trained.model, trained.data
    return from_pretrained(
        config.model, length=config.window, device=config.device, trust_remote_code=config.trust_remote_code
    ), None  # fmt: skip


def _stream(path: Path | None, data: Corpus | None, part: str, tokeniser: Tokeniser) -> Int[Tensor, " tokens"] | None:
    """The tokens of a file, or of a part of a run's own text."""
    if path is not None:
        return read_tokens(path, tokeniser)
    return None if data is None else data.sequences(part).tokens.flatten()
