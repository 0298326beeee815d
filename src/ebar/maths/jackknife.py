"""Leaving one draw out, in O(n): bounds on log Z, and intervals for anything smooth in the weights.

Limits of log E[w] with a finite-sample guarantee, for weights that cannot exceed a known bound.

Nothing is assumed about tails: whatever law on [0, e^highest] the weights have, and a different one in every row, the
limits fail with a chance of at most 1 − level. A gambler who at draw j stakes a share fixed by the draws before it on

    lower side   w/z above 1:   1 + λ·(w/z − 1),     0 ≤ λ < 1
    upper side   w below z:     1 + κ·(z − w),       0 ≤ κ < e^−highest

has, if every row's mean is its z, a fortune whose expectation is 1 and which is never negative. By Markov's inequality
it exceeds 1/δ with a chance of at most δ. So the rows' true means are, but for that chance, among the z that leave the
gambler with at most 1/δ, and the limits are the least and the greatest Σ log z of those. Rows have no mean in common,
and need none: their gambles multiply.

In v = −log z and v = log z the log-fortune is Σ log(A + C·eᵛ), which is convex, so that the extreme of Σ v is found by
Lagrange's method; whatever multiplier is used gives a valid limit (weak duality), the best one the narrowest.

Stakes are those that would be best if the variance were what the earlier draws say, √(2 log(1/δ) / (N·variance)), N
draws in all: the width tends to √(2 log(1/δ)) standard errors, 1.4 times the normal one at 95 %.
Waudby-Smith & Ramdas 2024 (arXiv:2010.09686) for one mean; empirical Bernstein limits (Maurer & Pontil 2009,
arXiv:0907.3740) have a √ term of the same order and a 1/N term that is several times larger.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


def log_rest(log_weights: Float[Tensor, "*rows draws"]) -> Float[Tensor, "*rows draws"]:
    """log (1 − wᵢ/Σw): what is left of the sum without draw i. In float64, and 0 where every weight is zero.

    The largest weight's remainder is summed anew: when it dominates, subtracting it would leave only rounding.
    Every other weight is at most half of the sum, where log1p is exact.
    """
    log_weights = log_weights.double()
    total = torch.logsumexp(log_weights, -1, keepdim=True)
    shares = torch.exp(log_weights - torch.where(total == -math.inf, 0.0, total))
    largest = log_weights.argmax(-1, keepdim=True)
    others = torch.logsumexp(log_weights.scatter(-1, largest, -math.inf), -1, keepdim=True) - total
    rest = torch.log1p(-shares.scatter(-1, largest, 0.0)).scatter(-1, largest, others)
    return torch.where(total == -math.inf, 0.0, rest)


class LogMeanBounds(NamedTuple):
    """Three estimates of log E[w] from the same draws, their biases −c/n, O(n⁻²) and +c/n, c = Var(w)/(2Z²)."""

    lower: Float[Tensor, "*rows"]  # T = log (1/n)Σw: at most log Z in expectation, for every n (Jensen)
    corrected: Float[Tensor, "*rows"]  # J = nT − (n−1)·mean of the leave-one-out Ts
    upper: Float[Tensor, "*rows"]  # 2J − T: at least log Z in expectation, for n large enough only


def log_fall(
    log_weights: Float[Tensor, "*rows draws"], sizes: Float[Tensor, " draws"] | None = None
) -> Float[Tensor, "*rows draws"]:
    """T minus the T without draw i, T = log Σw/Σs: for batches of unequal sizes s, w being a batch's total."""
    sizes = torch.ones(log_weights.shape[-1]) if sizes is None else sizes
    shares = sizes.double() / sizes.double().sum()
    return torch.log1p(-shares).to(log_weights.device) - log_rest(log_weights)


def log_mean_bounds(
    log_weights: Float[Tensor, "*rows draws"], sizes: Float[Tensor, " draws"] | None = None
) -> LogMeanBounds:
    """T, J and 2J − T.

    They bound log Z in expectation; those of one run can lie on the same side of it, so they are no interval.
    A row with a single positive weight (or a single draw) has no finite upper estimate. Quenouille 1956;
    as bounds on log Z: Deng et al. 2020 (arXiv:2004.11714).
    """
    n = log_weights.shape[-1]
    lower = torch.logsumexp(log_weights.double(), -1) - math.log(n if sizes is None else float(sizes.sum()))
    if n == 1:
        return LogMeanBounds(lower, torch.full_like(lower, math.inf), torch.full_like(lower, math.inf))
    gain = (n - 1) * log_fall(log_weights, sizes).mean(-1)
    silent = lower == -math.inf
    return LogMeanBounds(
        lower,
        torch.where(silent, math.inf, lower + gain),
        torch.where(silent, math.inf, lower + 2 * gain),
    )


