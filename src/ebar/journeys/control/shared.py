"""One λ over many contexts, each normalised by itself: (1/N)·Σ_C E_{p_λ(·|C)}[φ] is to be what is wanted.

That is the gradient of the convex (1/N)·Σ_C log Z_λ(C) − ⟨λ, wanted⟩; Newton's method finds where it is 0.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ebar.maths.exponential_family import inverse
from ebar.maths.log_space import normalised

RIDGE = 1e-6  # of ½ρ|λ|², so that λ is finite where draws show one side of a feature only
STEPS, CLOSE, FARTHEST = 60, 1e-9, 30.0


class Solved(NamedTuple):
    """λ, −∞ for what is forbidden, and what it comes to on the draws it was found by."""

    coefficients: Float[Tensor, " features"]
    moments: Float[Tensor, " features"]  # the mean over the contexts in which anything was found
    found: Bool[Tensor, " rows"]


def solve(
    values: Float[Tensor, "rows draws features"], log_base: Float[Tensor, "rows draws"],
    wanted: Float[Tensor, " features"], hard: Bool[Tensor, " features"],
) -> Solved:  # fmt: skip
    """λ from weighted draws for each context. Trap: a mean within one context is biased O(1/its effective draws).

    Contexts none of whose draws is allowed are left out: they have no p to count.
    """
    log_base = torch.where((values[..., hard] != 0).any(-1), -math.inf, log_base)
    found = (log_base > -math.inf).any(-1)
    free = values[found][..., ~hard]
    coefficients = torch.full_like(wanted, -math.inf)
    moments = torch.zeros_like(wanted)
    goal = wanted[~hard]
    best = torch.zeros_like(goal)
    if bool(found.any()) and len(goal):
        now = _state(free, log_base[found], goal, best)
        for _ in range(STEPS):
            if float(now.gradient.abs().max()) < CLOSE:
                break
            step = -inverse(now.hessian) @ now.gradient
            step = step * min(1.0, 5.0 / max(float(step.abs().max()), 1e-300))
            share = 1.0
            while share > CLOSE:
                ahead = _state(free, log_base[found], goal, best + share * step)
                if ahead.value <= now.value:
                    break
                share /= 2
            if share <= CLOSE:
                break
            best, now = best + share * step, ahead
        best = best.clamp(-FARTHEST, FARTHEST)
        moments[~hard] = _means(free, log_base[found], best).mean(0)
    coefficients[~hard] = best
    return Solved(coefficients, moments, found)


class _State(NamedTuple):
    value: float
    gradient: Float[Tensor, " features"]
    hessian: Float[Tensor, "features features"]


def _means(values: Tensor, log_base: Tensor, coefficients: Tensor) -> Float[Tensor, "rows features"]:
    shares = normalised(log_base + values @ coefficients)
    return torch.einsum("rd,rdf->rf", shares, values)


def _state(values: Tensor, log_base: Tensor, goal: Tensor, coefficients: Tensor) -> _State:
    scores = log_base + values @ coefficients
    shares = normalised(scores)
    means = torch.einsum("rd,rdf->rf", shares, values)
    centred = values - means[:, None]
    hessian = torch.einsum("rd,rdf,rdg->fg", shares, centred, centred) / len(values)
    value = float(torch.logsumexp(scores, 1).mean() - goal @ coefficients + RIDGE / 2 * coefficients.square().sum())
    gradient = means.mean(0) - goal + RIDGE * coefficients
    return _State(value, gradient, hessian + RIDGE * torch.eye(len(goal), dtype=hessian.dtype))
