"""Particle systems: how many, how large, when they resample."""

import itertools
from collections.abc import Iterator

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.maths.log_space import effective_sample_size, log_mean_exp
from ebar.samplers.draw import shares
from ebar.samplers.resample import Resampler
from ebar.types import Context, context_rows


def systems(
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
