"""What is to be true of the text, from the terms of a command line: KIND:ARGUMENT=MOMENT."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ebar.build.energy import load_function
from ebar.errors import UserError, choose
from ebar.features.feature import Feature
from ebar.features.predicate import Predicate
from ebar.features.text_expression import TextExpression
from ebar.features.text_score import TextScore
from ebar.journeys.control.classifier import classifier
from ebar.journeys.control.subject import Subject

KINDS = {
    "expression": "a regular expression that matches somewhere in the text",
    "word": "a regular expression that matches whole words",
    "whole": "a regular expression that matches the whole text",
    "predicate": "FILE.py:FUNCTION, a function of the text, true or false",
    "score": "FILE.py:FUNCTION, a function of a list of texts, a number from 0 to 1 for each",
    "classifier": "FOLDER:LABEL, a Hugging Face sequence classifier's probability of a label",
}
WHERE = {"expression": "anywhere", "word": "word", "whole": "whole"}


class Constraint(NamedTuple):
    """One thing wanted: that φ has this mean over all text or, where `pointwise`, this value in every single one."""

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


def read_terms(terms: Sequence[str], subject: Subject) -> list[Constraint]:
    """All constraints; what is wrong with them is told before any work."""
    if not terms:
        raise UserError("There is nothing to control: give --features KIND:ARGUMENT=MOMENT.")
    found = [_constraint(term, subject) for term in terms]
    names = [constraint.feature.name for constraint in found]
    if len(set(names)) < len(names):
        raise UserError(f"Features are given twice: {', '.join(sorted({n for n in names if names.count(n) > 1}))}.")
    return found


def _constraint(term: str, subject: Subject) -> Constraint:
    words, equals, number = term.rpartition("=")
    try:
        moment = float(number) if equals else -1.0
    except ValueError:
        moment = -1.0
    if not 0 <= moment <= 1:
        raise UserError(
            f"The term {term!r} must end in =MOMENT, the share of texts from 0 to 1 of which it is to hold, "
            "as in word:dragon=1."
        )
    absent = words.startswith("!")
    kind, _, argument = words.removeprefix("!").partition(":")
    choose(KINDS, kind, "kind of feature")
    if not argument:
        raise UserError(f"The feature {words!r} needs an argument: {KINDS[kind]}.")
    make = _maker(kind, argument, subject)
    if make is None:
        if absent or moment in (0.0, 1.0):
            what = "be absent" if absent else "be 0 or 1 in every text"
            raise UserError(f"What a {kind} gives is a degree, which cannot {what}: give a moment between 0 and 1.")
        score = _score(kind, argument, subject)
        return Constraint(term, score, moment, score)
    feature = make(absent)
    return Constraint(term, feature, moment, make(not absent) if moment == 1 else feature)


def _maker(kind: str, argument: str, subject: Subject) -> Callable[[bool], Feature] | None:
    """Makes the feature, or its opposite; None for what has degrees."""
    if kind in WHERE:
        where: Any = WHERE[kind]
        return lambda absent: TextExpression(
            expression=argument, spellings=subject.spellings, end=subject.space.end, where=where, absent=absent,
            before=subject.before,
        )  # fmt: skip
    if kind == "predicate":
        name, function = load_function(argument)

        def read(text: str, wanted: bool) -> bool:
            return bool(function(subject.before + text)) is wanted

        return lambda absent: Predicate(
            name=f"no {name}" if absent else name, function=lambda text: read(text, not absent),
            end=subject.space.end, decode=subject.spell,
        )  # fmt: skip
    return None


def _score(kind: str, argument: str, subject: Subject) -> TextScore:
    if kind == "classifier":
        name, function = argument, classifier(argument, device=subject.device)
    else:
        name, function = load_function(argument)
    return TextScore(
        name=f"{kind} {name}", function=function, decode=subject.spell, end=subject.space.end, before=subject.before
    )
