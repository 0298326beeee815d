"""φ(x): what a user may want to be true of a whole sequence.

A feature is made without knowing a model's tokens, `Motif("101")`, and bound to them, `bind(feature, data.reading)`.
"""

from collections.abc import Callable
from typing import Any

from ebar.automata.reading import Reading
from ebar.features.accepted import Accepted
from ebar.features.classifier import classifier
from ebar.features.expression import Expression, whole
from ebar.features.feature import Feature, Features, bind, negated
from ebar.features.length import Length
from ebar.features.motif import Motif
from ebar.features.ngram_count import NgramCount
from ebar.features.predicate import Predicate
from ebar.features.starts_with import StartsWith
from ebar.features.text_score import TextScore
from ebar.features.word import Word
from ebar.tables import Table

FEATURES: Table[Callable[..., Any]] = Table(
    "feature",
    {
        "motif": Motif,
        "expression": Expression,
        "word": Word,
        "whole": whole,
        "starts_with": StartsWith,
        "ngram_count": NgramCount,
        "length": Length,
        "predicate": Predicate,
        "score": TextScore,
        "classifier": classifier,
        "accepted": Accepted,
    },
    given=("alphabet", "end", "longest", "reading", "decode", "before"),
)

__all__ = [
    "FEATURES", "Accepted", "Expression", "Feature", "Features", "Length", "Motif", "NgramCount", "Predicate",
    "Reading", "StartsWith", "TextScore", "Word", "bind", "classifier", "negated", "whole",
]  # fmt: skip
