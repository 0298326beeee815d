"""Constraints: features of the text, and the mean that each is to have."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from ebar.automata.lift import Reading
from ebar.errors import UserError
from ebar.estimators.moments import means_by_name
from ebar.features.feature import Feature, Features, Followed, bind, negated
from ebar.features.functions import Predicate
from ebar.maths.importance import all_warnings, unseen_side
from ebar.samplers.look_ahead import ScoredDraws
from ebar.types import Estimate

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
