"""`ebar infill`: words for the gaps of a text.

Fill the gaps of a text with words, by a run that predicts tokens in any order. ___ is a word of up to --pieces pieces,
___:3 one of three. Each candidate has its log-probability: of its number of pieces, uniform, and of its pieces given
the rest of the text, the mean over the orders in which they may come; the interval is over orders.

Example:
    ebar infill runs/novels "He had not been to ___ since the ___ ."
    ebar infill runs/novels "It was a ___:1 and stormy night" --candidates 10 --json
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ebar.bounds import Count
from ebar.build.train import load_trained
from ebar.cli.show import show_json, show_table
from ebar.config.drawing import OfRun
from ebar.config.reader import Manual, argument, read
from ebar.journeys.infill import infill

MANUAL = Manual.of(__doc__)


@dataclass(frozen=True, kw_only=True)
class InfillConfig(OfRun):
    """What to fill, and how."""

    text: str = argument()
    """With ___ for each missing word."""
    candidates: Count = 5
    """For each gap, and for all of them together."""
    pieces: Count = 3
    """Most pieces of a word whose number is not said."""
    orders: Count = 64
    """Of the pieces: all where there are no more, else so many drawn at random."""


def main(words: Sequence[str]) -> int:
    """Print the candidates of each gap, and of all gaps together."""
    config = read(words, MANUAL, InfillConfig)
    found = infill(
        load_trained(config.run), config.text, candidates=config.candidates, pieces=config.pieces, orders=config.orders,
        seed=config.seed,
    )  # fmt: skip
    if config.json:
        show_json(found.as_dict())
        return 0
    for number, gap in enumerate(found.gaps, 1):
        rows = [(one.word, len(one.pieces), one.log_prob) for one in gap]
        show_table(f"gap {number}", ("word", "pieces", "log-probability"), rows)
    if len(found.gaps) > 1:
        show_table("all gaps", ("text", "log-probability"), [(one.text, one.log_prob) for one in found.fillings])
    return 0
