"""What to know before believing λ, each in one sentence."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.features.feature import Feature, Features
from ebar.training.moment_matching.matching import Pool, Solution, Wanted

SHIFT = 0.5  # nats over a feature's range: where the prior moves λ by more than this, it decides λ
UNMATCHED = 1e-3  # of a feature's range
LARGEST_HULL = 20_000  # distinct feature vectors, beyond which the convex hull is not asked


class Finding(NamedTuple):
    """One sentence, about some features."""

    sentence: str
    columns: tuple[int, ...]
    open_low: bool = False  # their λ has no lower end
    open_high: bool = False


def ends(solution: Solution) -> list[Finding]:
    """Features whose wanted moment lies at the end of what the draws show, or beyond: λ has no finite value there."""
    found = [_end(solution, column, feature) for column, feature in enumerate(solution.features.features)]
    return [finding for finding in found if finding is not None]


def _end(solution: Solution, column: int, feature: Feature) -> Finding | None:
    wanted, pool, decided = solution.wanted, solution.pool, solution.decided
    seen = pool.values[:, column][pool.log_weights > -math.inf]
    low, high, value = float(seen.min()), float(seen.max()), float(solution.coefficients[column])
    name, moment = repr(feature.name), float(wanted.moments[column])
    near = 1e-9 * max(high - low, 1e-3)
    draws = "sequences of the model" if pool.exact else "draws"
    if wanted.size == 1:
        whose = f"{name} is {moment:g} in the only datum"
    elif wanted.constant(column):
        whose = f"{name} is {moment:g} in all {wanted.size:,} of the data"
    elif wanted.size is not None:
        whose = f"{name} has a mean of {moment:g} in the data"
    else:
        whose = f"{name} is to have a mean of {moment:g}"
    if low == high:
        same = abs(moment - low) <= near
        what = "and in all" if same else f"but {low:g} in all"
        unmet = "" if same else "this cannot be matched without draws of both sides, and "
        advice = f"{unmet}nothing is known of its λ"
        return Finding(f"{whose} {what} {draws}, so {advice}, which is left at {value:g}.", (column,), True, True)
    if value == -math.inf:
        return Finding(f"{whose}, and its λ is −inf as asked: whatever has it is impossible under P.", (column,), True)
    if moment < low - near or moment > high + near:
        return Finding(
            f"{whose}, outside the [{low:g}, {high:g}] of the {draws}: no λ matches it, and {decided} stopped it "
            f"at {value:.4g}.", (column,), moment < low, moment > high,
        )  # fmt: skip
    if moment <= low + near:
        hard = "a hard constraint sets it to −inf instead" if low == feature.low == 0 else "take it as a bound only"
        return Finding(
            f"{whose}, so its best λ is −inf: {decided} stopped it at {value:.4g}; {hard}.", (column,), open_low=True
        )
    if moment >= high - near:
        return Finding(
            f"{whose}, so its best λ is +inf: {decided} stopped it at {value:.4g}; to forbid the other side, make "
            "the opposite feature a hard constraint (in a tilt, ! before it and =-inf after it).",
            (column,), open_high=True,
        )  # fmt: skip
    if wanted.constant(column):
        cannot = (
            "" if wanted.size == 1 else "λ matches this mean, which is all it can do, and cannot make it constant; "
        )
        sentence = (
            f"{whose}: {cannot}what is not seen to vary says nothing of its error, so the interval of λ supposes "
        )
        return Finding(f"{sentence}data that vary as draws of P_λ do.", (column,))
    return None


def collinear(features: Features, pool: Pool) -> list[Finding]:
    """Features of which one is a combination of others on every draw: only their combination is known."""
    values = pool.values[pool.log_weights > -math.inf]
    varying = (values.amax(0) > values.amin(0)).nonzero().squeeze(1)
    if len(varying) < 2:
        return []
    points = values[:, varying] - values[:, varying].mean(0)
    points = points / points.std(0, unbiased=False)
    spreads, directions = torch.linalg.eigh(points.T @ points / len(points))
    flat = directions[:, spreads < 1e-10]
    involved = varying[(flat.abs() > 1e-4).any(1)].tolist()
    if not involved:
        return []
    names = ", ".join(repr(features.names[column]) for column in involved)
    sentence = (
        f"On every draw the features {names} determine one another: only a combination of their λ is known, the "
        "smallest that matches was taken; leave one out."
    )
    return [Finding(sentence, tuple(involved), True, True)]


def jointly_impossible(solution: Solution, shifts: Float[Tensor, " features"], known: set[int]) -> list[Finding]:
    """Moments each possible alone and not all at once, or possible only at the boundary.

    `shifts`: how far the prior moves each λ. `known`: features of which something was said already.
    """
    features, wanted, pool, coefficients, *_, decided = solution
    found = []
    if not _in_hull(pool, wanted.moments):
        sentence = "No mixture of the draws has the wanted moments all at once: they contradict each other under r, so "
        return [Finding(f"{sentence}λ does not match them and {decided} stopped it.", tuple(range(len(features))))]
    width = pool.values.amax(0) - pool.values.amin(0)
    pushed = [c for c in ((shifts * width).abs() > SHIFT).nonzero().flatten().tolist() if c not in known]
    if pushed:
        names = ", ".join(repr(features.names[column]) for column in pushed)
        for side, columns in (
            ("low", tuple(c for c in pushed if coefficients[c] < 0)),
            ("high", tuple(c for c in pushed if coefficients[c] >= 0)),
        ):
            if columns:
                sentence = (
                    f"The wanted moments of {names} lie together at the rim of what r can do, so the best λ are "
                    f"infinite: {decided} stopped them."
                )
                found.append(Finding(sentence, columns, side == "low", side == "high"))
    return found


def unmatched(
    solution: Solution, moments: Float[Tensor, " features"], allowance: Float[Tensor, " features"], known: set[int]
) -> list[Finding]:
    """Moments that are still not as wanted, where nothing else has said why; `allowance` is what chance may do."""
    found = []
    for column, feature in enumerate(solution.features.features):
        mean, wanted = float(moments[column]), float(solution.wanted.moments[column])
        allowed = max(UNMATCHED * (feature.high - feature.low), float(allowance[column]))
        if column not in known and abs(float(moments[column] - solution.wanted.moments[column])) > allowed:
            sentence = f"{feature.name!r} has a mean of {mean:.4g} where {wanted:.4g} was wanted: "
            found.append(Finding(f"{sentence}{solution.decided} stopped λ too early.", (column,)))
    return found


def _in_hull(pool: Pool, moments: Float[Tensor, " features"]) -> bool:
    """Whether some convex combination of the draws' features is as wanted; single ones out of range aside."""
    seen = pool.values[pool.log_weights > -math.inf]
    inside = moments.clamp(seen.amin(0), seen.amax(0))
    return bool(torch.equal(nearest(pool, inside, torch.ones_like(moments)), inside))


