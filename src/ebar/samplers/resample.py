"""Choosing which of some weighted draws go on: E[copies of draw i] = n·wᵢ/Σw, whatever the scheme."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor


def systematic(log_weights: Float[Tensor, "rows pool"], n: int, generator: Generator) -> Int[Tensor, "rows n"]:
    """One uniform offset per row, n evenly spaced points: draw i gets ⌊n·Wᵢ⌋ or ⌈n·Wᵢ⌉ copies. Kitagawa 1996."""
    offset = torch.rand(len(log_weights), generator=generator, dtype=torch.float64, device=log_weights.device)
    return at_offsets(log_weights, n, offset)


def at_offsets(
    log_weights: Float[Tensor, "rows pool"], n: int, offset: Float[Tensor, " rows"]
) -> Int[Tensor, "rows n"]:
    """Systematic resampling with its random numbers given: the points are (offset + i)/n, i < n."""
    return _inverted(log_weights, (offset.double()[:, None] + torch.arange(n, device=offset.device)) / n)


def multinomial(log_weights: Float[Tensor, "rows pool"], n: int, generator: Generator) -> Int[Tensor, "rows n"]:
    """n independent choices per row: noisier than systematic, simpler to reason about."""
    shape = len(log_weights), n
    return _inverted(
        log_weights, torch.rand(shape, generator=generator, dtype=torch.float64, device=log_weights.device)
    )


def _inverted(log_weights: Float[Tensor, "rows pool"], shares: Float[Tensor, "rows n"]) -> Int[Tensor, "rows n"]:
    """The first draw at which the cumulated weight exceeds that share, in [0, 1), of the whole.

    In float64: with random numbers of 24 bits a draw of weight 10⁻¹² would be chosen as often as one of 10⁻⁷, and
    float32 sums over a large pool would lose it. A draw of no weight is never chosen.
    """
    cumulated = _weights(log_weights).cumsum(1)
    total = cumulated[:, -1:]
    # Rounding must not push the last point past the last draw that has any weight.
    points = torch.minimum(shares * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulated, points, right=True)


def _weights(log_weights: Float[Tensor, "rows pool"]) -> Float[Tensor, "rows pool"]:
    """Weights whose largest is 1; equal ones where all are 0, which stays unbiased since the estimate of Z is 0."""
    log_weights = log_weights.double()
    largest = log_weights.max(1, keepdim=True).values
    return torch.where(largest == -math.inf, 1.0, torch.exp(log_weights - largest))


Resampler = Callable[[Float[Tensor, "rows pool"], int, Generator], Int[Tensor, "rows n"]]

RESAMPLERS: dict[str, Resampler] = {"systematic": systematic, "multinomial": multinomial}


def flat(chosen: Int[Tensor, "rows n"], pool: int) -> Int[Tensor, " all"]:
    """Choices within each row as indices into all rows laid end to end."""
    offset = torch.arange(len(chosen), device=chosen.device) * pool
    return (chosen + offset[:, None]).flatten()
