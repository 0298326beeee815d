"""Reading weighted draws once, keeping only what estimates are made of, and checking what they never showed.

No weight can tell what was not drawn. A binary feature whose rare side never came up makes every weight equal, the
effective sample size perfect and the interval a point, all three of them wrong: hence the support check.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ebar.energies.linear import Linear
from ebar.errors import UserError
from ebar.features.feature import Feature, Features
from ebar.maths.importance import all_warnings, check_weights, unseen_side
from ebar.maths.rows import count_rows
from ebar.models.tilted import Tilted
from ebar.shapes import counted
from ebar.types import Context, Weighted

FEWEST_GROUPS = 10
Range = tuple[Float[Tensor, "rows features"], Float[Tensor, "rows features"]] | None


class Support:
    """Follows the range of a linear energy's features along a stream of draws; silent about other targets."""

    def __init__(self, target: object):
        self.energy = target.energy if isinstance(target, Tilted) and isinstance(target.energy, Linear) else None
        self.smallest: Tensor | None = None
        self.largest: Tensor | None = None

    def see(self, x: Any, rows: int, context: Context | None = None) -> None:
        """Take note of more draws, context-major."""
        if self.energy is None or len(self.energy.features) == 0:
            return
        values = self.energy.features(x, context).detach().reshape(rows, -1, len(self.energy.features))
        self.widen((values.amin(1), values.amax(1)))

    @property
    def range(self) -> "Range":
        """Of the features so far, from the smallest to the largest; None where there are none."""
        return None if self.smallest is None or self.largest is None else (self.smallest, self.largest)

    def widen(self, other: "Range") -> None:
        """Take note of what was seen elsewhere."""
        if other is not None:
            low, high = other
            self.smallest = low if self.smallest is None else torch.minimum(self.smallest, low)
            self.largest = high if self.largest is None else torch.maximum(self.largest, high)

    def warnings(self, rows: int) -> list[str | None]:
        """For each row of the context, which sides were not seen though the target may have mass there."""
        if self.energy is None or self.smallest is None or self.largest is None:
            return [None] * rows
        coefficients = self.energy.coefficients.tolist()
        return [
            all_warnings(
                *(
                    _unseen(feature, coefficient, float(low), float(high))
                    for feature, coefficient, low, high in zip(
                        self.energy.features.features, coefficients, self.smallest[row], self.largest[row], strict=True
                    )
                )
            )
            for row in range(rows)
        ]


def _unseen(feature: Feature, coefficient: float, smallest: float, largest: float) -> str | None:
    forbidden = coefficient == -math.inf and largest == feature.low  # what was not drawn has no mass to miss
    return None if forbidden else unseen_side(feature.name, smallest, largest, float(feature.low), float(feature.high))


class Units(NamedTuple):
    """What is independent and properly weighted: single draws, or groups of draws that depend on one another."""

    log_weights: Float[Tensor, "rows units"]  # of a group: of the sum of its weights
    values: Float[Tensor, "rows units features"]  # of a group: the weighted mean
    sizes: Float[Tensor, " units"] | None  # draws in each group; None: units are single draws
    strata: Int[Tensor, " units"] | None  # the law each draw came from, where there are several
    draws: int
    spread: Float[Tensor, "rows features"]  # variance of a feature over the weighted draws
    two_valued: Bool[Tensor, "rows features"]  # every draw has the feature at one end of its range
    estimates_z: bool
    unseen: list[str | None]  # per row, what the support check says of the target, and what the draws say themselves


class Portion(NamedTuple):
    """One stream of draws, of which only what estimates are made of is left."""

    drawn: Weighted[Any]  # in float64; the draws themselves are let go
    values: Float[Tensor, "rows draws features"]
    range: Range  # of the features of the target's energy


@torch.no_grad()
def read_units(
    draws: Weighted[Any] | Iterable[Weighted[Any]],
    *,
    features: Features[Any] | None = None,
    target: object = None,
    context: Context | None = None,
) -> Units:
    """Weights and feature values of every unit, in float64; the sequences themselves are let go.

    Target and context are those of the draws, where they know them. A million draws take 8 MB, and 8 more for each
    feature.
    """
    portion = read_portion(draws, features=features, target=target, context=context)
    return units_of([portion], features=features, target=portion.drawn.target if target is None else target)


