"""Distributions of points, whose densities are known: mixtures of Gaussians, and the uniform one on a box.

x is a float tensor, rows first. A density may exceed 1, so log_prob above 0 is no fault here.
"""

import torch
from jaxtyping import Float
from torch import Generator, Tensor, nn

from ebar.errors import UserError
from ebar.maths import mixtures
from ebar.maths.mixtures import Mixture, draw_mixture, mixture_log_density
from ebar.models.tilted import measured_energy
from ebar.shapes import of_points
from ebar.types import Context, Energy, PointSpace, context_rows


class GaussianMixture(nn.Module):
    """Σₖ wₖ·N(μₖ, diag vₖ). Without weights, all components are equally likely.

    Its tensors are buffers, so `.to()` moves it and nothing trains it.
    """

    means: Tensor
    variances: Tensor
    weights: Tensor

    def __init__(
        self,
        means: Float[Tensor, "components ..."],
        variances: Float[Tensor, "components ..."] | float = 1.0,
        weights: Float[Tensor, " weights"] | None = None,
    ):
        super().__init__()
        variances = torch.as_tensor(variances, dtype=means.dtype, device=means.device).expand(means.shape).clone()
        weights = means.new_ones(len(means)) if weights is None else weights
        if weights.shape != means.shape[:1]:
            raise UserError(f"A mixture of {len(means)} components needs as many weights, not {weights.numel()}.")
        if not bool((variances > 0).all()) or not bool((weights >= 0).all()) or not bool(weights.sum() > 0):
            raise UserError("The variances of a mixture must be above 0, and its weights 0 or more and not all 0.")
        self.register_buffer("means", means.detach().clone())
        self.register_buffer("variances", variances.detach())
        self.register_buffer("weights", (weights / weights.sum()).detach().to(means))

    @property
    def space(self) -> PointSpace:
        return PointSpace(tuple(self.means.shape[1:]))

    @property
    def parameters_of_mixture(self) -> Mixture:
        return Mixture(self.means, self.variances, self.weights)

    def log_prob(self, x: Float[Tensor, "batch ..."], context: Context | None = None) -> Float[Tensor, " batch"]:
        return mixture_log_density(self.parameters_of_mixture, of_points(x, self.space))

    def sample(
        self, n: int, context: Context | None = None, *, generator: Generator
    ) -> Float[Tensor, "draws ..."]:  # fmt: skip
        return draw_mixture(self.parameters_of_mixture, n * context_rows(context), generator)

    def mean(self) -> Float[Tensor, "..."]:
        """E[x]."""
        return self._average(self.means)

    def variance(self) -> Float[Tensor, "..."]:
        """Of each coordinate: E[v] + E[μ²] − E[μ]²."""
        return self._average(self.variances + self.means.square()) - self.mean().square()

    def _average(self, values: Float[Tensor, "components ..."]) -> Float[Tensor, "..."]:
        found: Tensor = torch.tensordot(self.weights, values, 1)
        return found


class UniformBox(nn.Module):
    """The uniform distribution on the box low ≤ x ≤ high: the base that makes an energy on a rectangle a model.

    `Tilted(UniformBox(low, high), energy)` has Z = (1/volume)·∫ exp(−E) over the box, so ∫ exp(−E) is volume·Z.
    """

    low: Tensor
    high: Tensor

    def __init__(self, low: Float[Tensor, "..."], high: Float[Tensor, "..."]):
        super().__init__()
        if low.ndim == 0 or not bool((low < high).all()) or not bool((high - low).isfinite().all()):
            raise UserError("A box needs a corner `low` below its corner `high` in every coordinate, both finite.")
        self.register_buffer("low", low.detach().clone())
        self.register_buffer("high", high.detach().clone())

    @property
    def space(self) -> PointSpace:
        return PointSpace(tuple(self.low.shape))

    @property
    def log_volume(self) -> float:
        return float((self.high - self.low).double().log().sum())

    def log_prob(self, x: Float[Tensor, "batch ..."], context: Context | None = None) -> Float[Tensor, " batch"]:
        x = of_points(x, self.space)
        outside = ((x < self.low) | (x > self.high)).flatten(1).any(1)
        # A sum over x, so that a gradient in x is 0 and not missing, and NaN stays NaN.
        flat = (x.flatten(1) * 0).sum(1) - self.log_volume
        return torch.where(outside, -torch.inf, flat)

    def sample(
        self, n: int, context: Context | None = None, *, generator: Generator
    ) -> Float[Tensor, "draws ..."]:  # fmt: skip
        shape = (n * context_rows(context), *self.low.shape)
        uniform = torch.rand(shape, dtype=self.low.dtype, device=self.low.device, generator=generator)
        return torch.lerp(self.low, self.high, uniform)


class Boltzmann(nn.Module):
    """P(x) = exp(−E(x)) with no base: Z is the integral of exp(−E) over the whole space, where that is finite.

    It has nothing to draw from, so a sampler needs a proposal, which must have mass wherever P has.
    """

    def __init__(self, energy: Energy[Tensor]):
        super().__init__()
        self.energy = energy

    def log_score(self, x: Float[Tensor, "batch ..."], context: Context | None = None) -> Float[Tensor, " batch"]:
        return -measured_energy(self.energy, x, context)


def standard_normal(dimensions: int) -> GaussianMixture:
    """N(0, 1) in each of the dimensions."""
    return GaussianMixture(torch.zeros(1, dimensions))


def four_gaussians() -> GaussianMixture:
    """The four Gaussians of Dai 2019 (thesis), Figure B.1."""
    return mixture("four_gaussians")


def biased_gaussians() -> GaussianMixture:
    """The two Gaussians of weights 0.1 and 0.9 of Dai 2019 (thesis), Figure B.1."""
    return mixture("biased_gaussians")


def spirals(convention: str = "data") -> GaussianMixture:
    """The two spirals of Dai 2019 (thesis), Figure B.1: as the data are drawn ("data", standard deviation 0.45), or as
    the authors' "true" energy has them ("energy", variance 1)."""
    return _module(mixtures.spirals(convention))


def mixture(name: str) -> GaussianMixture:
    """A mixture of `MIXTURES` by name, the spirals as the data are drawn, in torch's default type."""
    return _module(mixtures.MIXTURES.choose(name)())


def _module(found: Mixture) -> GaussianMixture:
    return GaussianMixture(*found).to(torch.get_default_dtype())
