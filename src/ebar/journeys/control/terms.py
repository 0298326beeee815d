"""Constraints: features of the text, and the mean that each is to have."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ebar.automata.reading import Reading
from ebar.build.terms import read_feature, split_term
from ebar.errors import UserError
from ebar.features.feature import Feature, bind, negated
from ebar.features.functions import Predicate
from ebar.journeys.control.subject import Subject


class Constraint(NamedTuple):
    """A feature and its wanted mean over all text; where `pointwise`, its value in every single text."""

    term: str
    feature: Feature
    moment: float
    counted: Feature  # what the energy weighs: of what must be, that it is not, forbidden by λ = −∞

    @property
    def pointwise(self) -> bool:
        return self.moment in (0.0, 1.0)

    @property
    def counted_moment(self) -> float:
        return 0.0 if self.pointwise else self.moment


def constraint(feature: Feature, moment: float, reading: Reading, *, term: str = "") -> Constraint:
    """A wanted moment of a feature, which is bound to the model's tokens."""
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
    return Constraint(term or bound.name, bound, moment, opposite if opposite and moment == 1 else bound)


def constraints(wanted: Iterable[Constraint]) -> list[Constraint]:
    """All of them; a feature that is given twice is an error."""
    found = list(wanted)
    names = [one.feature.name for one in found]
    if len(set(names)) < len(names):
        raise UserError(f"Features are given twice: {', '.join(sorted({n for n in names if names.count(n) > 1}))}.")
    return found


def read_terms(terms: Sequence[str], subject: Subject) -> list[Constraint]:
    """Constraints from terms KIND:ARGUMENT=MOMENT; errors in them are reported before any work."""
    if not terms:
        raise UserError("There is nothing to control: give --features KIND:ARGUMENT=MOMENT.")
    return constraints(_constraint(term, subject) for term in terms)


def _constraint(term: str, subject: Subject) -> Constraint:
    share = "MOMENT, the share of texts from 0 to 1 of which it is to hold"
    words, moment = split_term(term, share, "word:dragon=1")
    if not 0 <= moment <= 1:
        raise UserError(f"The term {term!r} must end in ={share}, as in word:dragon=1.")
    return constraint(read_feature(words), moment, subject.reading, term=term)
