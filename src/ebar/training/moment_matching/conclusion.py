"""From λ and the draws it was found on to its moments, errors and warnings.

The draws' error and the data's are each carried through the inverse Hessian.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ebar.estimators.log_z import log_mean
from ebar.estimators.moments import feature_means
from ebar.maths.exponential_family import Tilt, distances, inverse, match, tilt
from ebar.maths.importance import diagnose
from ebar.maths.jackknife import half_width
from ebar.maths.log_space import effective_sample_size
from ebar.samplers.trade_off import QUANTILE
from ebar.training.moment_matching.diagnosis import (
    Finding,
    collinear,
    contradictory_moments,
    ends,
    jointly_impossible,
    unmatched,
)
from ebar.training.moment_matching.matching import Fitted, Pool, Solution, Wanted, allowed
from ebar.types import Estimate


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


def conclude(
    method: str,
    solution: Solution,
    *,
    trace: tuple[float, ...],
    draws: int,
    aimed: Float[Tensor, " features"] | None = None,
    iterative: bool = False,
    acceptance_rate: float | None = None,
    said: tuple[str, ...] = (),
) -> Fitted:
    """λ with its moments, errors and warnings.

    `aimed`: the moments matched, where the draws do not allow those wanted.
    `iterative`: λ need not be at the optimum of these draws, so the remaining step of Newton is part of its error.
    """
    features, wanted, pool, coefficients, ridge, level, _ = solution
    log_weights, free = allowed(pool, coefficients)
    values = pool.values[:, free]
    state = tilt(values, log_weights, coefficients[free])
    error = errors(state, solution)
    log_tilted = log_weights + values @ coefficients[free]
    size = math.inf if pool.exact else float(effective_sample_size(log_tilted))

    def whole(part: Float[Tensor, " free"]) -> Float[Tensor, " features"]:
        return torch.zeros_like(coefficients).masked_scatter(free, part)

    moments = whole(state.moments)
    found = ends(solution) + collinear(features, pool)
    aim = solution if aimed is None else solution._replace(wanted=wanted._replace(moments=aimed))
    found += contradictory_moments(features, wanted, aim.wanted.moments, _columns(found))
    hessian = state.covariance + ridge * torch.eye(len(values[0]), dtype=torch.float64)
    found += jointly_impossible(aim, whole(ridge * inverse(hessian) @ coefficients[free]), _columns(found))
    spread = (state.probabilities[:, None].square() * (values - state.moments).square()).sum(0).sqrt()
    found += unmatched(solution, moments, whole(4 * spread if iterative else 0 * spread), _columns(found))
    sentences = [finding.sentence for finding in found]
    if not pool.exact:
        sentences += _about_weights(pool, log_tilted)

    covariance = error.monte_carlo if error.data is None else error.monte_carlo + error.data
    if iterative:
        covariance = covariance + torch.outer(error.remaining, error.remaining)
    return Fitted(
        method=method,
        names=tuple(features.names),
        coefficients=coefficients,
        covariance=_whole(covariance, free),
        monte_carlo_covariance=_whole(error.monte_carlo, free),
        data_covariance=None if error.data is None else _whole(error.data, free),
        data_moments=tuple(wanted.moments.tolist()),
        model_moments=_moments(solution, log_tilted, moments),
        base_moments=_moments(solution, pool.log_weights, torch.softmax(pool.log_weights, 0) @ pool.values),
        distance=float((moments - wanted.moments).abs().sum()),
        trace=trace,
        effective_sample_size=size,
        acceptance_rate=acceptance_rate,
        log_z=_log_z(pool, log_tilted, level),
        draws=draws,
        warnings=tuple(dict.fromkeys([*said, *sentences])),
        intervals=_intervals(error, found, aim, size=size, iterative=iterative),
    )


def _columns(found: list[Finding]) -> set[int]:
    return {column for finding in found for column in finding.columns}


def _whole(matrix: Float[Tensor, "free free"], free: Tensor) -> Float[Tensor, "features features"]:
    """With 0 for the λ that were set by hand to −∞ and so have no error."""
    whole = torch.zeros(len(free), len(free), dtype=torch.float64)
    whole[free.nonzero(), free.nonzero().T] = matrix
    return whole


def _moments(
    solution: Solution, log_weights: Float[Tensor, " draws"], exactly: Float[Tensor, " features"]
) -> tuple[Estimate, ...]:
    if solution.pool.exact:
        return tuple(Estimate.exact(value) for value in exactly.tolist())
    return tuple(feature_means(log_weights, solution.pool.values, solution.features, solution.level))


def _log_z(pool: Pool, log_tilted: Float[Tensor, " draws"], level: float) -> Estimate:
    found = log_mean(log_tilted[None], level=level)[0].estimate
    return Estimate.exact(found.value) if pool.exact else found


def _about_weights(pool: Pool, log_tilted: Float[Tensor, " draws"]) -> list[str]:
    """Too few effective draws, or a heavy tail: of the weights under P_λ, and of those that bring draws back to r."""
    found = []
    under_p, under_r = diagnose(log_tilted[None])[0], diagnose(pool.log_weights[None])[0]
    if under_p is not None:
        found.append(f"Under P_λ {under_p}.")
    if under_r is not None:
        found.append(f"Under r itself {under_r}.")
    return found


def _intervals(
    error: Errors, found: list[Finding], solution: Solution, *, size: float, iterative: bool
) -> tuple[Estimate, ...]:
    _, wanted, pool, coefficients, *_ = solution
    free = coefficients != -math.inf
    unbounded = {column for finding in found if finding.open_low and finding.open_high for column in finding.columns}
    asked = torch.tensor([column not in unbounded for column in range(len(coefficients))])
    sides = data_distances(solution, asked)
    below, above = (_reach(error, side[free], iterative) for side in sides)
    below, above = (torch.zeros_like(coefficients).masked_scatter(free, side) for side in (below, above))
    if wanted.size is not None:
        size = min(size, float(wanted.size))  # however many were drawn, λ is known from no more than the data
    intervals = []
    for column, value in enumerate(coefficients.tolist()):
        about = [finding for finding in found if column in finding.columns]
        open_low, open_high = any(one.open_low for one in about), any(one.open_high for one in about)
        low, high = value - float(below[column]), value + float(above[column])
        seen = pool.values[:, column]
        at_end = not float(seen.min()) < float(wanted.moments[column]) < float(seen.max())
        if open_low != open_high and at_end and value > -math.inf:
            end = bound_at_the_end(solution, column)
            low, high = (low, max(end, value)) if open_low else (min(end, value), high)
        elif value == -math.inf:
            high = _upper_if_soft(solution, column)
        low, high = -math.inf if open_low else low, math.inf if open_high else high
        warning = about[0].sentence if about else None
        intervals.append(Estimate(value, low, high, size, warning, solution.level))
    return tuple(intervals)


def _reach(error: Errors, of_data: Float[Tensor, " free"], iterative: bool) -> Float[Tensor, " free"]:
    """One side of the intervals: by the spread that the data show or by that of P_λ, whichever is wider."""
    by_model = (of_data.square() + error.monte_carlo_widths.square()).sqrt()
    widths = torch.maximum(error.widths, by_model)
    # A remaining step, an error whose size is known, is made as wide as the rest.
    return (widths.square() + (QUANTILE * error.remaining).square()).sqrt() if iterative else widths


def _upper_if_soft(solution: Solution, column: int) -> float:
    """The upper limit that the data would give a λ that was set to −∞ by choice."""
    if solution.wanted.size is None:
        return -math.inf
    coefficients = solution.coefficients
    softened = torch.where(torch.arange(len(coefficients)) == column, -5.0, coefficients)
    log_weights, _ = allowed(solution.pool, softened)
    if not bool((solution.pool.values[:, column][log_weights > -math.inf] != 0).any()):
        return math.inf
    return bound_at_the_end(solution._replace(coefficients=softened), column)
