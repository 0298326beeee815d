"""φ(x): what a user may want to be true of a whole sequence.

A feature is made without knowing a model's tokens, `Motif("101")`, and bound to them, `bind(feature, data.reading)`.
"""

from collections.abc import Callable
from typing import Any

from ebar.automata.lift import Reading
from ebar.features.counts import Length, NgramCount
from ebar.features.feature import Feature, Features, bind, negated
from ebar.features.functions import Predicate, TextScore, classifier
from ebar.features.phrases import EndsWith, Ordered, Template, WordCount
from ebar.features.regular import Accepted, Agreement, Expression, Motif, StartsWith, Word, whole
from ebar.features.rules import Canonical, Grammar, json_schema
from ebar.tables import Table

FEATURES: Table[Callable[..., Any]] = Table(
    "feature",
    {
        "motif": Motif,
        "expression": Expression,
        "word": Word,
        "whole": whole,
        "starts_with": StartsWith,
        "ends_with": EndsWith,
        "ordered": Ordered,
        "word_count": WordCount,
        "template": Template,
        "ngram_count": NgramCount,
        "length": Length,
        "predicate": Predicate,
        "score": TextScore,
        "classifier": classifier,
        "agrees": Agreement,
        "accepted": Accepted,
    },
    given=("alphabet", "end", "longest", "reading", "decode", "before"),
)

__all__ = [
    "FEATURES", "Accepted", "Agreement", "Canonical", "EndsWith", "Expression", "Feature", "Features", "Grammar",
    "Length", "Motif", "NgramCount", "Ordered", "Predicate", "Reading", "StartsWith", "Template", "TextScore", "Word",
    "WordCount", "bind", "classifier", "json_schema", "negated", "whole",
]  # fmt: skip
