"""Draws with their features, each evaluated once, weighted for r however they were drawn.

r is in evaluation mode throughout; the authors' code left its dropout on.
"""

import math
from contextlib import nullcontext
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from ebar.features.feature import Features
from ebar.maths.enumeration import all_sequences
from ebar.models.tilted import propose
from ebar.modes import evaluation_mode
from ebar.progress import bar, shown
from ebar.samplers.guided import Guided
from ebar.training.moment_matching.matching import Wanted
from ebar.types import Distribution, Sequences


class Pool(NamedTuple):
    """φ of each draw, and its log-weight for r: (1/n)·Σ w·f(φ) estimates E_r[f(φ)]."""

    values: Float[Tensor, "draws features"]
    log_weights: Float[Tensor, " draws"]
    source: Int[Tensor, " draws"]  # which proposal it came from: draws of one source are i.i.d.
    exact: bool = False  # every sequence with its probability: nothing was drawn


class Solution(NamedTuple):
    """λ, and the draws it was found on."""

    features: Features
    wanted: Wanted
    pool: Pool
    coefficients: Float[Tensor, " features"]
    ridge: float = 0.0
    level: float = 0.95  # of the intervals
    decided: str = "the prior"  # what stopped a λ that has no finite best value: the prior, or the schedule


def allowed(
    pool: Pool, coefficients: Float[Tensor, " features"]
) -> tuple[Float[Tensor, " draws"], Bool[Tensor, " features"]]:
    """Log-weights without the draws that λ = −∞ forbids, and the features that are left."""
    hard = coefficients == -math.inf
    forbidden = (pool.values[:, hard] != 0).any(1)
    return torch.where(forbidden, -math.inf, pool.log_weights), ~hard


class _Batch(NamedTuple):
    x: Sequences
    source: int
    values: Float[Tensor, "batch features"]
    log_probs: dict[int, Tensor]  # by source; 0 is r


class Mixture:
    """Draws from r and from other proposals g, weighted as one mixture: w = r/(Σₖ αₖ·gₖ), αₖ the share of each.

    The balance heuristic (Veach and Guibas 1995): unbiased with fixed numbers from each, and with r in it no weight
    exceeds 1/α₀, whatever the other proposals miss.
    """

    def __init__(self, base: Distribution, features: Features, *, batch_size: int):
        self.features = features
        self.batch_size = batch_size
        self.sources: list[Distribution] = [base]
        self.batches: list[_Batch] = []

    @property
    def drawn(self) -> int:
        return sum(len(batch.values) for batch in self.batches)

    def add(self, source: Distribution, n: int, *, generator: Generator) -> None:
        """n more draws, from r or from a proposal new or old."""
        index = next((place for place, known in enumerate(self.sources) if known is source), len(self.sources))
        if index == len(self.sources):
            self.sources.append(source)
        base = self.sources[0]
        quiet = shown(False) if n <= self.batch_size else nullcontext()  # one batch is no progress to look at
        with quiet, bar("drawing", n, "draws") as progress, torch.no_grad(), evaluation_mode(base, source):
            for start in range(0, n, self.batch_size):
                size = min(self.batch_size, n - start)
                if isinstance(source, Guided) and source.base is base:
                    walk = source.walk(size, generator=generator)
                    x, log_probs = walk.x, {index: walk.log_prob, 0: walk.base_log_prob}
                else:
                    x, log_prob = propose(source, size, None, generator)
                    log_probs = {index: log_prob}
                known = {place: value.double().cpu() for place, value in log_probs.items()}
                self.batches.append(_Batch(x, index, self.features(x).double().cpu(), known))
                progress.advance(size)

    def pool(self) -> Pool:
        """All draws so far."""
        counts = [0] * len(self.sources)
        for batch in self.batches:
            counts[batch.source] += len(batch.values)
        used = [index for index, count in enumerate(counts) if count]
        log_weights = [self._log_weights(batch, used, counts) for batch in self.batches]
        source = torch.cat([torch.full((len(batch.values),), batch.source) for batch in self.batches])
        return Pool(torch.cat([batch.values for batch in self.batches]), torch.cat(log_weights), source)

    def _log_weights(self, batch: _Batch, used: list[int], counts: list[int]) -> Float[Tensor, " batch"]:
        if used == [0]:
            return torch.zeros(len(batch.values), dtype=torch.float64)
        for index in {0, *used} - set(batch.log_probs):
            with torch.no_grad(), evaluation_mode(self.sources[0], self.sources[index]):
                batch.log_probs[index] = self.sources[index].log_prob(batch.x).double().cpu()
        shares = [batch.log_probs[index] + math.log(counts[index] / sum(counts)) for index in used]
        return batch.log_probs[0] - torch.logsumexp(torch.stack(shares), 0)


def enumerated(base: Distribution, features: Features) -> Pool:
    """Every sequence of a small space with its exact probability."""
    everything = all_sequences(base.space)
    with torch.no_grad(), evaluation_mode(base):
        log_probs = base.log_prob(everything).double().cpu()
        values = features(everything).double().cpu()
    # Weights average to 1 over "draws", as elsewhere, so that all that follows is the same.
    return Pool(values, log_probs + math.log(len(log_probs)), torch.zeros(len(log_probs), dtype=torch.long), True)
