"""How well λ is known: the draws' error and the data's, each carried through the inverse Hessian."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ebar.maths.exponential_family import Tilt, inverse, match, tilt
from ebar.maths.jackknife import half_width
from ebar.maths.profile import distances
from ebar.training.moment_matching.matching import Wanted
from ebar.training.moment_matching.pool import Solution, allowed


class Errors(NamedTuple):
    """Of λ̂ as the root of m − E_λ[φ] − ρλ, in which both moments are estimates: the sandwich H⁻¹·V·H⁻¹ of each.

    Where r was fitted to the same data its moments move with m, and the sum is an upper bound rather than the truth.
    """

    monte_carlo: Float[Tensor, "features features"]
    data: Float[Tensor, "features features"] | None
    widths: Float[Tensor, " features"]  # half of each interval, by the spread that draws and data show
    monte_carlo_widths: Float[Tensor, " features"]  # the same by the draws alone
    remaining: Float[Tensor, " features"]  # H⁻¹·(m − E_λ[φ]): what a last step of Newton would still change


def errors(state: Tilt, found: Solution) -> Errors:
    """V of the draws is Σ p²(φ−μ)(φ−μ)ᵀ, centred within each source.

    V of the data is cov(φ_D)/|D|, or what data of P_λ would have, cov_λ(φ)/|D|, in each direction the larger: a
    feature that is the same in all data, or the only datum, shows no spread, and that is no reason for certainty.
    The larger of a robust and a model-based error is also what Angrist and Pischke 2009, §8.1, advise for few data.
    """
    pool, wanted, columns = found.pool, found.wanted, found.coefficients != -math.inf
    hessian = state.covariance + found.ridge * torch.eye(len(state.moments), dtype=torch.float64)
    inverted = inverse(hessian)
    goal, values = wanted.moments[columns], pool.values[:, columns]
    remaining = inverted @ (goal - state.moments)
    parts: list[Tensor] = []
    monte_carlo, monte_carlo_widths = torch.zeros_like(hessian), torch.zeros_like(goal)
    if not pool.exact:
        # What leaving the draw out would do to E_λ[φ]; it takes 1/(1 − p) for a draw that carries much.
        share = state.probabilities[:, None]
        moved = share * (values - state.moments) / (1 - share).clamp(min=1e-12)
        for source in sorted(set(pool.source.tolist())):
            inside = moved[pool.source == source]
            centred = (inside - inside.mean(0)) @ inverted * math.sqrt(len(inside) / max(len(inside) - 1, 1))
            monte_carlo = monte_carlo + centred.T @ centred
            parts.append(centred)
        monte_carlo_widths = half_width(torch.cat(parts).T, found.level)
    data = None
    if wanted.values is not None:
        size = len(wanted.values)
        centred = (wanted.values[:, columns] - goal) @ inverted / math.sqrt(size * max(size - 1, 1))
        data = _larger(centred.T @ centred, inverted / size)
        parts.append(centred)
    widths = half_width(torch.cat(parts).T, found.level) if parts else torch.zeros_like(goal)
    # A single datum without draws says nothing by its own spread, and the model's stands for it.
    widths = torch.where(widths.isfinite(), widths, monte_carlo_widths) if wanted.size == 1 else widths
    return Errors(monte_carlo, data, widths, monte_carlo_widths, remaining)


def _larger(
    one: Float[Tensor, "features features"], other: Float[Tensor, "features features"]
) -> Float[Tensor, "features features"]:
    """A covariance that in no direction is less than either: on the axes of both, the larger variance.

    Axes on which `other` is 0 stay 0.
    """
    values, vectors = torch.linalg.eigh(other)
    root = vectors * values.clamp(min=0).sqrt()
    back = vectors * torch.where(values > 0, values, torch.inf).rsqrt()
    ratios, axes = torch.linalg.eigh(back.T @ one @ back)
    both: Tensor = root @ (axes * ratios.clamp(min=1)) @ axes.T @ root.T
    return both


def data_distances(
    solution: Solution, asked: Bool[Tensor, " features"]
) -> tuple[Float[Tensor, " features"], Float[Tensor, " features"]]:
    """How far below and above λ the interval of the data's error reaches, were the data draws of P_λ.

    0 where moments were given, and for the features not asked about.
    """
    wanted, coefficients = solution.wanted, solution.coefficients
    below, above = torch.zeros_like(coefficients), torch.zeros_like(coefficients)
    if wanted.size is None:
        return below, above
    log_weights, columns = allowed(solution.pool, coefficients)
    for column in (asked & columns).nonzero().flatten().tolist():
        below[column], above[column] = distances(
            solution.pool.values[:, columns],
            log_weights,
            wanted.moments[columns],
            int(columns[:column].sum()),
            size=wanted.size,
            ridge=solution.ridge,
            level=solution.level,
            start=coefficients[columns],
        )
    return below, above


def bound_at_the_end(solution: Solution, column: int) -> float:
    """The λ beyond which the data, all at one end of a feature's range, leave its size open.

    A share s of other data would go unseen in |D| with probability (1−s)^|D| = 1 − level (the rule of three): this is
    the λ that matches s, the draws' error added. With moments given exactly there is no such room: λ itself.
    """
    pool, wanted, coefficients = solution.pool, solution.wanted, solution.coefficients
    if wanted.size is None:
        return float(coefficients[column])
    seen = pool.values[:, column]
    share = 1 - (1 - solution.level) ** (1 / wanted.size)
    at_low = float(wanted.moments[column]) <= float(seen.min())
    moment = (
        seen.min() + share * (seen.max() - seen.min()) if at_low else seen.max() - share * (seen.max() - seen.min())
    )
    moments = wanted.moments.clone()
    moments[column] = moment
    log_weights, columns = allowed(pool, coefficients)
    values = pool.values[:, columns]
    found = match(values, log_weights, moments[columns], ridge=solution.ridge, start=coefficients[columns])
    state = tilt(values, log_weights, found.coefficients)
    index = int(columns[:column].sum())
    error = errors(state, solution._replace(wanted=Wanted(moments, None, None)))
    end, width = float(found.coefficients[index]), float(error.widths[index])
    return end + width if at_low else end - width
