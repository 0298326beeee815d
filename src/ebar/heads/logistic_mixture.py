"""A mixture of logistic distributions over levels of intensity, each level having the mass of its bin.

Salimans et al. 2017 (arXiv:1701.05517), PixelCNN++.
"""

import math
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ebar.devices import in_full_precision
from ebar.heads.output import in_parts

MASSES = 2**22  # of all components and levels that are held at a time
LOG_SCALES = (-7.0, 7.0)  # the lower bound is the original's; at the upper one all mass lies outside the image's range


class Logistics(NamedTuple):
    """Components of a mixture, in units of an intensity that goes from −1 (level 0) to 1."""

    log_weights: Float[Tensor, "*batch components"]
    means: Float[Tensor, "*batch components"]
    log_scales: Float[Tensor, "*batch components"]


class LogisticMixture(nn.Module):
    """log p(level) = log Σₖ πₖ·(F((high − μₖ)/sₖ) − F((low − μₖ)/sₖ)), F being the logistic function, for images.

    Levels are numbers from −1 to 1 with bins of equal width around them; the first bin is open below and the last one
    above, so that the masses sum to 1. Neighbouring levels share what is learnt of either, which a softmax must learn
    for each. Of 256 levels none can be surer than 0.97, unless it is the first or the last: scales are at least e⁻⁷.

    In the original, the three colours of a pixel are drawn together, the means of green and blue moved by the values
    before them. Here they are places of their own and the backbone reads the ones before, which says at least as much;
    the head knows nothing of colours. Differences of F are products, F(b)·(1 − F(a))·(1 − e^(a − b)), exact where
    both are near 0 or 1: the original replaces such a bin by its midpoint's density.
    Salimans et al. 2017 (arXiv:1701.05517), section 2.1.
    """

    free_logits = False

    def __init__(self, width: int, vocabulary: int, *, components: int = 10):
        super().__init__()
        if components < 1:
            raise ValueError(f"a mixture has at least one component, not {components}")
        if vocabulary < 2:
            raise ValueError(f"a logistic mixture is over at least two levels, not {vocabulary}")
        self.vocabulary, self.components = vocabulary, components
        self.linear = nn.Linear(width, 3 * components)
        nn.init.uniform_(self.linear.weight, -0.1, 0.1)
        with torch.no_grad():  # at first, side by side over the whole range
            log_weights, means, log_scales = self.linear.bias.chunk(3)
            log_weights.zero_()
            means.copy_(2 * (torch.arange(components) + 0.5) / components - 1)
            log_scales.fill_(-math.log(components))

    def logistics(self, hidden: Float[Tensor, "*batch width"]) -> Logistics:
        """The mixture after each hidden vector."""
        weights, means, log_scales = self.linear(hidden).chunk(3, -1)
        return Logistics(torch.log_softmax(weights, -1), means, log_scales.clamp(*LOG_SCALES))

    @in_full_precision
    def forward(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]:
        """A few rows at a time, which are computed once more for a gradient: no batch × components × levels."""
        logistics = self.logistics(hidden)
        rows = [part.reshape(-1, self.components) for part in logistics]
        all_levels = partial(_of_all_levels, levels=self.vocabulary)
        size = max(1, MASSES // (self.vocabulary * self.components))
        return in_parts(all_levels, rows, size).view(*hidden.shape[:-1], self.vocabulary)

    @in_full_precision
    def log_probs(
        self, hidden: Float[Tensor, "*batch width"], targets: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:
        """Of the targets, without the masses of other levels."""
        low, high = (_edges(targets + up, self.vocabulary, hidden.dtype) for up in (-1, 0))
        below, above = (targets == 0).to(hidden), (targets == self.vocabulary - 1).to(hidden)
        return self._mixed(self.logistics(hidden), low, high, below, above)

    def log_mass(
        self, hidden: Float[Tensor, "*batch width"], intensities: Float[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch"]:
        """The logarithm of the mass in a bin around each intensity from 0 to 1; that of level k at k/(levels − 1).

        It is continuous, and has a gradient in the intensity. Where a bin sticks out of the range, by a share of its
        half, it is given that share of the mass outside: all of it at 0 and at 1, as the first and the last level are.
        The original gives all of it up to an intensity of 0.0005 and none from there on, which is a cliff.
        """
        half = 1 / (self.vocabulary - 1)  # of a bin, from −1 to 1
        centre = 2 * intensities - 1
        below, above = (F.relu(1 - side * (2 / half)) for side in (intensities, 1 - intensities))
        return self._mixed(self.logistics(hidden), centre - half, centre + half, below, above)

    def _mixed(
        self, logistics: Logistics, low: Tensor, high: Tensor, below: Tensor, above: Tensor
    ) -> Float[Tensor, "*batch"]:
        """Of one bin in each place. `below` and `above`: the shares of the mass outside the range that are added."""
        log_weights, means, log_scales = logistics
        low, high, below, above = (part[..., None] for part in (low, high, below, above))
        sharpness = torch.exp(-log_scales)
        to_left = F.logsigmoid((high - means) * sharpness)  # of the upper edge
        to_right = F.logsigmoid((means - low) * sharpness)  # of the lower one
        width = _log_width(sharpness, self.vocabulary)
        masses = torch.where(
            above > 0, to_right + _opened(to_left + width, above), to_left + _opened(to_right + width, below)
        )
        return torch.logsumexp(log_weights + masses, -1)


def _of_all_levels(
    log_weights: Float[Tensor, "rows components"],
    means: Float[Tensor, "rows components"],
    log_scales: Float[Tensor, "rows components"],
    *,
    levels: int,
) -> Float[Tensor, "rows levels"]:
    edges = _edges(torch.arange(levels - 1, device=means.device), levels, means.dtype)
    sharpness = torch.exp(-log_scales)[..., None]
    places = (edges - means[..., None]) * sharpness
    to_left, to_right = F.logsigmoid(places), F.logsigmoid(-places)
    inner = to_left[..., 1:] + to_right[..., :-1] + _log_width(sharpness, levels)
    masses = torch.cat([to_left[..., :1], inner, to_right[..., -1:]], -1)
    return torch.logsumexp(log_weights[..., None] + masses, 1)


def _edges(levels: Int[Tensor, "*batch"], count: int, dtype: torch.dtype) -> Float[Tensor, "*batch"]:
    """Where the bins of these levels end above: the same numbers for given targets and for all levels."""
    return (2 * levels + 1).to(dtype) / (count - 1) - 1


def _log_width(sharpness: Tensor, levels: int) -> Tensor:
    """log(1 − e^(a − b)) for the edges a and b of a bin, in units of the component's scale."""
    return torch.log(-torch.expm1(sharpness * (-2 / (levels - 1))))


def _opened(log_mass: Tensor, share: Tensor) -> Tensor:
    """log(share + (1 − share)·mass), exactly `log_mass` at share 0, however small it is."""
    some = share > 0
    safe = torch.where(some, share, 1.0)  # no logarithm of 0 on the way of a gradient
    return torch.where(some, torch.log(safe + (1 - safe) * log_mass.exp()), log_mass)
