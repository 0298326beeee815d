"""What an experiment could have told: the smallest effect it would have shown, and the size that would decide one.

An effect is told from 0 where the whole 95 % interval lies on its side, and with 80 % power where that happens four
times in five. The spread is the measured one, which over three seeds is itself rough.
"""

import math
import re
from bisect import bisect_left
from functools import cache
from typing import NamedTuple

from ebar.recipes.figures import student
from ebar.recipes.recipe import Row

POWER = 0.8
NORMAL = 1.959964  # the 0.975 quantile of the normal distribution
TOLD = NORMAL + 0.841621  # … and its 0.8 quantile: an effect of so many standard errors is told with 80 % power
MOST = 10_000  # seeds
SEEDS = re.compile(r"(\d+) (?:\w+ )?seeds(?: of [\w-]+)?(?:, one \w+)?")  # of what an interval is over: nothing else


class Power(NamedTuple):
    """Of one figure, whose distance from a bound is in question."""

    row: Row
    over: str  # what varies
    unit: str  # of what it takes: seeds, or times as many of what varies
    least: float  # the smallest distance that is told from 0 with 80 % power
    takes: float  # to tell the distance seen; infinite where it is past all reason
    papers: float | None  # … the paper's, where it has a figure on the claimed side


def power_of(row: Row, sign: float, bound: float) -> Power | None:
    """Of a figure claimed to lie above (`sign` 1) or below (−1) the bound; None where its spread is not known."""
    if row.value is None or row.low is None or row.high is None or not row.over:
        return None
    width = max(row.high - row.value, row.value - row.low)  # the shorter side may have been cut off
    if not 0 < width < math.inf:
        return None
    theirs = sign * (row.document - bound) if isinstance(row.document, int | float) else 0.0
    effects = [row.value - bound, theirs]
    if (found := SEEDS.fullmatch(row.over)) and (seeds := int(found[1])) > 1:
        spread = width * math.sqrt(seeds) / student(seeds - 1)
        least, takes = smallest(spread, seeds), [seeds_for(effect, spread) for effect in effects]
    else:
        found, least = None, TOLD * width / NORMAL
        takes = [(least / effect) ** 2 if effect else math.inf for effect in effects]  # errors fall with the root
    unit = "seeds" if found else "times as many"
    return Power(row, row.over, unit, least, takes[0], takes[1] if theirs > 0 else None)


def smallest(spread: float, seeds: int) -> float:
    """The smallest effect that Student's interval over so many seeds tells from 0 with 80 % power."""
    return spread * _smallest(seeds)


@cache
def _smallest(seeds: int) -> float:
    """… in units of the spread over seeds."""
    from scipy.optimize import brentq

    high = 2 * (student(seeds - 1) + 1)
    while power(high, seeds) < POWER:
        high *= 2
    return float(brentq(lambda effect: power(effect, seeds) - POWER, 0.0, high, xtol=1e-15))


def power(effect: float, seeds: int) -> float:
    """How often Student's 95 % interval over so many seeds lies above 0, for an effect in units of the spread."""
    from scipy.stats import nct

    return float(nct.sf(student(seeds - 1), seeds - 1, effect * math.sqrt(seeds)))


def seeds_for(effect: float, spread: float) -> float:
    """How many seeds tell this effect, of either sign, from 0 with 80 % power; infinite where it takes over `MOST`."""
    if smallest(spread, MOST) > abs(effect):
        return math.inf
    return 2.0 + bisect_left(range(2, MOST), True, key=lambda seeds: smallest(spread, seeds) <= abs(effect))
