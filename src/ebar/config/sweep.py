"""`ebar sweep`: what is run, over which options, how many times.

Run `ebar train` many times with other values of some options, and find those of the lowest validation loss. Trials are
ordinary runs in one folder; weak ones are given up early. Run it again to go on where it was stopped, or with more
--trials.

Example:
    ebar sweep run.yaml --name rates --over optimiser.learning_rate=1e-4..1e-2:log --trials 30
    ebar sweep run.yaml --over optimiser.learning_rate=1e-4..1e-2:log backbone.hidden=32,64,128 --backend joblib
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ebar.bounds import Count, Seed
from ebar.config.reader import Manual, argument, list_option
from ebar.errors import UserError
from ebar.journeys.sweep.search import Between, Dimension, Halving, OneOf, Search
from ebar.journeys.sweep.trials import Value

MANUAL = Manual.of(__doc__, defaults={"name": "sweep"})
FORM = "give NAME=LOW..HIGH, NAME=LOW..HIGH:log or NAME=ONE,OTHER,…"


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """What is tried."""

    run: Path = argument()
    """Configuration of `ebar train`, as YAML."""
    over: tuple[str, ...] = list_option(
        "NAME=LOW..HIGH[:log]", lambda: "options to try other values of: a range, logarithmic with :log, or ONE,OTHER,…"
    )
    trials: Count = 30
    """In all; more of them may be asked for later."""
    seed: Seed = 0
    """Of what is tried; the runs have their own."""
    startup: Count = 10
    """Trials drawn at random, before the earlier ones decide what is tried."""
    factor: Count = 4
    """Of every so many trials that come as far, the best go on; 1: all go on to their end."""
    least: Count = 1
    """Evaluations of a trial before it can be given up."""

    def search(self) -> Search:
        """As an object."""
        if not self.over:
            raise UserError("A sweep needs something to try: give --over NAME=LOW..HIGH.")
        halving = Halving(factor=self.factor, least=self.least)
        return Search(over=read_over(self.over), seed=self.seed, startup=self.startup, halving=halving)


def read_over(words: tuple[str, ...]) -> dict[str, Dimension]:
    """Options by name, with what they are tried with."""
    found: dict[str, Dimension] = {}
    for word in words:
        name, equals, values = word.partition("=")
        name = name.removeprefix("--")
        if not equals or not name:
            raise UserError(f"{word!r} does not say what is tried: {FORM}.")
        if name in found:
            raise UserError(f"{name} is given twice: give each option once.")
        found[name] = _dimension(values, word)
    return found


def _dimension(values: str, word: str) -> Dimension:
    bounds = re.fullmatch(r"([^:,]+?)\.\.([^:,]+)(:log)?", values)
    if bounds is None:
        if ".." in values or ":" in values or "," not in values:
            raise UserError(f"{word!r} is no range and no list: {FORM}.")
        return OneOf(tuple(map(_value, values.split(","))))
    try:
        low, high = float(bounds[1]), float(bounds[2])
    except ValueError:
        raise UserError(f"The ends of {word!r} are no numbers: {FORM}.") from None
    whole = all(re.fullmatch(r"[+-]?\d+", end.strip()) for end in (bounds[1], bounds[2]))
    return Between(low=low, high=high, log=bounds[3] is not None, whole=whole)


def _value(word: str) -> Value:
    """A number, true or false, or the word itself."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(word, word)


def with_values(tree: dict[str, Any], values: Any) -> dict[str, Any]:
    """A configuration with other values of some options, by their names on the command line."""
    found: dict[str, Any] = _copied(tree)
    for name, value in values.items():
        *groups, last = name.split(".")
        inside = found
        for group in groups:
            inside = inside.setdefault(group, {})
            if not isinstance(inside, dict):
                raise UserError(f"{name} cannot be tried: {group} is no group of options.")
        inside[last] = value
    return found


def _copied(tree: Any) -> Any:
    return {key: _copied(value) for key, value in tree.items()} if isinstance(tree, dict) else tree
