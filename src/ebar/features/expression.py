"""A regular expression matches."""

from dataclasses import KW_ONLY, dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.automata.deterministic import Dfa
from ebar.automata.expressions import compile_expression, compile_text
from ebar.automata.reading import Reading
from ebar.errors import choose
from ebar.features.accepted import accepted, automaton_of, bound
from ebar.types import Context, Sequences

WHERE = {
    "anywhere": "{}",
    "word": r"(.*[^\w])?({})([^\w].*)?",  # \w is ASCII, so an accented letter bounds a word too
    "whole": "{}",
}


@dataclass(frozen=True, slots=True)
class Expression:
    """A regular expression that matches somewhere: 1 where it does, 0 elsewhere; `absent` exchanges them.

    With `whole` it must match from the first character to the last. The syntax is that of `ebar.automata.syntax`.
    Bytes that are not UTF-8 match nothing: a match does not reach over them, and no `whole` that has any matches.
    """

    expression: str
    _: KW_ONLY
    whole: bool = False
    absent: bool = False
    alphabet: str | None = None
    end: int | None = None
    reading: Reading | None = None

    low = 0.0
    high = 1.0

    @property
    def name(self) -> str:
        what = "expression" if self.reading is None else "text"  # as files of earlier runs have it
        return f"{'no ' if self.absent else ''}{'whole ' if self.whole else ''}{what} {self.expression}"

    @property
    def automaton(self) -> Dfa:
        return automaton_of(self)

    def language(self, alphabet: str | None) -> Dfa:
        if alphabet is None:
            return over_text(self.expression, "whole" if self.whole else "anywhere")
        return compile_expression(self.expression, alphabet, anywhere=not self.whole)

    def bind(self, reading: Reading) -> "Expression":
        return bound(self, reading)

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        return accepted(self.automaton, x, self.end)


def whole(expression: str, *, absent: bool = False) -> Expression:
    """A regular expression that matches the whole text: 1 where it does, 0 elsewhere."""
    return Expression(expression, whole=True, absent=absent)


@lru_cache(maxsize=256)
def over_text(expression: str, where: str) -> Dfa:
    """The automaton over bytes of the texts that match: somewhere, as whole words, or as a whole."""
    pattern = choose(WHERE, where, "place of a match")
    compile_text(expression)  # so that an error quotes what the user wrote, and brackets are balanced within it
    dfa = compile_text(pattern.format(expression), anywhere=where == "anywhere")
    return dfa if where == "whole" else _tolerant(dfa)


def _tolerant(dfa: Dfa) -> Dfa:
    """The same where bytes that are not UTF-8 only interrupt: an earlier match remains, and a new one may begin.

    Any valid text can be followed by a match here, so only broken bytes lead where nothing can be accepted; and what
    every character leaves accepted is a match that no byte undoes.
    """
    table, accepting = dfa.table.clone(), dfa.accepting
    states = torch.arange(dfa.states)
    matched = accepting & (table[:, :128] == states[:, None]).all(1)
    hopeless = ~accepting & (table == states[:, None]).all(1)
    anew = torch.where(hopeless[table[dfa.start]], dfa.start, table[dfa.start])
    table = torch.where(hopeless[table], anew, table)
    table = torch.where(matched[:, None], states[:, None], table)
    return Dfa(table, accepting, start=dfa.start).minimised()
