"""What weighted draws are good for: effective samples per draw, and how many draws a wanted interval needs."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.errors import UserError
from ebar.maths.importance import NARROW, SMALLEST_SAMPLE, all_warnings, concentrated, diagnose, heavy_tailed, pareto_k
from ebar.maths.jackknife import half_width, log_rest
from ebar.maths.log_space import effective_sample_size, log_mean_exp, normalised
from ebar.maths.proportions import wilson
from ebar.types import Estimate, Sequences

SQUARES = f"this rests on the squares of the weights, of which a few decide: {NARROW}, draw more"
DEPENDENT = "these draws depend on one another: this is an upper bound"


class EffectiveSamples(NamedTuple):
    """Effective samples per draw, beside the draws and how many of them are different."""

    value: float
    low: float
    high: float
    effective_sample_size: float
    warning: str | None
    level: float
    draws: int
    distinct: int

    @property
    def per_draw(self) -> Estimate:
        return Estimate(self.value, self.low, self.high, self.effective_sample_size, self.warning, self.level)

    def __str__(self) -> str:
        return f"{self.per_draw._replace(warning=None)}, {self.counts}" + (
            "" if self.per_draw.warning is None else f"  ⚠ {self.per_draw.warning}"
        )

    @property
    def counts(self) -> str:
        """In words."""
        return f"{self.distinct:,} distinct of {self.draws:,}"


def same_draws(x: Sequences) -> Int[Tensor, " draws"]:
    """A number for each draw, the same for sequences that are the same, whatever their padding holds."""
    tokens = torch.where(x.mask(), x.tokens, -1)
    _, found = torch.unique(tokens, dim=0, return_inverse=True)
    same: Tensor = found.cpu()
    return same


def effective_samples(
    log_weights: Float[Tensor, " draws"],
    items: Int[Tensor, " draws"],
    *,
    groups: Int[Tensor, " draws"] | None = None,
    unseen: str | None = None,
    level: float = 0.95,
) -> EffectiveSamples:
    """(E w)²/E w², to which Kong's effective size per draw tends (1992), for draws numbered by `same_draws`.

    The interval is the jackknife's in logs, its lower end around 2J − T: large weights that were not drawn make R look
    larger. R rests on the squares of the weights, so it warns of their tail too. Below 30 effective draws and where
    all weights are equal it is Wilson's, as if so many of the draws had weight 1 and the others 0, which for hard
    constraints is just what they are.
    Traps. Draws of one of the `groups` depend on one another, as resampled ones do: equal weights then say nothing,
    copies count as one, and there is no lower end. Give `unseen`, what the draws never showed of the target
    (`draws.Support`), and nothing is claimed: weights that are equal for that reason tell nothing.
    """
    n, distinct = len(log_weights), len(set(items.tolist()))
    log_weights = log_weights.double().cpu()
    dependent = groups is not None and len(set(groups.tolist())) < n
    merged = _merged(log_weights, items, groups) if dependent and groups is not None else log_weights
    size = float(effective_sample_size(merged))
    of_weights, of_squares = diagnose(log_weights[None])[0], diagnose(2 * log_weights[None])[0]
    if of_weights is None and of_squares is not None and size >= SMALLEST_SAMPLE:
        of_weights = SQUARES
    warning = all_warnings(of_weights, DEPENDENT if dependent else None)
    ratio = min(size / n, 1.0)
    low, high = wilson(float(n) if size > n - 1e-6 else size, float(n), level)
    if unseen is not None and size > 0:
        return EffectiveSamples(*Estimate(math.nan, 0.0, 1.0, size, unseen, level), n, distinct)
    if dependent:
        return EffectiveSamples(*Estimate(ratio, 0.0, high, size, warning, level), n, distinct)
    if size >= SMALLEST_SAMPLE:
        falls = math.log1p(-1 / n) - 2 * log_rest(log_weights) + log_rest(2 * log_weights)  # of log R, draw by draw
        width, gain = float(half_width(falls, level)), (n - 1) * float(falls.mean())
        if width > 1e-9:
            low, high = ratio * math.exp(2 * min(gain, 0.0) - width), min(1.0, ratio * math.exp(width))
    return EffectiveSamples(*Estimate(ratio, low, high, size, warning, level), n, distinct)


def effective_samples_of_base(
    log_weights: Float[Tensor, " draws"], log_own_weights: Float[Tensor, " draws"], level: float = 0.95
) -> Estimate:
    """Effective samples per draw of q, from draws of another proposal g that goes where q seldom does.

    With v = P/g of the draws and w = P/q at the same places: (E_q w)²/E_q w² = (E_g v)²/E_g[v·w].
    """
    log_weights, log_products = log_weights.double(), (log_weights + log_own_weights).double()
    size = float(effective_sample_size(log_products))
    warning = diagnose(log_products[None])[0]
    if size == 0:
        return Estimate(math.nan, 0.0, 1.0, size, warning, level)
    ratio = min(1.0, math.exp(float(2 * log_mean_exp(log_weights) - log_mean_exp(log_products))))
    width = _width(log_weights, log_products, level)
    return Estimate(ratio, ratio * math.exp(-width), min(1.0, ratio * math.exp(width)), size, warning, level)


def _width(first: Float[Tensor, " draws"], second: Float[Tensor, " draws"], level: float) -> float:
    """Half the width of an interval for 2·log E e^first − log E e^second."""
    n = len(first)
    influence = 2 * (first - log_mean_exp(first)).exp() - (second - log_mean_exp(second)).exp() - 1
    return float(half_width(influence / (n - 1), level)) if n > 1 else math.inf


def _merged(
    log_weights: Float[Tensor, " draws"], items: Int[Tensor, " draws"], groups: Int[Tensor, " draws"]
) -> Float[Tensor, " different"]:
    """Copies of an item within a group as one draw that has all their weight."""
    pairs = torch.stack([groups.cpu(), items.cpu()])
    _, which = torch.unique(pairs, dim=1, return_inverse=True)
    shift = log_weights.max().clamp(min=-1e300)
    total = torch.zeros(int(which.max()) + 1, dtype=torch.float64)
    return total.index_add(0, which, torch.exp(log_weights - shift)).log() + shift


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
