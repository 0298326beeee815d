"""How many draws an estimate needs to be known within ± ε, from a pilot, with an interval for that number."""

import math
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from ebar.errors import UserError
from ebar.maths.importance import concentrated, heavy_tailed, pareto_k
from ebar.maths.log_space import normalised
from ebar.types import Estimate

ACCURATE = 0.2  # a half-width this near to what was asked for, as a share of it …
LARGEST_K = 0.5  # of the influences, to be clearly below
QUANTILE, NORMAL = 1.644854, 1.959964  # … in 90 % of runs; and of intervals of 95 %


class Budget(NamedTuple):
    """Draws in all, the pilot's among them, for an interval of ± `within` at the pilot's level."""

    draws: int
    low: int  # 95 % interval of that number
    high: int
    within: float
    warning: str | None = None

    def __str__(self) -> str:
        flag = "" if self.warning is None else f"  ⚠ {self.warning}"
        return f"{self.draws:,} draws [{self.low:,}, {self.high:,}] for ± {self.within:g}{flag}"


def mean_influence(
    log_weights: Float[Tensor, " units"], values: Float[Tensor, " units"] | None = None
) -> Float[Tensor, " units"]:
    """How each unit moves log Z (without values), or the weighted mean of the values: up to a factor."""
    shares = normalised(log_weights.double())
    if values is None:
        return shares - 1 / len(shares)
    return shares * (values.double() - (shares * values.double()).sum())


def budget(estimate: Estimate, influence: Float[Tensor, " units"], draws: int, *, within: float) -> Budget:
    """n(ε) = n·(h/ε)² for a pilot of n draws with half-width h, Student's quantile of the pilot replaced by n(ε)'s.

    Over runs log n(ε) has standard error √((κ − 1)/m): κ is the kurtosis of the influence of the m independent units
    (`mean_influence`) on the estimate, from which the pilot has its variance. A pilot that warns is refused: a variance
    that cannot be believed cannot be extrapolated. Trap: the kurtosis, too, is of what was drawn.
    """
    if not within > 0:
        raise UserError(f"A half-width must be above 0, and {within:g} is not.")
    half = (estimate.high - estimate.low) / 2
    if estimate.is_exact:
        return Budget(0, 0, 0, within)
    reason = estimate.warning or _doubt(influence)
    if reason is None and not 0 < half < math.inf:
        reason = f"its interval is [{estimate.low:g}, {estimate.high:g}]"
    if reason is not None:
        raise UserError(f"The pilot cannot say how many draws are needed, for it is in doubt itself: {reason}.")
    units = float(len(influence))
    spread = _kurtosis(influence) - 1
    needed = float(draws)
    for _ in range(20):  # the quantile hardly depends on n: this has long settled
        change = _student(units * needed / draws, spread, estimate.level) / _student(units, spread, estimate.level)
        needed = max(draws * (half * change / within) ** 2, 2 * draws / units)
    error = math.sqrt(spread / units)
    low, high = (math.ceil(needed * math.exp(sign * NORMAL * error)) for sign in (-1, 1))
    warning = None
    if QUANTILE * error / 2 > ACCURATE:
        pilot = math.ceil(draws * (QUANTILE * error / 2 / ACCURATE) ** 2)
        warning = f"a pilot of {pilot:,} draws would tell it so well that the half-width comes out within 20 %"
    return Budget(math.ceil(needed), low, high, within, warning)


def budget_or_reason(
    estimate: Estimate, influence: Float[Tensor, " units"], draws: int, *, within: float
) -> Budget | str:
    """The same, and the sentence where there is no answer."""
    try:
        return budget(estimate, influence, draws, within=within)
    except UserError as refused:
        return str(refused)


def _doubt(influence: Float[Tensor, " units"]) -> str | None:
    """An index of ½ means an infinite variance, with no square-root law to count on."""
    sizes = (influence - influence.median()).abs().log()[None]
    k = pareto_k(sizes)
    if bool((heavy_tailed(k, len(influence), limit=LARGEST_K) & concentrated(sizes)).any()):
        return f"what it is made of is heavy-tailed (Pareto k̂ {float(k):.2f}), and the variance may be infinite"
    return None


def _kurtosis(influence: Float[Tensor, " units"]) -> float:
    squares = (influence - influence.mean()).square()
    variance = float(squares.mean())
    return max(1 + 1e-12, float(squares.square().mean()) / variance**2) if variance > 0 else 3.0


def _student(units: float, spread: float, level: float) -> float:
    """The quantile of `maths.jackknife.half_width`."""
    from scipy.special import stdtrit

    return float(stdtrit(min(max(2 * units / spread, 1.0), max(units - 1, 1.0)), (1 + level) / 2))
