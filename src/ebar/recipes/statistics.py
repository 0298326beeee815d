"""Figures over seeds."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ebar.recipes.recipe import Row
from ebar.types import Estimate


def over_seeds(
    name: str, settings: Mapping[str, Any], values: Sequence[float], *, single: Estimate | None = None,
    document: float | str | None = None, warning: str | None = None, least: float = -math.inf,
) -> Row:  # fmt: skip
    """The mean with Student's 95 % interval, cut off at the `least` there can be.

    Of one seed: that run's own interval, where it has one, and where not a warning that there is none.
    """
    from scipy.stats import t

    count = len(values)
    mean = math.fsum(values) / count
    low = high = None
    if count > 1:
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
        width = float(t.ppf(0.975, count - 1)) * deviation / math.sqrt(count)
        low, high = max(least, mean - width), mean + width
    elif single is not None:
        low, high = single.low, single.high
    else:
        warning = warning or "one seed"
    return Row(name=name, settings=dict(settings), value=mean, low=low, high=high, document=document, warning=warning)
