"""Exact languages: automata from motifs and regular expressions, and the distributions built on them."""

from ebar.automata.construction import (
    UNBOUNDED,
    EmptyLanguageError,
    capped,
    from_arcs,
    intersection,
    mixture,
    proper,
    reweighted,
    stopping_noise,
    white_noise,
)
from ebar.automata.deterministic import Dfa, product
from ebar.automata.expressions import compile_expression, compile_text
from ebar.automata.graph import Arcs
from ebar.automata.lift import byte_level, lift
from ebar.automata.measures import count, entropy, expected_count, kl, mean_length, probability
from ebar.automata.motif import contains, ends_with, spell, starts_with
from ebar.automata.probabilistic import ProbabilisticAutomaton

__all__ = [
    "UNBOUNDED",
    "Arcs",
    "Dfa",
    "EmptyLanguageError",
    "ProbabilisticAutomaton",
    "byte_level",
    "capped",
    "compile_expression",
    "compile_text",
    "contains",
    "count",
    "ends_with",
    "entropy",
    "expected_count",
    "from_arcs",
    "intersection",
    "kl",
    "lift",
    "mean_length",
    "mixture",
    "probability",
    "product",
    "proper",
    "reweighted",
    "spell",
    "starts_with",
    "stopping_noise",
    "white_noise",
]
