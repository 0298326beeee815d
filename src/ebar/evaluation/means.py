"""Means and shares of independent items, each with its interval, and when there are too few of them for one."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.estimators.moments import weighted_mean
from ebar.maths.proportions import wilson
from ebar.types import Estimate

FEWEST = 30  # below, the jackknife does not tell the spread


def plain_mean(values: Sequence[float] | Float[Tensor, " items"], **options: Any) -> Estimate:
    """The mean with the jackknife's interval over items; the options are those of `weighted_mean`."""
    column = torch.as_tensor(values, dtype=torch.float64)[None]
    return weighted_mean(torch.zeros_like(column), column, **options)[0]


def plain_share(successes: float, trials: float, *, level: float = 0.95) -> Estimate:
    """How often something held, with Wilson's interval."""
    return Estimate(successes / trials, *wilson(successes, trials, level), trials, None, level)


def few(count: int, items: str) -> str | None:
    """What is to be said of an interval over so few items."""
    return None if count >= FEWEST else f"{count} {items} are few for an interval: it needs {FEWEST} or more"
