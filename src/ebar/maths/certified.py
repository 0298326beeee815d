"""Limits of log E[w] with a finite-sample guarantee, for weights that cannot exceed a known bound.

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
from jaxtyping import Float
from torch import Tensor

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
