"""When importance weights cannot be believed, and the sentence that says so.

Three voices. Pareto k̂ speaks of the tail: the variance is infinite above ½, and above 0.7 no practical number of
draws helps. The effective sample size speaks where the weights have no tail to fit. The support check speaks of
what was never drawn, which no weight can tell.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ebar.errors import UserError
from ebar.maths.log_space import effective_sample_size

LARGEST_K = 0.7  # Vehtari et al. 2024 (arXiv:1507.02646)
STANDARD_ERRORS = 1.5  # by which k̂ must lie below LARGEST_K for silence
SMALLEST_SAMPLE = 30  # effective draws below which an interval is not to be believed
FEWEST_DRAWS = 100  # below, there is no tail to fit
TIE = 1e-5  # log-weights this close are the same weight, computed twice


def tail_size(draws: int) -> int:
    """How many of the largest weights are the tail: a fifth, at most 6√n.

    Twice the customary 3√n: at n = 1,000 the standard error of k̂ falls from 0.17 to 0.13 at k = 0.9, which is
    what it takes to tell 0.9 from 0.3 nearly always.
    """
    return min(draws // 5, math.floor(6 * math.sqrt(draws)))


def pareto_k(log_weights: Float[Tensor, "rows draws"]) -> Float[Tensor, " rows"]:
    """k̂, the index of a generalised Pareto tail: moments of order 1/k and above are infinite (arviz-stats fits it).

    NaN where it would mean nothing: too few draws, or a largest weight or a tail that is tied, as when the weights
    take a few values only.
    """
    rows, draws = log_weights.shape
    fitted = torch.full((rows,), math.nan, dtype=torch.float64)
    if draws < FEWEST_DRAWS:
        return fitted
    log_weights = log_weights.detach().double().cpu()
    usable = ~_tied(log_weights)
    if bool(usable.any()):
        import numpy as np
        from arviz_stats.base import array_stats  # type: ignore[attr-defined]

        # psislw negates its input; r_eff = ¼ asks for the tail of `tail_size`.
        with np.errstate(all="ignore"):
            _, k = array_stats.psislw(-log_weights[usable].numpy(), r_eff=0.25)  # type: ignore[no-untyped-call]
        fitted[usable] = torch.as_tensor(np.asarray(k), dtype=torch.float64)
    return torch.where(fitted.isfinite(), fitted, math.nan)


def _tied(log_weights: Float[Tensor, "rows draws"]) -> Bool[Tensor, " rows"]:
    tail = torch.topk(log_weights, tail_size(log_weights.shape[1]) + 1, -1).values
    apart = tail[:, :-1] - tail[:, 1:] > TIE  # false for −∞ − −∞ too: zero weights are tied
    return ~apart[:, 0] | (apart.double().mean(-1) < 0.5)


def heavy_tailed(k: Float[Tensor, " rows"], draws: int) -> Bool[Tensor, " rows"]:
    """Whether k̂ fails to lie 1.5 standard errors, (1 + k)/√m for a tail of m, below 0.7.

    Over 1,000 runs of n = 1,000: a true index of 0.9 is told in 97.9 to 99.7 %, 0.3 in 0.4 to 1.3 %.
    """
    error = (1 + k.clamp(min=-0.5)) / math.sqrt(max(tail_size(draws), 1))
    return k + STANDARD_ERRORS * error > LARGEST_K


def diagnose(
    log_weights: Float[Tensor, "rows draws"], values: Float[Tensor, "rows draws"] | None = None
) -> list[str | None]:
    """For each row, what is wrong with an interval made from these weights (and for the mean of these values)."""
    draws = log_weights.shape[1]
    size = effective_sample_size(log_weights.double())
    k = pareto_k(log_weights)
    if values is not None:
        # Around the median: a heavy tail drags the mean so far up that the bulk would be taken for tail.
        spread = (values.double() - values.double().median(-1, keepdim=True).values).abs()
        k = torch.fmax(k, pareto_k(log_weights.double() + spread.log()))
    heavy = heavy_tailed(k, draws)
    return [_sentence(float(size[row]), float(k[row]), bool(heavy[row]), draws) for row in range(log_weights.shape[0])]


def _sentence(size: float, k: float, heavy: bool, draws: int) -> str | None:
    if size == 0:
        return f"all {draws:,} draws have weight zero: nothing of the target was drawn"
    if heavy:
        return f"the weights are heavy-tailed (Pareto k̂ {k:.2f}): the interval is too narrow, try a better proposal"
    if size < SMALLEST_SAMPLE:
        return f"{draws:,} draws are worth only {size:.1f}: the interval is not to be believed below {SMALLEST_SAMPLE}"
    return None


def unseen_side(name: str, smallest: float, largest: float, low: float, high: float) -> str | None:
    """The side of a feature that no draw took, in words: the target's mass there, if any, is missing.

    A feature of range [low, high] that was always at its low end was never seen to hold; one with range [0, 1] that
    was always 1 was never seen to fail. (A length that never varies may simply be fixed.)
    """
    if low == high or smallest != largest:
        return None
    if largest == low:
        return f"no draw has the feature {name!r}: what the target holds there is missing from the estimate"
    if smallest == high and (low, high) == (0, 1):
        return f"every draw has the feature {name!r}: what the target holds without it is missing from the estimate"
    return None


def all_warnings(*warnings: str | None) -> str | None:
    """Several warnings as one, each said once."""
    said = list(dict.fromkeys(warning for warning in warnings if warning is not None))
    return "; ".join(said) if said else None


def check_weights(log_weights: Float[Tensor, "rows draws"]) -> None:
    """NaN and +∞ are errors of the model, never weights."""
    bad = log_weights.isnan() | (log_weights == math.inf)
    if bool(bad.any()):
        row, draw = (int(index) for index in bad.nonzero()[0])
        value = float(log_weights[row, draw])
        raise UserError(f"The log-weight of draw {draw} in row {row} is {value}: check the energy there.")
