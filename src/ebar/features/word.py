"""Whole words of the text match."""

from dataclasses import KW_ONLY, dataclass

from jaxtyping import Float
from torch import Tensor

from ebar.automata.deterministic import Dfa
from ebar.automata.reading import Reading
from ebar.features.accepted import accepted, automaton_of
from ebar.features.expression import over_text
from ebar.types import Context, Sequences


@dataclass(frozen=True, slots=True)
class Word:
    """A regular expression that matches whole words: 1 where it does, 0 elsewhere; `absent` exchanges them.

    A word ends where a character comes that is no ASCII letter, digit or underscore. Its automaton is always made
    over the bytes of the text and lifted to the tokens.
    """

    expression: str
    _: KW_ONLY
    absent: bool = False
    end: int | None = None
    reading: Reading | None = None

    alphabet = None
    low = 0.0
    high = 1.0

    @property
    def name(self) -> str:
        return f"{'no ' if self.absent else ''}word {self.expression}"

    @property
    def automaton(self) -> Dfa:
        return automaton_of(self)

    def language(self, alphabet: str | None) -> Dfa:
        return over_text(self.expression, "word")

    def bind(self, reading: Reading) -> "Word":
        if self.reading is not None:
            return self
        made = Word(self.expression, absent=self.absent, end=reading.end, reading=reading)
        automaton_of(made)  # so that a mistake in the expression is an error now, before any work
        return made

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        return accepted(self.automaton, x, self.end)
