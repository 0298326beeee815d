"""Means over a stream, as buffers: a checkpoint has them, whatever the number of terms so far."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


class WeightedSums(nn.Module):
    """Σw, Σw² and Σw·v of weights known by their logarithms, relative to the largest so far."""

    log_largest: Tensor
    weight: Tensor
    squares: Tensor
    values: Tensor
    count: Tensor

    def __init__(self, values: int):
        super().__init__()
        self.register_buffer("log_largest", torch.tensor(-math.inf, dtype=torch.float64))
        for name in ("weight", "squares"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))
        self.register_buffer("values", torch.zeros(values, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def add(self, log_weights: Float[Tensor, " draws"], values: Float[Tensor, "values draws"] | None = None) -> None:
        self.count += len(log_weights)
        largest = torch.maximum(self.log_largest, log_weights.max())
        if largest == -math.inf:
            return
        shrink = torch.exp(self.log_largest - largest)
        weights = torch.exp(log_weights - largest)
        self.weight.mul_(shrink).add_(weights.sum())
        self.squares.mul_(shrink**2).add_(weights.square().sum())
        if values is not None:
            # A draw of weight zero counts for nothing, whatever its value.
            self.values.mul_(shrink).add_(torch.where(weights == 0, 0.0, weights * values).sum(1))
        self.log_largest.copy_(largest)

    def log_mean(self) -> Float[Tensor, ""]:
        """log Σw/n; −∞ where all weights were zero."""
        return self.log_largest + self.weight.log() - self.count.double().log()

    def means(self) -> Float[Tensor, " values"]:
        """Σw·v / Σw."""
        return self.values / self.weight

    def effective_sample_size(self) -> Float[Tensor, ""]:
        """(Σw)² / Σw²; 0 where all weights were zero."""
        return torch.where(self.squares > 0, self.weight.square() / self.squares, 0.0)

    def clear(self) -> None:
        for buffer in (self.weight, self.squares, self.values, self.count):
            buffer.zero_()
        self.log_largest.fill_(-math.inf)


class RunningMean(nn.Module):
    """The mean of what was added, where what is older than some `window` terms is slowly forgotten; 0 at first."""

    value: Tensor
    count: Tensor

    def __init__(self, window: int = 1024):
        super().__init__()
        self.window = window
        self.register_buffer("value", torch.zeros((), dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def add(self, terms: Float[Tensor, " terms"]) -> None:
        if len(terms) == 0:
            return
        self.count.add_(len(terms)).clamp_(max=max(self.window, len(terms)))
        self.value += (terms.mean() - self.value) * (len(terms) / self.count)
