"""`ebar rate`: which of two texts people find better, without knowing whose they are."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ebar.bounds import Seed
from ebar.cli.show import show, show_json
from ebar.config.reader import Answer, Manual, argument, read
from ebar.data.corpus import numbered_lines
from ebar.errors import UserError
from ebar.evaluation.ratings import blind, read_key, read_ratings, sign_test
from ebar.report.rating_page import write_rating_page
from ebar.store.writing import replace, saving


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


def make(words: Sequence[str]) -> int:
    """`ebar rate make`: a page on which people choose between two systems' texts, and its key.

    A page of blinded pairs, one file that loads and sends nothing, to send to raters; and OUTPUT's key, which tells
    which text is whose, to keep to yourself. The order of the pairs and of the two texts is drawn.

    Example:
        ebar rate make --prompts prompts.txt --ours joint.txt --theirs base.txt --output pairs.html
    """
    config = read(words, Manual.of(make.__doc__), RateMakeConfig)
    texts = [[text for _, text in numbered_lines(path)] for path in (config.prompts, config.ours, config.theirs)]
    study = blind(*texts, seed=config.seed, names=(config.ours.stem, config.theirs.stem))
    key = config.output.with_suffix(".key.json")
    with saving(str(config.output)):
        config.output.parent.mkdir(parents=True, exist_ok=True)
        write_rating_page(config.output, study.pairs, study=study.key.study)
        replace(key, study.key.to_json().encode())
    made = {"page": str(config.output), "key": str(key), "pairs": len(study.pairs), "same": study.key.same}
    return show("pairs to rate", made, as_json=config.json)


@dataclass(frozen=True, kw_only=True)
class RateReadConfig(Answer):
    """The key and the files of the raters."""

    key: Path = argument()
    """File that was written beside the page."""
    ratings: tuple[Path, ...] = ()
    """Files that the page has saved, .json or .csv."""
    unit: Literal["pair", "rating"] = "pair"
    """What counts once: a pair, by the majority of its raters; or every rating, as if they were independent."""


def ratings(words: Sequence[str]) -> int:
    """`ebar rate read`: which of two systems the raters preferred.

    How often the raters preferred ours, with Clopper and Pearson's interval, and the exact sign test.

    Example:
        ebar rate read pairs.key.json --ratings ratings-anna.json ratings-ben.csv
    """
    config = read(words, Manual.of(ratings.__doc__), RateReadConfig)
    if not config.ratings:
        raise UserError("There is nothing to test without ratings: give --ratings FILE …, as the page has saved them.")
    key = read_key(config.key)
    found = sign_test([read_ratings(path) for path in config.ratings], key, unit=config.unit)
    if config.json:
        show_json({"ours": key.ours, "theirs": key.theirs, **found._asdict()})
    else:
        sys.stdout.write(f"{key.ours} preferred to {key.theirs}: {found}\n")
    return 0
