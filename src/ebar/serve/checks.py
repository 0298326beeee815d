"""What a page may ask of a model: constraints that neither run code nor open files, tables and draws that fit."""

from typing import Any

from ebar.automata.lift import Reading
from ebar.errors import UserError
from ebar.features.regular import Regular
from ebar.models.pretrained import MEMORY
from ebar.serve.limits import Limits

KINDS = ("word", "expression", "whole", "motif", "starts_with")
BATCH = 128  # draws between two looks at the clock, at most


def check_terms(terms: list[str], limits: Limits) -> None:
    """A file of Python is never run for a page, and no folder opened."""
    if len(terms) > limits.terms:
        raise UserError(
            f"There are {len(terms)} constraints, and at most {limits.terms} are read here: leave some out."
        )
    for term in terms:
        kind = term.removeprefix("!").partition(":")[0]
        if kind not in KINDS:
            raise UserError(
                f"The constraint {term[:60]!r} is none of {', '.join(KINDS)}: write one such as word:rabbit|bunny=1; "
                "others are for `ebar control fit`."
            )


def check_automata(features: list[Any], reading: Reading, vocabulary: int, length: int, limits: Limits) -> None:
    """Refuses constraints whose automata would take too much memory, before they are made over the vocabulary."""
    together = length + 1
    for feature in features:
        assert isinstance(feature, Regular)
        states = feature.language(None if feature.over_bytes else reading.characters).states
        together *= states
        if max(states * vocabulary, together) > limits.numbers // 4:
            raise UserError(
                f"The constraint {feature.name!r} needs tables of {max(states * vocabulary, together):,} numbers, more "
                "than a request may have: simplify the constraints, or leave some out."
            )


def rows_at_once(model: Any, length: int, limits: Limits) -> int:
    """Draws that fit in the memory of a request; a pretrained model knows what each takes."""
    known = getattr(model, "rows_at_once", None)
    each = 32 * model.space.vocabulary + 4096 * length if known is None else MEMORY / known
    fit = int(limits.memory * 2**20 / each)
    if fit < 2:
        raise UserError(f"A text of {length} tokens of this model takes too much memory here: ask for shorter ones.")
    return min(BATCH, fit)
