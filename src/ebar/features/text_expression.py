"""A regular expression about the text that tokens spell."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.automata.deterministic import Dfa
from ebar.automata.expressions import compile_text
from ebar.automata.lift import lift
from ebar.errors import choose
from ebar.features.accepted import accepted
from ebar.types import Context, Sequences

WHERE = {
    "anywhere": "{}",
    "word": r"(.*[^\w])?({})([^\w].*)?",  # \w is ASCII, so an accented letter bounds a word too
    "whole": "{}",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TextExpression:
    """1 where the text matches: some part of it, whole words of it, or the `whole` of it; `absent` turns that round.

    The automaton over the bytes of UTF-8 is lifted to the vocabulary, so that a token may hold many characters or
    part of one, and looking ahead works. Bytes that are not UTF-8 match nothing: a match does not reach over them,
    and as a `whole` no text that has any matches.
    """

    expression: str
    """In the syntax of `ebar.automata.syntax`."""
    spellings: Sequence[bytes | None]  # of every token of the vocabulary; None spells nothing, as a special token
    end: int | None
    where: Literal["anywhere", "word", "whole"] = "anywhere"
    absent: bool = False
    before: str = ""
    """Text that the tokens go on from, and which is matched with them: a prompt."""
    automaton: Dfa = field(init=False, repr=False)

    low = 0.0
    high = 1.0

    def __post_init__(self) -> None:
        over_bytes = over_text(self.expression, self.where)
        start = over_bytes.start
        for byte in self.before.encode():
            start = int(over_bytes.table[start, byte])
        lifted = lift(Dfa(over_bytes.table, over_bytes.accepting, start=start), self.spellings)
        object.__setattr__(self, "automaton", ~lifted if self.absent else lifted)

    @property
    def name(self) -> str:
        place = {"anywhere": "text", "word": "word", "whole": "whole text"}[self.where]
        return f"{'no ' if self.absent else ''}{place} {self.expression}"

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        return accepted(self.automaton, x, self.end)


@lru_cache(maxsize=256)
def over_text(expression: str, where: str) -> Dfa:
    """The automaton over bytes of the texts that match, whatever else they hold."""
    pattern = choose(WHERE, where, "place of a match")
    compile_text(expression)  # so that an error quotes what the user wrote, and brackets are balanced within it
    dfa = compile_text(pattern.format(expression), anywhere=where == "anywhere")
    return dfa if where == "whole" else _forgiving(dfa)


def _forgiving(dfa: Dfa) -> Dfa:
    """Where what is broken only interrupts: a match before it remains one, and after it one may begin anew.

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
