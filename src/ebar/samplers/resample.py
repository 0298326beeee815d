"""Choosing which of some weighted draws go on, and systems of particles that do so as they go.

E[copies of draw i] = n·wᵢ/Σw, whatever the scheme.
"""

import itertools
import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.maths.log_space import effective_sample_size, log_mean_exp
from ebar.samplers.draw import shares
from ebar.types import Context, context_rows


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


def _inverted(log_weights: Float[Tensor, "rows pool"], share: Float[Tensor, "rows n"]) -> Int[Tensor, "rows n"]:
    """The first draw at which the cumulated weight exceeds that share, in [0, 1), of the whole.

    In float64: with random numbers of 24 bits a draw of weight 10⁻¹² would be chosen as often as one of 10⁻⁷, and
    float32 sums over a large pool would lose it. A draw of no weight is never chosen.
    """
    cumulated = _weights(log_weights).cumsum(1)
    total = cumulated[:, -1:]
    # Rounding must not push the last point past the last draw that has any weight.
    points = torch.minimum(share * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulated, points, right=True)


def _weights(log_weights: Float[Tensor, "rows pool"]) -> Float[Tensor, "rows pool"]:
    """Weights whose largest is 1; equal ones where all are 0, which stays unbiased since the estimate of Z is 0."""
    log_weights = log_weights.double()
    largest = log_weights.max(1, keepdim=True).values
    return torch.where(largest == -math.inf, 1.0, torch.exp(log_weights - largest))


Resampler = Callable[[Float[Tensor, "rows pool"], int, Generator], Int[Tensor, "rows n"]]

RESAMPLERS: dict[str, Resampler] = {"systematic": systematic, "multinomial": multinomial}


def flat_indices(chosen: Int[Tensor, "rows n"], pool: int) -> Int[Tensor, " all"]:
    """Choices within each row as indices into all rows laid end to end."""
    offset = torch.arange(len(chosen), device=chosen.device) * pool
    return (chosen + offset[:, None]).flatten()


def particle_systems(
    n: int, particles: int, context: Context | None, batch_size: int, *, proposals_per_draw: int = 1
) -> Iterator[tuple[int, int]]:
    """(size, how many at a time): n draws per row as independent systems of at most `particles`, even in size.

    Only whole systems are properly weighted, so they add up to n exactly.
    """
    rows = context_rows(context) * proposals_per_draw
    sizes = shares(n, context, min(batch_size, particles * rows), proposals_per_draw=proposals_per_draw)
    for size, group in itertools.groupby(sizes):
        count = len(list(group))
        at_once = batch_size // (size * rows)
        while count:
            yield size, min(count, at_once)
            count -= min(count, at_once)


def in_groups(count: int, size: int, device: torch.device) -> Int[Tensor, " draws"]:
    """The group numbers of `count` systems of `size` draws, one after the other."""
    return torch.arange(count, device=device).repeat_interleave(size)


def repeated(context: Context | None, times: int) -> Context | None:
    """Every row of the context once for each of its systems."""
    return None if context is None else context.repeat(times)


def resampled(
    log_weights: Float[Tensor, "systems particles"], threshold: float, resample: Resampler, generator: Generator
) -> tuple[Int[Tensor, "systems particles"], Float[Tensor, "systems particles"]] | None:
    """Ancestors and new weights where the effective sample size has fallen below its share; None where nowhere.

    A resampled system's particles all carry its mean weight, so that E[Σ w·f] is what it was: whether to resample
    may depend on the weights without biasing Z. Systems that keep their particles are their own ancestors.
    """
    low = effective_sample_size(log_weights) < threshold * log_weights.shape[1]
    if not bool(low.any()):
        return None
    ancestors = torch.arange(log_weights.shape[1], device=low.device).repeat(len(low), 1)
    ancestors[low] = resample(log_weights[low], log_weights.shape[1], generator)
    mean = log_mean_exp(log_weights)[:, None]
    return ancestors, torch.where(low[:, None], mean, log_weights)