def half_width(
    deviations: Float[Tensor, "*rows draws"], level: float = 0.95, *, strata: Int[Tensor, " draws"] | None = None
) -> Float[Tensor, "*rows"]:
    """Half the width of a confidence interval, from dᵢ = θ(without draw i) − θ, up to a constant.

    The quantile is Student's, with the degrees of freedom that `variance` finds. A few large weights make the variance
    itself uncertain, and normal quantiles too short. Infinite where one draw carries everything.
    """
    from scipy.special import stdtrit

    found, freedom = variance(deviations, strata=strata)
    quantile = torch.as_tensor(stdtrit(freedom.cpu().numpy(), (1 + level) / 2)).to(found)
    width = quantile * found.sqrt()
    return torch.where(width.isfinite(), width, math.inf)


def variance(
    deviations: Float[Tensor, "*rows draws"], *, strata: Int[Tensor, " draws"] | None = None
) -> tuple[Float[Tensor, "*rows"], Float[Tensor, "*rows"]]:
    """The jackknife's variance of θ, (n−1)/n·Σ(dᵢ − d̄)², and its degrees of freedom.

    The kurtosis κ of the d's leaves 2n/(κ − 1) of them (Satterthwaite 1946). With strata, each has its own mean and
    kurtosis, and variances add up: what lies between strata of settled sizes is no error.
    """
    n = deviations.shape[-1]
    if n == 1:
        nothing = torch.full(deviations.shape[:-1], math.inf, dtype=torch.float64, device=deviations.device)
        return nothing, torch.ones_like(nothing)
    parts = [deviations.double()]
    if strata is not None:
        laws = [(strata == law).to(deviations.device) for law in torch.unique(strata)]
        if min(int(law.sum()) for law in laws) > 1:  # one draw alone has no spread: then they are taken for one law
            parts = [deviations.double()[..., law] for law in laws]
    found, uncertainty = torch.zeros(2, *deviations.shape[:-1], dtype=torch.float64, device=deviations.device)
    for part in parts:
        size = part.shape[-1]
        squares = (part - part.mean(-1, keepdim=True)).square()
        # The deviations were made with n − 1 in the place of the stratum's own size less one.
        own = squares.mean(-1) * (n - 1) ** 2 / n * size**2 / (n * (size - 1))
        flat = own == 0
        kurtosis = torch.where(flat, 3.0, squares.square().mean(-1) / torch.where(flat, 1.0, squares.mean(-1).square()))
        freedom = (2 * size / (kurtosis - 1).clamp(min=1e-12)).nan_to_num(nan=1.0).clamp(1, size - 1)
        found, uncertainty = found + own, uncertainty + own.square() / freedom
    freedom = torch.where(found == 0, float(n - 1), found.square() / torch.where(found == 0, 1.0, uncertainty))
    return found, freedom.nan_to_num(nan=1.0).clamp(1, n - 1)


LARGEST_STAKE = 0.9  # of all that could be staked without going bankrupt
ROWS_DIFFER = 0.25  # relative variance of the rows' means that stakes are made for
STEPS = 60  # of bisection-guarded Newton, at most


class Limits(NamedTuple):
    """Each end fails with a chance of at most (1 − level)/2."""

    low: Float[Tensor, "*runs"]
    high: Float[Tensor, "*runs"]


class Stakes(NamedTuple):
    """What is staked on each draw, from the draws before it alone."""

    above: Float[Tensor, "*runs 1 draws"]  # λ, the same for all rows
    below: Float[Tensor, "*runs rows draws"]  # κ, for weights divided by their bound


def certified_log_means(
    log_weights: Float[Tensor, "*runs rows draws"], *, highest: float, lowest: float = -math.inf, level: float = 0.95
) -> Limits:
    """Limits of Σᵣ log E[wᵣ], the sum over rows of independent draws with lowest ≤ log w ≤ highest.

    For one row: of its log E[w]. The order of the draws counts, so it must not be chosen by their weights.
    """
    log_threshold = math.log(2 / (1 - level))
    scaled = log_weights.double() - highest  # at most 0
    least = lowest - highest
    stakes = certified_stakes(scaled, least, log_threshold)
    rows = scaled.shape[-2]
    low = -_greatest_sum(
        torch.log1p(-stakes.above).expand(scaled.shape), stakes.above.log() + scaled, -least, log_threshold
    )
    high = _greatest_sum(torch.log1p(-stakes.below * scaled.exp()), stakes.below.log(), 0.0, log_threshold)
    return Limits(low + rows * highest, high + rows * highest)


def certified_mean(
    values: Float[Tensor, "*runs draws"], *, lowest: float, highest: float, level: float = 0.95
) -> Limits:
    """Limits of the common mean of independent values in [lowest, highest], each in its turn.

    Where the values' means are at most the wanted one, the low end still holds; where at least, the high end does.
    """
    share = ((values.double() - lowest) / (highest - lowest)).clamp(0, 1)
    above = certified_log_means(share.log()[..., None, :], highest=0.0, level=level).high
    below = certified_log_means((1 - share).log()[..., None, :], highest=0.0, level=level).high
    return Limits(highest - (highest - lowest) * below.exp(), lowest + (highest - lowest) * above.exp())


