"""The perplexity of p(x|C) = q(x|C)·exp(−E(x, C))/Z(C), as an interval: Z is estimated, prefix by prefix.

Too small a log Z flatters the model. So the interval goes from what T = log (1/n)Σe⁻ᴱ says, whose bias is −c/n, to
what its jackknife companion 2J − T says, whose bias is +c/n (`maths.jackknife`), each at its own confidence limit.
Deng et al. 2020 (arXiv:2004.11714), Nowozin 2018.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ebar.errors import UserError
from ebar.estimators.log_z import Certified, LogZ, certified_perplexity, log_mean
from ebar.maths.importance import FEWEST_DRAWS, LARGEST_K, SMALLEST_SAMPLE, all_warnings, check_weights, pareto_k
from ebar.maths.jackknife import half_width, log_fall, log_mean_bounds
from ebar.maths.log_space import effective_sample_size, exponential, log_mean_exp
from ebar.shapes import of_shape
from ebar.types import Estimate

SHARE_NEEDED = 0.95  # of the prefixes must have weights without a heavy tail
LARGEST_MOVE = 0.05  # nats by which the mean log Z may move when the draws are doubled


class AtDraws(NamedTuple):
    """What the first so many draws of each prefix would have said."""

    draws: int
    low: float
    value: float
    high: float
    log_z: float  # mean over prefixes of T
    log_z_upper: float  # and of 2J − T


class JointPerplexity(NamedTuple):
    """Perplexity per token of the joint model on some continuations, each given its prefix."""

    base: float  # of q alone on the same tokens: exact
    low: float  # from the lower confidence limit of T
    value: float  # from J, whose bias is O(n⁻²)
    high: float  # from the upper confidence limit of 2J − T
    difference: Estimate  # joint − base in nats per token, for other prefixes of the kind: their choice counts too
    log_z: list[LogZ]  # one per prefix
    k: list[float]  # Pareto k̂ of each prefix's weights; NaN where there is no tail to fit
    share_light: float  # of the prefixes: k̂ < 0.7 or, where weights are tied or bounded, an effective size of 30
    moved: float  # mean change of log Z, in nats, from the first half of the draws to all of them
    moved_most: float  # the largest change of any prefix, in absolute value
    by_draws: list[AtDraws]  # n/8, n/4, n/2 and n draws
    level: float = 0.95

    certified: Certified | None = None  # where the energy is bounded: what holds whatever the weights' law

    @property
    def established(self) -> bool:
        """Whether the draws were enough to believe the interval."""
        return self._doubt() is None

    @property
    def here(self) -> Estimate:
        """Joint − base in nats per token on these prefixes: the narrowest interval that may be believed.

        Certified where that alone tells joint from base, or where the normal approximation is in doubt.
        """
        value, low, high = (math.log(end) - math.log(self.base) for end in (self.value, self.low, self.high))
        size = sum(row.estimate.effective_sample_size for row in self.log_z)
        if self.certified is not None and (self._doubt() is not None or _apart(*self.certified.difference)):
            return Estimate(value, *self.certified.difference, size, None, self.level)
        return Estimate(value, low, high, size, self._doubt(), self.level)

    @property
    def verdict(self) -> str:
        """Joint against base on these prefixes: by how much, and how far that is known."""
        return _verdict(self.here, None if self.certified is None else self.certified.difference)

    @property
    def verdict_elsewhere(self) -> str:
        """The same for other prefixes of the kind, of which these are taken to be independent draws."""
        return _verdict(self.difference, None if self.certified is None else self.certified.elsewhere)

    @property
    def perplexity(self) -> Estimate:
        """As an estimate, the doubt as its warning; the effective sample size is the mean of the prefixes'."""
        size = sum(row.estimate.effective_sample_size for row in self.log_z) / len(self.log_z)
        return Estimate(self.value, self.low, self.high, size, self._doubt(), self.level)

    def _doubt(self) -> str | None:
        return doubt(self.by_draws[-1].draws, self.share_light, self.moved, bounded=self.certified is not None)


