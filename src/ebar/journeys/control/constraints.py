"""Constraints: features of the text, the mean that each is to have, and λ with which they have it.

λ is −∞ for what is forbidden; the rest is matched. Over many contexts, each normalised by itself, (1/N)·Σ_C
E_{p_λ(·|C)}[φ] is to be what is wanted: that is the gradient of the convex (1/N)·Σ_C log Z_λ(C) − ⟨λ, wanted⟩, and
Newton's method finds where it is 0.
"""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from ebar.automata.lift import Reading
from ebar.errors import UserError
from ebar.estimators.log_z import log_mean
from ebar.estimators.moments import means_by_name
from ebar.features.feature import Feature, Features, Followed, bind, negated
from ebar.features.functions import Predicate
from ebar.maths.exponential_family import inverse
from ebar.maths.importance import all_warnings, unseen_side
from ebar.maths.log_space import effective_sample_size, normalised
from ebar.samplers.look_ahead import ScoredDraws
from ebar.training.moment_matching.matching import Fitted
from ebar.training.moment_matching.newton import Newton, UnsatisfiedError
from ebar.training.moment_matching.search import Pilot, Search
from ebar.types import Estimate, Sequences

Wanted = Mapping[Any, float | int] | Iterable[tuple[Any, float | int]]  # features, each with its moment


def pairs_of(wanted: Wanted) -> list[tuple[Any, float | int]]:
    """Features, each with its moment."""
    return list(wanted.items() if isinstance(wanted, Mapping) else wanted)


class Constraint(NamedTuple):
    """A feature and its wanted mean over all text; where `pointwise`, its value in every single text."""

    feature: Feature
    moment: float
    counted: Feature  # what λ multiplies: the feature or, where every text must have it, its absence, with λ = −∞

    @property
    def pointwise(self) -> bool:
        return self.moment in (0.0, 1.0)

    @property
    def counted_moment(self) -> float:
        return 0.0 if self.pointwise else self.moment