def nearest(
    pool: Pool, moments: Float[Tensor, " features"], spread: Float[Tensor, " features"]
) -> Float[Tensor, " features"]:
    """The moments that some convex combination of the draws has, least Σ|change|/spread away from those wanted.

    A datum may show together what no draw does. Its share of the moments, however small, would drive λ as far as the
    prior allows: what the draws cannot tell must not decide λ. By linear programming; the same moments where they are
    possible, where a feature does not vary, and where there are too many distinct draws to ask.
    """
    import numpy as np
    from scipy.optimize import linprog

    points = torch.unique(pool.values[pool.log_weights > -math.inf], dim=0)
    low, high = points.amin(0), points.amax(0)
    varying = high > low
    if len(points) > LARGEST_HULL or not bool(varying.any()):
        return moments
    width = (high - low)[varying]
    scaled, goal = (points[:, varying] - low[varying]) / width, (moments[varying] - low[varying]) / width
    count, rows = len(width), len(points)
    # Σ shares·φ + less − more = wanted, Σ shares = 1.
    moves = torch.cat([torch.eye(count), -torch.eye(count)], 1).double()
    above = torch.cat([scaled.T, moves], 1)
    below = torch.cat([torch.ones(1, rows), torch.zeros(1, 2 * count)], 1).double()
    price = (1 / (spread[varying] / width).clamp(min=1e-4)).repeat(2)
    answer = linprog(
        np.concatenate([np.zeros(rows), price.numpy()]),
        A_eq=torch.cat([above, below]).numpy(),
        b_eq=torch.cat([goal, torch.ones(1)]).numpy(),
        method="highs",
    )
    if answer.x is None:
        return moments
    change = torch.as_tensor(answer.x[rows : rows + count] - answer.x[rows + count :], dtype=torch.float64)
    change = torch.where(change.abs() > 1e-6, change, 0.0)
    moved = moments.clone()
    moved[varying] = torch.where(change == 0, moments[varying], (moments[varying] - change * width))
    return torch.where(varying, moved.clamp(low, high), moments) if bool((change != 0).any()) else moments


def contradictory_moments(
    features: Features, wanted: Wanted, aimed: Float[Tensor, " features"], known: set[int]
) -> list[Finding]:
    """Moments that could not be aimed at."""
    return [
        Finding(
            f"{feature.name!r} has a mean of {float(wanted.moments[column]):g} in no mixture of the draws with the "
            f"other moments wanted: they contradict each other there, so {float(aimed[column]):g} was aimed at and "
            "its λ is unknown; more draws, or a proposal that shows such sequences, may help.",
            (column,),
            True,
            True,
        )
        for column, feature in enumerate(features.features)
        if column not in known and float(aimed[column]) != float(wanted.moments[column])
    ]