def doubt(draws: int, share_light: float, moved: float, *, bounded: bool) -> str | None:
    """Why the normal approximation is not to be believed, where it is not."""
    tail = move = None
    if draws < FEWEST_DRAWS:
        tail = f"{draws} draws for each prefix are too few to judge by (k̂ needs {FEWEST_DRAWS})"
    elif not share_light >= SHARE_NEEDED:
        light = f"an effective sample size of {SMALLEST_SAMPLE}" if bounded else f"k̂ < {LARGEST_K}"
        tail = f"{light} for only {share_light:.0%} of the prefixes ({SHARE_NEEDED:.0%} are needed)"
    if not abs(moved) < LARGEST_MOVE:
        move = f"doubling the draws moves log Z by {moved:.3f} nats ({LARGEST_MOVE} is the most allowed)"
    return all_warnings(tail, move)


def _apart(low: float, high: float) -> bool:
    return high < 0 or low > 0


def _verdict(difference: Estimate, certified: tuple[float, float] | None) -> str:
    """Whether joint and base differ, and by which interval that is known."""
    if certified is not None and _apart(*certified):
        return f"{_side(difference._replace(low=certified[0], high=certified[1]))}, certified"
    if difference.warning is None and _apart(difference.low, difference.high):
        return f"{_side(difference)}, by normal approximation"
    between = f"the difference may be anything from {difference.low:.3g} to {difference.high:.3g} nats per token"
    return f"not established: {difference.warning or between}"


def _side(difference: Estimate) -> str:
    """Below or above, and by how much."""
    side, sign = ("below", -1) if difference.high < 0 else ("above", 1)
    ends = sorted((sign * difference.low, sign * difference.high))
    return f"{side} by {sign * difference.value:.3g} [{ends[0]:.3g}, {ends[1]:.3g}] nats per token"


