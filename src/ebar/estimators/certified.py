"""What draws with bounded weights say for certain: log Z, and the perplexity of a model whose energy is bounded.

Given the prefixes, log q and E of the continuations are exact and only log Z is random, so that limits of Σ log Z are
limits of the perplexity. For other prefixes log q knows no bound: there only the difference from the base, a mean of
E + log Z between −2b and 2b, can be certified, and only if the prefixes are independent draws from those others.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.errors import UserError
from ebar.maths.certified import certified_log_means, certified_mean
from ebar.maths.importance import check_weights
from ebar.maths.log_space import effective_sample_size, log_mean_exp
from ebar.types import Estimate


class Certified(NamedTuple):
    """Limits that each hold with a chance of at least `level`, whatever the weights' law.

    Costs and differences are in nats per token.
    """

    bound: float  # |E| ≤ bound
    log_z: tuple[float, float]  # of the mean over these prefixes
    cost: tuple[float, float]  # −log p: the logarithm of the perplexity, on these prefixes
    difference: tuple[float, float]  # joint − base, on these prefixes
    elsewhere: tuple[float, float] | None  # the same for others like them; None where lengths are unequal
    level: float = 0.95


def certified_log_z(
    log_weights: Float[Tensor, "rows draws"], *, highest: float, lowest: float = -math.inf, level: float = 0.95
) -> list[Estimate]:
    """log E[w] for each row of independent draws, none of them outside [lowest, highest]; each row by itself.

    For a bounded energy and draws from its base, `highest` = b and `lowest` = −b. The draws are to be in the order in
    which they were drawn.
    """
    check_weights(log_weights)
    check_inside(log_weights, lowest, highest)
    limits = certified_log_means(log_weights[:, None].cpu(), highest=highest, lowest=lowest, level=level)
    values, sizes = log_mean_exp(log_weights.double()), effective_sample_size(log_weights.double())
    numbers = zip(values.tolist(), limits.low.tolist(), limits.high.tolist(), sizes.tolist(), strict=True)
    return [Estimate(value, low, high, size, None, level) for value, low, high, size in numbers]


def certified_perplexity(
    log_q: Float[Tensor, " prefixes"],
    energy: Float[Tensor, " prefixes"],
    log_weights: Float[Tensor, "prefixes draws"],
    tokens: Float[Tensor, " prefixes"],
    bound: float,
    *,
    level: float = 0.95,
) -> Certified:
    """From log q(x|C), E(x, C) and −E of draws from q(·|C), for each prefix C."""
    for values in (energy[:, None], log_weights):
        check_inside(values, -bound, bound)
    limits = certified_log_means(log_weights, highest=bound, lowest=-bound, level=level)
    total = float(tokens.sum())
    ends = [float(end) for end in limits]
    cost, difference = (tuple((end + float(known.sum())) / total for end in ends) for known in (energy - log_q, energy))
    return Certified(
        bound,
        (ends[0] / len(tokens), ends[1] / len(tokens)),
        (cost[0], cost[1]),
        (difference[0], difference[1]),
        _elsewhere(energy, log_weights, tokens, bound, level),
        level,
    )


def _elsewhere(
    energy: Float[Tensor, " prefixes"], log_weights: Float[Tensor, "prefixes draws"],
    tokens: Float[Tensor, " prefixes"], bound: float, level: float,
) -> tuple[float, float] | None:  # fmt: skip
    """Limits of the mean of (E + log Z)/length over the prefixes that these are draws of.

    E[log Ẑ] ≤ log Z gives the low end; log z ≤ z/c − 1 + log c the high one, c ≥ 1 being what the prefixes before
    say of Ẑ: a tangent that does not know the value it bounds.
    """
    if bool((tokens != tokens[0]).any()):
        return None
    log_z = log_mean_exp(log_weights)
    z = log_z.exp()
    before = torch.cat([torch.ones(1, dtype=z.dtype), 1 + z[:-1].cumsum(0)])
    tangent = (before / torch.arange(1, len(z) + 1)).clamp(1, math.exp(bound))
    above = energy + z / tangent - 1 + tangent.log()
    low = certified_mean(energy + log_z, lowest=-2 * bound, highest=2 * bound, level=level).low
    high = certified_mean(above, lowest=-bound - 1, highest=bound + math.exp(bound) - 1, level=level).high
    return float(low / tokens[0]), min(float(high), 2 * bound) / float(tokens[0])


def check_inside(values: Float[Tensor, "rows draws"], lowest: float, highest: float) -> None:
    """A bound that is not one would certify what is not so."""
    outside = (values < lowest) | (values > highest)
    if bool(outside.any()):
        found = float(values[outside][0])
        raise UserError(
            f"An energy or log-weight of {found:.6g} lies outside [{lowest:.6g}, {highest:.6g}], which was said to hold"
            " them all: give the true bound, or none."
        )
