"""Adversarial games on a finite space, where both players are tables and the optimum is known (Dai et al. 2017a, B.3).

    max_c min_p  Σₓ c(x)·(p(x) − p_data(x)) + α·K(p)

p is any distribution on the space, c any table of energies. By the KKT conditions (Proposition 2) the optimum is
p = p_data and c = −α·K′(p_data) − λ + μ, with λ any number and μ(x) ≥ 0 only where p_data(x) = 0: the energy of the
data for K = −H, minus their probability for K = ½·Σ p², flat for a constant K; off the support it is free.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from ebar.errors import UserError, choose
from ebar.objectives.adversarial_costs import DIVERGENCES

Table = Float[Tensor, " space"]
SECTIONS = 64  # into which an interval is cut at a time

# K′(p), of K(p) = Σ p·log p, of ½·Σ p², and of a constant.
GRADIENTS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "entropy": lambda p: p.log() + 1,
    "l2": lambda p: p,
    "constant": torch.zeros_like,
}


class FiniteOptimum(NamedTuple):
    """Where a game on a finite space ended."""

    generator: Table
    energy: Table
    steps: int
    residual: float  # the largest amount by which a KKT condition is missed


def optimal_energy(data: Table, term: str, *, weight: float = 1.0) -> Table:
    """−α·K′(p_data) on the support, its mean over the data taken off; NaN elsewhere, where it is undetermined."""
    support = data > 0
    found = -weight * choose(GRADIENTS, term, "term")(data)
    found = found - (data * found)[support].sum()
    return found.where(support, torch.nan)


def solve_finite_game(
    data: Table, term: str, *, weight: float = 1.0, start: Table | None = None, rate: float = 0.2,
    steps: int = 200_000, tolerance: float = 1e-6,
) -> FiniteOptimum:  # fmt: skip
    """The optimum of the game, by mirror-prox: each player steps twice, the second time by what it met at the first.

    Plain simultaneous steps circle around the optimum where K is constant; these do not (Nemirovski 2004). The
    generator's steps are multiplicative, so that p stays a distribution; `start` are the first energies, 0 by default.
    With K = −H and p_data(x) = 0 somewhere there is no optimum to reach: c(x) grows without end.
    """
    gradient = choose(GRADIENTS, term, "term")
    if bool((data < 0).any()) or abs(float(data.sum()) - 1) > 1e-9:
        raise UserError("The data of a finite game are probabilities: numbers of at least 0 that add up to 1.")
    if term == "entropy" and bool((data == 0).any()):
        raise UserError("With an entropy every x must have some probability: its energy is infinite where it has none.")
    data = data.double()
    energy = torch.zeros_like(data) if start is None else start.double()
    log_p = torch.full_like(data, -data.numel()).log_softmax(0)
    residual = torch.inf
    for step in range(1, steps + 1):
        p = log_p.exp()
        met_p = (log_p - rate * (energy + weight * gradient(p))).log_softmax(0)
        met_energy = energy + rate * (p - data)
        energy = energy + rate * (met_p.exp() - data)
        log_p = (log_p - rate * (met_energy + weight * gradient(met_p.exp()))).log_softmax(0)
        if step % 100 == 0:
            residual = kkt_residual(data, log_p.exp(), energy, term, weight=weight)
            if residual < tolerance:
                break
    return FiniteOptimum(log_p.exp(), energy, step, float(residual))


def kkt_residual(data: Table, generator: Table, energy: Table, term: str, *, weight: float = 1.0) -> float:
    """By how much the conditions B.18 are missed: p = p_data, stationarity on the support, μ ≥ 0 off it."""
    support = data > 0
    level = energy + weight * GRADIENTS[term](data)  # −λ + μ
    low = (data * level)[support].sum()
    on_support = (level - low)[support].abs().max()
    off_support = (low - level)[~support].clamp(min=0).sum()
    return float(torch.stack([(generator - data).abs().max(), on_support, off_support]).max())


def ebgan_energy(data: Table, generator: Table, *, margin: float, where_equal: Table) -> Table:
    """EBGAN's best energy for a generator (B.20): 0 where it draws too seldom, m where too often, else anything.

    `where_equal` is that anything: each number of [0, m], or above m where neither has any probability, is as good.
    """
    return torch.where(generator < data, 0.0, torch.where(generator > data, margin, where_equal))


def ebgan_value(data: Table, generator: Table, energy: Table, *, margin: float) -> float:
    """What EBGAN's discriminator maximises (B.19): E_gen[min(0, c − m)] − E_data[c]."""
    return float((generator * (energy - margin).clamp(max=0)).sum() - (data * energy).sum())


