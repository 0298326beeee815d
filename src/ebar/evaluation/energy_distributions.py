"""The energies of data, of q's draws and of the joint model's: matching models match statistics. Deng et al. 2020."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.errors import UserError
from ebar.evaluation.means import plain_mean
from ebar.maths.log_space import normalised
from ebar.shapes import of_shape
from ebar.types import Estimate

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class EnergyDistribution(NamedTuple):
    """Energies under one of the three."""

    mean: Estimate  # over prefixes
    deviation: float
    quantiles: tuple[float, ...]  # at `QUANTILES`
    shares: tuple[float, ...]  # of each bin


class EnergyDistributions(NamedTuple):
    """On the same prefixes and the same bins."""

    data: EnergyDistribution
    base: EnergyDistribution
    joint: EnergyDistribution
    edges: tuple[float, ...]  # of the bins, one more than there are bins
    base_gap: Estimate  # mean energy of q's draws − of data, paired by prefix
    joint_gap: Estimate  # the joint model's − data's: 0 where it has learnt them


def energy_distributions(
    data: Float[Tensor, " prefixes"], draws: Float[Tensor, "prefixes draws"], *, bins: int = 40, level: float = 0.95
) -> EnergyDistributions:
    """From E of one continuation per prefix and of n draws from q after it.

    The joint model's are q's draws weighted by e⁻ᴱ within each prefix: what resampling would give on average, without
    its noise. With few draws a prefix's weights lag behind p, and the joint mean is too near to q's.
    """
    data, draws = data.detach().double().cpu(), draws.detach().double().cpu()
    if data.numel() == 0 or draws.numel() == 0 or bins < 1:
        raise UserError("Energies are compared on at least one prefix, with a draw for it and a bin to put it in.")
    of_shape(draws, (len(data), draws.shape[-1]), "The energies of draws, a row for each prefix,")
    of_shape(data, (len(draws),), "The energies of data")
    if not bool(data.isfinite().all() and draws.isfinite().all()):
        raise UserError("Some energy is not a finite number: check the energy, or leave these sequences out.")
    weights = {
        "data": torch.full_like(data[:, None], 1 / len(data)),
        "base": torch.full_like(draws, 1 / draws.numel()),
        "joint": normalised(-draws) / len(data),
    }
    low, high = (float(end) for end in torch.cat([data, draws.flatten()]).aminmax())
    edges = torch.linspace(low, high if high > low else low + 1.0, bins + 1, dtype=torch.float64)
    values = {"data": data[:, None], "base": draws, "joint": draws}
    found = {name: _distribution(values[name], weights[name], edges, level) for name in values}
    means = {name: (values[name] * weights[name]).sum(1) * len(data) for name in values}
    gaps = [plain_mean(means[name] - data, name=f"gap of {name}", level=level) for name in ("base", "joint")]
    return EnergyDistributions(
        found["data"], found["base"], found["joint"], tuple(edges.tolist()), base_gap=gaps[0], joint_gap=gaps[1]
    )


def _distribution(
    values: Float[Tensor, "prefixes draws"], weights: Float[Tensor, "prefixes draws"], edges: Tensor, level: float
) -> EnergyDistribution:
    flat, shares = values.flatten(), weights.flatten()
    mean = plain_mean((values * weights).sum(1) * len(values), name="energy", level=level)
    deviation = math.sqrt(float((shares * (flat - mean.value).square()).sum()))
    order = flat.argsort()
    cumulative = shares[order].cumsum(0)
    places = torch.searchsorted(cumulative, torch.tensor(QUANTILES, dtype=torch.float64) * (1 - 1e-12))
    quantiles = flat[order][places.clamp(max=len(flat) - 1)]
    bin_of = (torch.searchsorted(edges, flat, right=True) - 1).clamp(0, len(edges) - 2)
    heights = torch.zeros(len(edges) - 1, dtype=torch.float64).index_add(0, bin_of, shares)
    return EnergyDistribution(mean, deviation, tuple(quantiles.tolist()), tuple(heights.tolist()))
