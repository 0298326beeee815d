"""How well an energy tells data from draws of q, in numbers."""

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.maths.log_space import log_mean_exp

BINS = 10


def contrast_figures(
    data: Float[Tensor, " rows"], noise: Float[Tensor, "rows negatives"], *, normalised: bool = True
) -> dict[str, float]:
    """Energies of data and of ν negatives each. What needs E's own constant is left out unless E is `normalised`.

    - `energy_data`, `energy_noise`: means.
    - `log_z`: log of the mean of e^{−E} over all the draws; no more than a sign of how far the mean over contexts of
      Z has drifted from 1, and below it on average. Per context, `estimators` measure it.
    - `ranked_first`: how often a datum has the least energy of its group; ties share.
    - `accuracy`: of the sign of E, data and noise counted alike whatever ν; ties are half right.
    - `brier`: mean square of σ(−E) − [it is data], counted alike.
    - `calibration_error`: see `calibration_error`.
    """
    data, noise = data.double(), noise.double()
    least = noise.amin(1)
    ties = (noise == data[:, None]).sum(1)
    first = torch.where(data <= least, 1 / (1.0 + ties.double()), 0.0)
    figures = {
        "energy_data": float(data.mean()),
        "energy_noise": float(noise.mean()),
        "log_z": float(log_mean_exp(-noise.flatten())),
        "ranked_first": float(first.mean()),
    }
    if normalised:
        right = (_below_zero(data).mean() + _below_zero(-noise).mean()) / 2
        brier = (torch.sigmoid(data).square().mean() + torch.sigmoid(-noise).square().mean()) / 2
        figures |= {
            "accuracy": float(right),
            "brier": float(brier),
            "calibration_error": calibration_error(data, noise.flatten()),
        }
    return figures


def calibration_error(data: Float[Tensor, " data"], noise: Float[Tensor, " noise"], bins: int = BINS) -> float:
    """Σ over bins of σ(−E) of |mean of σ(−E) − share of data| times the bin's share, data and noise counted alike.

    With equal counts σ(−E) is the chance that x is data. Over few rows chance alone makes it large: about
    √(bins / rows) of it is no fault of the energy's. Guo et al. 2017 (arXiv:1706.04599), equation 3.
    """
    chance = torch.sigmoid(-torch.cat([data, noise]).double())
    weight = torch.cat([torch.full_like(data, 0.5 / len(data)), torch.full_like(noise, 0.5 / len(noise))]).double()
    truth = torch.cat([torch.ones_like(data), torch.zeros_like(noise)]).double()
    which = (chance * bins).long().clamp(max=bins - 1)
    member = which == torch.arange(bins, device=which.device)[:, None]
    return float((member.double() @ (weight * (chance - truth))).abs().sum())


def _below_zero(energies: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
    """1 where it is, ½ at 0."""
    return (1 - energies.sign()) / 2