def certified_stakes(scaled: Float[Tensor, "*runs rows draws"], least: float, log_threshold: float) -> Stakes:
    """From log-weights between `least` and 0: each draw's stakes, from the rows' means and variances before it."""
    weights = scaled.exp()
    rows, draws = scaled.shape[-2:]
    count = torch.arange(draws, dtype=torch.float64, device=scaled.device)  # of the draws before
    sums, squares = (_before(values) for values in (weights, weights.square()))
    guess = math.exp(least / 2) if least > -math.inf else 0.5
    pooled = (guess + sums.sum(-2, keepdim=True)) / (1 + rows * count)
    spread = (squares - sums.square() / count.clamp(min=1)).clamp(min=0)
    rough = (pooled + sums) / (1 + count)
    variance = (1 + (spread / rough.square()).sum(-2, keepdim=True)) / (1 + rows * (count - 1).clamp(min=0))
    # A row's own mean counts as far as it is better known than rows differ: stakes that follow noise are lost.
    others = variance / ROWS_DIFFER
    means = (others * pooled + sums) / (others + count)
    shares = (2 * log_threshold / (rows * draws * variance)).sqrt()
    return Stakes(shares.clamp(max=LARGEST_STAKE), (shares / means).clamp(max=LARGEST_STAKE))


def _before(values: Float[Tensor, "*rows draws"]) -> Float[Tensor, "*rows draws"]:
    """Sums of the values before each."""
    return torch.nn.functional.pad(values.cumsum(-1)[..., :-1], (1, 0))


def _greatest_sum(
    log_a: Float[Tensor, "*runs rows draws"], log_c: Float[Tensor, "*runs rows draws"], cap: float, log_threshold: float
) -> Float[Tensor, "*runs"]:
    """The greatest Σ vᵣ with Σ log(A + C·e^vᵣ) ≤ log(1/δ) and every v at most `cap`.

    With the multiplier 1/s each row has its own maximum, where the slope Σ C·eᵛ/(A + C·eᵛ) is s; s is found by Newton's
    method on its logarithm, kept between bounds. A row without any C > 0 has no maximum: the sum is then without limit.
    """
    ratio = log_c - log_a
    alive = (log_c > -math.inf).sum(-1)
    most = alive.min(-1).values.double()  # a slope that every row reaches
    silent = (most == 0) & (cap == math.inf)
    floor = torch.full_like(most, math.log(1e-12))
    if cap < math.inf:  # a row at its cap need not reach the slope
        most = torch.full_like(most, ratio.shape[-1])
    ceiling = most.clamp(min=1e-9).log() - 1e-9
    place = (floor + ceiling) / 2
    best = torch.full_like(most, cap * ratio.shape[-2])
    v = None
    for _ in range(STEPS):
        slope = place.exp()
        v = _rows_at(ratio, slope, cap, v)
        gains = torch.logaddexp(log_a, log_c + v[..., None]).sum((-1, -2))
        best = torch.minimum(best, v.sum(-1) + (log_threshold - gains) / slope)
        high = gains > log_threshold
        ceiling, floor = torch.where(high, place, ceiling), torch.where(high, floor, place)
        share = torch.sigmoid(ratio + v[..., None])
        bend = torch.where(v < cap, 1 / (share * (1 - share)).sum(-1).clamp(min=1e-300), 0.0).sum(-1)
        step = place + (log_threshold - gains) / (slope.square() * bend).clamp(min=1e-300)
        inside = (step > floor) & (step < ceiling)
        moved = torch.where(inside, step, (floor + ceiling) / 2)
        done = (moved - place).abs() < 1e-6
        place = moved
        if bool(done.all()):
            break
    return torch.where(silent, math.inf, best)


def _rows_at(
    ratio: Float[Tensor, "*runs rows draws"], slope: Float[Tensor, "*runs"], cap: float,
    start: Float[Tensor, "*runs rows"] | None,
) -> Float[Tensor, "*runs rows"]:  # fmt: skip
    """v with Σ σ(v + ratio) = slope in each row, or the cap where it would lie above."""
    alive = ratio > -math.inf
    count = alive.sum(-1).double()
    share = (slope[..., None] / count).clamp(1e-300, 1 - 1e-12)
    centre = share.log() - torch.log1p(-share)
    low = centre - torch.where(alive, ratio, -math.inf).amax(-1)
    high = centre - torch.where(alive, ratio, math.inf).amin(-1)
    reached = slope[..., None] < count
    high = torch.where(reached, high, math.inf).clamp(max=cap)
    low = torch.where(reached, low, cap).clamp(max=cap)
    v = low if start is None else torch.minimum(torch.maximum(start, low), high)
    for _ in range(STEPS):
        share = torch.sigmoid(ratio + v[..., None])
        excess = share.sum(-1) - slope[..., None]
        high, low = torch.where(excess > 0, v, high), torch.where(excess > 0, low, v)
        step = v - excess / (share * (1 - share)).sum(-1).clamp(min=1e-300)
        inside = (step > low) & (step < high)
        moved = torch.where(inside, step, (low + high) / 2)
        done = (moved - v).abs() < 1e-8
        v = moved
        if bool(done.all()):
            break
    return v
