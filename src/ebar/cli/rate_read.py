"""`ebar rate read`: which of two systems the raters preferred.

How often the raters preferred ours, with Clopper and Pearson's interval, and the exact sign test.

Example:
    ebar rate read pairs.key.json --ratings ratings-anna.json ratings-ben.csv
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ebar.cli.show import show_json
from ebar.config.reader import Answer, Manual, argument, read
from ebar.errors import UserError
from ebar.evaluation.ratings import read_key, read_ratings, sign_test

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class RateReadConfig(Answer):
    """The key and the files of the raters."""

    key: Path = argument()
    """File that was written beside the page."""
    ratings: tuple[Path, ...] = ()
    """Files that the page has saved, .json or .csv."""
    unit: Literal["pair", "rating"] = "pair"
    """What counts once: a pair, by the majority of its raters; or every rating, as if they were independent."""


def main(words: Sequence[str]) -> int:
    """Print the sign test."""
    config = read(words, MANUAL, RateReadConfig)
    if not config.ratings:
        raise UserError("There is nothing to test without ratings: give --ratings FILE …, as the page has saved them.")
    key = read_key(config.key)
    found = sign_test([read_ratings(path) for path in config.ratings], key, unit=config.unit)
    if config.json:
        show_json({"ours": key.ours, "theirs": key.theirs, **found._asdict()})
    else:
        sys.stdout.write(f"{key.ours} preferred to {key.theirs}: {found}\n")
    return 0