def joint_perplexity(
    log_q: Float[Tensor, " prefixes"],
    energy: Float[Tensor, " prefixes"],
    draw_energies: Float[Tensor, "prefixes draws"],
    lengths: Int[Tensor, " prefixes"],
    *,
    bound: float | None = None,
    level: float = 0.95,
) -> JointPerplexity:
    """exp(−Σ log p(x|C)/Σ lengths) from log q(x|C), E(x, C) and the energies of n draws from q(·|C), for each prefix C.

    [low, high] is for these prefixes: its only error is that of Z, over draws that are independent from prefix to
    prefix. `difference` counts the choice of prefixes too. With a `bound` on |E| (`energies.linear.bound_of`), weights
    have no tail: `certified` then holds whatever their law, and Pareto's k̂ is not asked.
    """
    log_weights = -draw_energies.detach().double().cpu()
    log_q, energy, tokens = (values.detach().double().cpu() for values in (log_q, energy, lengths))
    _check_shapes(log_q, energy, log_weights, tokens)
    _check(log_q, energy, log_weights, tokens)
    draws = log_weights.shape[1]
    total = float(tokens.sum())
    log_scores = (log_q - energy).sum()
    by_draws = []
    for size in dict.fromkeys(max(1, draws // part) for part in (8, 4, 2, 1)):
        first = log_weights[:, :size]
        low, value, high = (exponential(float(end)) for end in interval(log_scores, first, total, level=level))
        bounds = log_mean_bounds(first)
        means = float(bounds.lower.mean()), float(bounds.upper.mean())
        by_draws.append(AtDraws(size, low, value, high, *means))
    whole = by_draws[-1]
    change = log_mean_exp(log_weights) - log_mean_exp(log_weights[:, : max(1, draws // 2)])
    # Where nothing was drawn at first, −∞ becomes something or stays: neither is a small move.
    change = torch.where(change.isnan(), math.inf, change)
    if draws == 1:
        change = torch.full_like(change, math.inf)
    k = pareto_k(log_weights)
    light = _light(k if bound is None else torch.full_like(k, math.nan), log_weights)
    share_light, moved = float(light.double().mean()), float(change.mean())
    return JointPerplexity(
        base=exponential(-float(log_q.sum()) / total),
        low=whole.low,
        value=whole.value,
        high=whole.high,
        difference=_difference(
            energy, log_weights, tokens, level, doubt(draws, share_light, moved, bounded=bound is not None)
        ),
        log_z=log_mean(log_weights, level=level),
        k=k.tolist(),
        share_light=share_light,
        moved=moved,
        moved_most=float(change.abs().max()),
        by_draws=by_draws,
        level=level,
        certified=None
        if bound is None
        else certified_perplexity(log_q, energy, log_weights, tokens, bound, level=level),
    )


def interval(
    log_scores: Float[Tensor, "*runs"],
    log_weights: Float[Tensor, "*runs prefixes draws"],
    tokens: float,
    *,
    level: float = 0.95,
) -> tuple[Float[Tensor, "*runs"], Float[Tensor, "*runs"], Float[Tensor, "*runs"]]:
    """Low, value and high of the nats per token, from Σ(log q − E) and the draws of −E, for many runs at once.

    Leaving out a draw of one prefix moves that prefix's T alone, so the jackknife over all prefixes' draws adds up
    their variances. 2J − T shares T's width: they differ by O(1/n), T varies by O(n^−½).
    """
    bounds = log_mean_bounds(log_weights)
    falls = log_fall(log_weights)
    width = half_width((falls - falls.mean(-1, keepdim=True)).flatten(-2), level)
    if log_weights.shape[-1] == 1:
        width = torch.full_like(width, math.inf)
    sums = (bounds.lower.sum(-1) - width, bounds.corrected.sum(-1), bounds.upper.sum(-1) + width)
    low, value, high = ((log_z - log_scores) / tokens for log_z in sums)
    return low, value, high


def cost_difference(
    energy: Float[Tensor, "*runs prefixes"],
    log_weights: Float[Tensor, "*runs prefixes draws"],
    tokens: Float[Tensor, " prefixes"],
    *,
    level: float = 0.95,
) -> tuple[Float[Tensor, "*runs"], Float[Tensor, "*runs"], Float[Tensor, "*runs"]]:
    """Low, value and high of Σ(E + log Z)/Σ lengths, for many runs at once.

    The interval is the jackknife's over prefixes, whose spread holds the error of each one's log Z.
    """
    bounds = log_mean_bounds(log_weights)
    ends = []
    for log_z, side in ((bounds.lower, -1), (bounds.corrected, 0), (bounds.upper, 1)):
        gains = energy + log_z
        ratio = gains.sum(-1) / tokens.sum()
        left_out = (ratio[..., None] * tokens - gains) / (tokens.sum() - tokens)
        ends.append(ratio + side * half_width(left_out, level) if side else ratio)
    return ends[0], ends[1], ends[2]


def _difference(
    energy: Float[Tensor, " prefixes"], log_weights: Float[Tensor, "prefixes draws"],
    tokens: Float[Tensor, " prefixes"], level: float, doubt: str | None,
) -> Estimate:  # fmt: skip
    low, value, high = (float(end) for end in cost_difference(energy, log_weights, tokens, level=level))
    size = float(effective_sample_size(tokens.log()))
    few = f"{len(tokens)} prefixes are too few to speak for others" if size < SMALLEST_SAMPLE else None
    return Estimate(value, low, high, size, all_warnings(few, doubt), level)


def _light(k: Float[Tensor, " prefixes"], log_weights: Float[Tensor, "prefixes draws"]) -> Tensor:
    """Tied weights have no tail: there the effective sample size speaks. Too few draws say nothing of a tail."""
    tied = k.isnan() & (log_weights.shape[1] >= FEWEST_DRAWS)
    return (k < LARGEST_K) | (tied & (effective_sample_size(log_weights) >= SMALLEST_SAMPLE))


def _check_shapes(log_q: Tensor, energy: Tensor, log_weights: Tensor, tokens: Tensor) -> None:
    of_shape(log_weights, (len(tokens), log_weights.shape[-1]), "The energies of draws, a row for each prefix,")
    for name, values in (("log-probabilities", log_q), ("energies", energy), ("lengths", tokens)):
        of_shape(values, (len(log_weights),), f"The {name} of the continuations")


def _check(
    log_q: Float[Tensor, " prefixes"], energy: Float[Tensor, " prefixes"],
    log_weights: Float[Tensor, "prefixes draws"], tokens: Float[Tensor, " prefixes"],
) -> None:  # fmt: skip
    if len(log_q) == 0 or log_weights.shape[1] == 0:
        raise UserError("A joint perplexity needs at least one prefix and one draw for it: give more text.")
    if bool((tokens < 1).any()):
        raise UserError("Every continuation must hold at least one token: leave the empty ones out.")
    for name, values in (("log-probability", log_q), ("energy", energy)):
        if not bool(values.isfinite().all()):
            row = int((~values.isfinite()).nonzero()[0])
            raise UserError(
                f"The {name} of continuation {row} is {float(values[row])}: leave it out or check the model."
            )
    check_weights(log_weights)