class Constraints(tuple[Constraint, ...]):
    """All constraints on one model."""

    @staticmethod
    def of(wanted: Wanted, reading: Reading) -> "Constraints":
        """Features and their moments, bound to a model's tokens; a feature that is given twice is an error."""
        pairs = pairs_of(wanted)
        for feature, _ in pairs:
            if isinstance(feature, str):
                raise UserError(
                    f"{feature!r} is no feature: say what it is to be, as in ebar.Word({feature!r}) or "
                    f"ebar.Expression({feature!r})."
                )
        found = Constraints(_constraint(feature, float(moment), reading) for feature, moment in pairs)
        if not found:
            raise UserError("There is nothing to control: give one feature or more, each with its moment.")
        names = found.features.names
        if len(set(names)) < len(names):
            raise UserError(f"Features are given twice: {', '.join(sorted({n for n in names if names.count(n) > 1}))}.")
        return found

    @property
    def features(self) -> Features:
        """As they were given."""
        return Features([one.feature for one in self])

    @property
    def counted(self) -> Features:
        """As the energy has them."""
        return Features([one.counted for one in self])

    @property
    def foreseen(self) -> bool:
        """Whether an automaton follows any of them, so that looking ahead is possible."""
        return any(isinstance(one.counted, Followed) for one in self)

    def unseen(self, values: Float[Tensor, "draws features"]) -> str | None:
        """What draws with these values do not show of p: a side of a feature that only some texts are to have."""
        return all_warnings(
            *(
                unseen_side(
                    one.feature.name, float(column.min()), float(column.max()), float(one.feature.low),
                    float(one.feature.high),
                )
                for one, column in zip(self, values.T, strict=True)
                if not one.pointwise
            )
        )  # fmt: skip

    def moments(self, drawn: ScoredDraws) -> dict[str, Estimate]:
        """Moments of p; a pointwise one is exact, however few draws there are."""
        found = means_by_name(drawn.values, self.features, drawn.log_weights)
        return found | {one.feature.name: Estimate.exact(one.moment) for one in self if one.pointwise}

    def none_satisfies(self, n: int, option: str, foresees: bool) -> UserError:
        """What to say where no draw has any weight; `option` is the one that more draws come from."""
        must = [repr(one.feature.name) for one in self if one.moment == 1]
        never = [repr(one.feature.name) for one in self if one.moment == 0]
        has = [f"has what must be in every text ({', '.join(must)})"] if must else []
        lacks = [f"lacks what must be in none ({', '.join(never)})"] if never else []
        blind = "" if foresees else ", and no automaton can look ahead to it"
        return UserError(
            f"None of the {n:,} draws {' and '.join(has + lacks)}{blind}: give more --{option}, or a share between "
            "0 and 1."
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class UnderConstraints:
    """A language model under constraints, and how much is drawn of it."""

    model: Any  # q without a prompt
    constraints: Constraints
    reading: Reading  # how features read the model's tokens
    draws: int
    surrogate_draws: int
    rounds: int
    round_draws: int
    rows: int
    seed: int

    def text(self, x: Sequences) -> list[str]:
        """Each draw as text, as features read it; tokens that spell nothing are left out."""
        return [self.reading.text(row) for row in x.rows()]


def _constraint(feature: Feature, moment: float, reading: Reading) -> Constraint:
    if isinstance(feature, Predicate):
        feature = replace(feature, truth=True)
    bound = bind(feature, reading)
    if not 0 <= moment <= 1:
        raise UserError(f"The moment of {bound.name!r} is the share of texts in which it holds, not {moment:g}.")
    opposite = negated(bound)
    if opposite is None and moment in (0.0, 1.0):
        raise UserError(
            f"What {bound.name!r} gives is a degree, which cannot be 0 or 1 in every text: "
            "give a moment between 0 and 1."
        )
    return Constraint(bound, moment, opposite if opposite and moment == 1 else bound)


PILOT = 1000  # draws of q, to see whether it shows what is wanted


def find_coefficients(
    q: Any, constraints: Constraints, *, draws: int, surrogate_draws: int, rows: int, generator: Generator
) -> Fitted:
    """λ: −∞ for what is forbidden and, where there is more, Newton's method for the rest.

    On draws of q and, where q seldom or never shows what is wanted, of a look-ahead proposal as well.
    """
    began = time.monotonic()
    counted = constraints.counted
    wanted = torch.tensor([one.counted_moment for one in constraints], dtype=torch.float64)
    hard = torch.tensor([one.pointwise for one in constraints])
    search = Search(draws=min(PILOT, draws // 2, rows), surrogate_draws=surrogate_draws, batch_size=rows)
    pilot = search.pilot(q, counted, wanted, hard, generator=generator)
    if bool(hard.all()):
        return _forbidding(pilot, time.monotonic() - began)
    ahead = search.proposal(pilot, generator=generator)
    method = Newton(draws=draws, hard=True, proposal="base", batch_size=rows)
    try:
        fitted = method.fit(q, counted, moments=wanted, proposal=ahead, generator=generator)
    except UnsatisfiedError:
        raise constraints.none_satisfies(draws, "draws", constraints.foreseen) from None
    for one, moment in zip(constraints, fitted.model_moments, strict=True):
        # Of what all draws have, or none, nothing is known of λ: 0 would be a wrong answer.
        if one.pointwise or 1e-12 < moment.value < 1 - 1e-12:
            continue
        which, other = ("None", "commoner") if moment.value < 0.5 else ("Every one", "rarer")
        other = f"a {other} word" if isinstance(one.counted, Followed) else f"something {other}"
        raise UserError(
            f"{which} of the {fitted.draws:,} draws has {one.feature.name!r}: give more --draws, or {other}."
        )
    return fitted


def _forbidding(pilot: Pilot, seconds: float) -> Fitted:
    """P = q·1[…] where every constraint is pointwise: there is no λ to find."""
    count = len(pilot.features)
    never = torch.full((count,), -math.inf, dtype=torch.float64)
    return Fitted(
        method="forbidding",
        names=tuple(pilot.features.names),
        coefficients=never,
        covariance=None,
        data_moments=(0.0,) * count,
        model_moments=(Estimate.exact(0.0),) * count,
        base_moments=tuple(means_by_name(pilot.values, pilot.features).values()),
        distance=0.0,
        effective_sample_size=float(effective_sample_size(pilot.log_weights)),
        log_z=log_mean(pilot.log_weights[None])[0].estimate,
        draws=len(pilot.log_weights),
        seconds=seconds,
        intervals=tuple(Estimate.exact(value) for value in never.tolist()),
    )


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
