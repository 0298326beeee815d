"""`ebar rate make`: a page on which people choose between two systems' texts, and its key.

A page of blinded pairs, one file that loads and sends nothing, to send to raters; and OUTPUT's key, which tells which
text is whose, to keep to yourself. The order of the pairs and of the two texts is drawn.

Example:
    ebar rate make --prompts prompts.txt --ours joint.txt --theirs base.txt --output pairs.html
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ebar.bounds import Seed
from ebar.cli.show import show
from ebar.config.reader import Answer, Manual, read
from ebar.data.corpus import numbered_lines
from ebar.evaluation.ratings import blind
from ebar.report.rating_page import write_rating_page
from ebar.store.writing import replace, saving

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class RateMakeConfig(Answer):
    """The texts to compare, a line each."""

    prompts: Path
    """File of what both systems continue."""
    ours: Path
    """File of the continuations by the system whose share is asked for."""
    theirs: Path
    """File of the continuations by the other system."""
    output: Path
    """File of the page; its key is beside it, with .key.json for a suffix."""
    seed: Seed = 0
    """Of the order."""


def main(words: Sequence[str]) -> int:
    """Write the page and the key."""
    config = read(words, MANUAL, RateMakeConfig)
    texts = [[text for _, text in numbered_lines(path)] for path in (config.prompts, config.ours, config.theirs)]
    study = blind(*texts, seed=config.seed, names=(config.ours.stem, config.theirs.stem))
    key = config.output.with_suffix(".key.json")
    with saving(str(config.output)):
        config.output.parent.mkdir(parents=True, exist_ok=True)
        write_rating_page(config.output, study.pairs, study=study.key.study)
        replace(key, study.key.to_json().encode())
    made = {"page": str(config.output), "key": str(key), "pairs": len(study.pairs), "same": study.key.same}
    return show("pairs to rate", made, as_json=config.json)
