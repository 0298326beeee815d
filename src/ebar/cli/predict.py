"""`ebar predict`: what a fine-tuned run says of new texts.

One text per line of the file; of pairs the two texts with a tab between them: query and document, passage and question,
or passage, question and the options. Prints the class, the number, the score of relevance, the answer (empty for none)
or the chosen option, and after a tab its probability, where it has one.

Example:
    ebar predict runs/reviews --input new.txt
    ebar predict runs/reviews --input new.txt --json
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.bounds import Count
from ebar.build.finetune import load_finetuned
from ebar.cli.show import show_json
from ebar.config.reader import Answer, Manual, argument, option, read
from ebar.data.corpus import numbered_lines
from ebar.errors import UserError
from ebar.journeys.finetune.predictions import BATCH, Prediction

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class PredictConfig(Answer):
    """What is read."""

    run: Path = argument()
    """Folder of a run of `ebar finetune`."""
    input: Path | None = option(metavar="FILE")
    """File of texts, one per line."""
    task: str | None = None
    """Which task, where the run has several."""
    batch_size: Count = BATCH
    """Texts computed together."""


def main(words: Sequence[str]) -> int:
    """Read a file of texts and say of each what the run has learnt to."""
    config = read(words, MANUAL, PredictConfig)
    if config.input is None:
        raise UserError("`ebar predict` needs texts: give --input, a file with one text per line.")
    tuned = load_finetuned(config.run)
    lines = [line.split("\t") for _, line in numbered_lines(config.input)]
    texts = [parts[0] if len(parts) == 1 else tuple(parts) for parts in lines]
    found = tuned.predict(texts, task=config.task, batch_size=config.batch_size)
    if config.json:
        show_json({"predictions": [_fields(one) for one in found]})
    else:
        sys.stdout.write("".join(f"{_line(one)}\n" for one in found))
    return 0


def _fields(one: Prediction) -> dict[str, object]:
    found = {"value": one.value, "probability": one.probability, "probabilities": dict(one.probabilities)}
    return {name: value for name, value in found.items() if value is not None and value != {}}


def _line(one: Prediction) -> str:
    value = f"{one.value:.6g}" if isinstance(one.value, float) else one.value
    return value if one.probability is None else f"{value}\t{one.probability:.4f}"