def solve_ebgan(data: Table, *, margin: float = 1.0, rate: float = 1.0, generator: Generator) -> FiniteOptimum:
    """A run of EBGAN from random tables to its optimum (Proposition 3): p_data, and whatever energy is left over.

    Against the best energy the generator's cost is m·Σ max(p − p_data, 0) (B.22), which falls as mass goes from where
    there is most too much to where there is most too little, without overshooting. The discriminator follows the
    gradient of B.19, p·[c < m] − p_data, which is 0 for every table in [0, m] as soon as p = p_data.
    """
    p = torch.rand(data.shape, dtype=torch.float64, generator=generator)
    p = p / p.sum()
    energy = margin * torch.rand(data.shape, dtype=torch.float64, generator=generator)
    steps = 2 * data.numel()
    for _ in range(steps):
        excess = p - data
        moved = torch.minimum(excess.max(), -excess.min())
        p = p.index_add(0, torch.stack([excess.argmin(), excess.argmax()]), torch.stack([moved, -moved]))
        energy = (energy + rate * (p * (energy < margin) - data)).clamp(0, margin)
    best = ebgan_value(data, data, torch.zeros_like(energy), margin=margin)
    missed = abs(ebgan_value(data, p, energy, margin=margin) - best)
    return FiniteOptimum(p, energy, steps, max(missed, float((p - data).abs().max())))


def solve_f_gan(data: Table, divergence: str, term: str, *, weight: float) -> FiniteOptimum:
    """The f-GAN with α·K(p) added (B.7.3): min_p E_p[f(p_data/p)] + α·K(p), and the energy −T of its discriminator.

    T = f′(p_data/p) whatever K is. Where it keeps something of the density, p is not p_data; as α falls p tends to
    p_data and T to a constant, as α grows p tends to the uniform distribution and T for the Kullback-Leibler
    divergence to log p_data + constant. Solved by bisection: −f*(T) + α·K′(p) + λ = 0 for each x, Σ p = 1.
    """
    chosen, gradient = choose(DIVERGENCES, divergence, "divergence"), choose(GRADIENTS, term, "term")
    data = data.double()

    def shares(levels: Tensor) -> Tensor:
        """p of each x, for each λ: the left side above grows with p."""
        low = torch.full((len(levels), len(data)), math.log(1e-300), dtype=data.dtype)
        high = torch.full_like(low, math.log(2))
        for _ in range(64):
            middle = (low + high) / 2
            p = middle.exp()
            slope = weight * gradient(p) - chosen.conjugate(chosen.derivative(data / p)) + levels[:, None]
            low, high = torch.where(slope > 0, low, middle), torch.where(slope > 0, middle, high)
        return ((low + high) / 2).exp()

    levels = torch.linspace(-1e6, 1e6, SECTIONS, dtype=data.dtype)
    for _ in range(12):  # each cuts the interval into 63 parts
        at = int((shares(levels).sum(1) > 1).sum()) - 1  # the more λ, the less p
        levels = torch.linspace(float(levels[at]), float(levels[at + 1]), SECTIONS, dtype=data.dtype)
    p = shares(levels[:1])[0]
    return FiniteOptimum(p, -chosen.derivative(data / p), 12, abs(float(p.sum()) - 1))


def entropy_bound(
    prior: Float[Tensor, " latent"], likelihood: Float[Tensor, "latent space"], guess: Float[Tensor, "space latent"]
) -> Float[Tensor, ""]:
    """H(z) + E[log q(z|x)] + H(x|z) for tables p(z), p(x|z), q(z|x): at most H(x), tight for the posterior (B.13)."""
    joint = prior[:, None] * likelihood
    return -torch.xlogy(prior, prior).sum() - torch.xlogy(joint, likelihood).sum() + torch.xlogy(joint, guess.T).sum()