@torch.no_grad()
def read_portion(
    draws: Weighted[Any] | Iterable[Weighted[Any]],
    *,
    features: Features[Any] | None = None,
    target: object = None,
    context: Context | None = None,
) -> Portion:
    """What `units_of` needs of one stream: several, drawn apart, make up more draws."""
    support: Support | None = None
    parts: list[Weighted[Any]] = []
    values: list[Tensor] = []
    for batch in [draws] if isinstance(draws, Weighted) else draws:
        rows, size = check_draws(batch)
        check_weights(batch.log_weights)
        where = batch.context if context is None else context
        support = support or Support(batch.target if target is None else target)
        support.see(batch.x, rows, where)
        weights = batch.log_weights.double()
        seen = weights.new_zeros(rows, size, 0)
        if features is not None:
            seen = features(batch.x, where).to(weights).reshape(rows, size, len(features))
        values.append(seen)
        parts.append(batch._replace(x=weights.new_empty(rows * size, 0), log_weights=weights))
    if support is None:
        raise ValueError("there are no draws to estimate from")
    return Portion(Weighted.join(parts, one_stream=True), torch.cat(values, 1), support.range)


def units_of(portions: Sequence[Portion], *, features: Features[Any] | None = None, target: object = None) -> Units:
    """The units of independent streams together."""
    support = Support(target)
    for portion in portions:
        support.widen(portion.range)
    values = torch.cat([portion.values for portion in portions], 1)
    return _units(Weighted.join([portion.drawn for portion in portions]), values, features, support)


def _units(
    drawn: Weighted[Any], values: Float[Tensor, "rows draws features"], features: Features[Any] | None, support: Support
) -> Units:
    weights, (rows, draws) = drawn.log_weights, drawn.log_weights.shape
    shares = torch.where(weights.isneginf().all(1, keepdim=True), 1 / draws, torch.softmax(weights, 1))[:, :, None]
    mean = (shares * values).sum(1, keepdim=True)
    ends = [(float(one.low), float(one.high)) for one in features.features] if features is not None else []
    limits = values.new_tensor(ends).reshape(-1, 2)
    units = Units(
        log_weights=weights,
        values=values,
        sizes=None,
        strata=drawn.strata,
        draws=draws,
        spread=(shares * (values - mean).square()).sum(1),
        two_valued=((values == limits[:, 0]) | (values == limits[:, 1])).all(1),
        estimates_z=drawn.estimates_z,
        unseen=[all_warnings(drawn.doubt, unseen) for unseen in support.warnings(rows)],
    )
    if drawn.groups is None:
        return units
    _, group = torch.unique(drawn.groups.to(weights.device), return_inverse=True)
    totals = log_totals(weights, group)
    sizes = torch.bincount(group).double()
    silent = totals[:, group].isneginf()  # a group of no weight has no say, whatever its mean
    within = torch.where(silent, 1 / sizes[group], torch.exp(weights - totals[:, group]))
    means = torch.zeros(rows, totals.shape[1], values.shape[2], dtype=values.dtype, device=values.device)
    return units._replace(
        log_weights=totals,
        values=means.index_add_(1, group, within[:, :, None] * values).clamp(
            values.amin(1, keepdim=True),
            values.amax(1, keepdim=True),  # rounding may step outside
        ),
        sizes=sizes,
        strata=None,
    )


def log_totals(log_weights: Float[Tensor, "rows draws"], group: Int[Tensor, " draws"]) -> Float[Tensor, "rows groups"]:
    """log Σw of each group, numbered from 0."""
    rows, groups = log_weights.shape[0], int(group.max()) + 1
    where = group.expand(rows, -1)
    largest = torch.full((rows, groups), -torch.inf, dtype=log_weights.dtype, device=log_weights.device)
    largest = largest.scatter_reduce(1, where, log_weights, "amax")
    shift = torch.where(largest.isneginf(), 0.0, largest)
    return torch.zeros_like(shift).scatter_add(1, where, torch.exp(log_weights - shift[:, group])).log() + shift


def few_groups(groups: int) -> str | None:
    """Too few independent groups of draws for an interval, in words."""
    if groups >= FEWEST_GROUPS:
        return None
    return f"only {groups} independent groups of draws: the interval needs {FEWEST_GROUPS} or more"


def check_draws(draws: Weighted[Any]) -> tuple[int, int]:
    """How many rows and draws there are, where every draw has its weight."""
    found, count = tuple(draws.log_weights.shape), count_rows(draws.x)
    if len(found) != 2 or found[0] * found[1] != count:
        raise UserError(
            f"{counted(draws.x)} need log-weights of shape [rows of the context, draws], such as [1, {count}], and "
            f"have {list(found)}."
        )
    return found[0], found[1]
