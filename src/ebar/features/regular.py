"""Features that are the indicator of a regular language: an automaton follows them along the prefix.

Features of a sequence given its source: what one of them says the other must say too.
"""

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.automata import motif as motifs
from ebar.automata.deterministic import Dfa
from ebar.automata.expressions import compile_expression, compile_text
from ebar.automata.lift import Reading
from ebar.errors import UserError, choose
from ebar.types import Context, Sequences, spread

WHERE = {
    "anywhere": "{}",
    "word": r"(.*[^\w])?({})([^\w].*)?",  # \w is ASCII, so an accented letter bounds a word too
    "whole": "{}",
}


class UnboundError(UserError, AttributeError):
    """A feature was used that is not yet bound to a model's tokens: it has no automaton and no value."""

    def __init__(self, name: str):
        super().__init__(f"The feature {name!r} does not know how tokens are read: use ebar.bind(feature, reading).")


@dataclass(frozen=True, slots=True, eq=False)
class Accepted:
    """An automaton over the tokens, in Python only: 1 where it accepts the sequence, its end token left out.

    For a vocabulary of longer tokens, lift an automaton over bytes to them (`ebar.automata.lift`).
    """

    automaton: Dfa
    _: KW_ONLY
    name: str
    end: int | None

    low = 0.0
    high = 1.0

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        return _indicator(self.automaton, x, self.end)


Bound = TypeVar("Bound", bound="Regular")


@dataclass(frozen=True, slots=True, kw_only=True)
class Regular(ABC):
    """1 where the sequence is in the language, 0 elsewhere; `absent` exchanges them.

    A subclass has a name and a `language`. It is made without knowing a model's tokens, and `bind` gives it either the
    alphabet whose i-th character token i is, or the reading that says which bytes a token spells.
    """

    absent: bool = False
    alphabet: str | None = None
    end: int | None = None
    reading: Reading | None = None

    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0
    over_bytes: ClassVar[bool] = False  # never over an alphabet, even where there is one
    names: ClassVar[tuple[str, str]]  # of the feature and of its opposite, which {0} stands for

    @property
    def name(self) -> str:
        return self.names[self.absent].format(self)

    @abstractmethod
    def language(self, alphabet: str | None) -> Dfa:
        """The automaton over the characters of an alphabet, or over the bytes of UTF-8."""

    @property
    def automaton(self) -> Dfa:
        """Over tokens, of the language or of its complement; the same object for equal features."""
        key = replace(self, end=None)
        if self.alphabet is not None and not self.over_bytes:
            return _over_alphabet(key)
        if self.reading is None:
            raise UnboundError(self.name)
        known = (type(self).language, replace(key, absent=False, reading=None))  # the code of plug-ins may change
        present = self.reading.lifted(known, lambda: self.language(None))
        return ~present if self.absent else present

    def bind(self: Bound, reading: Reading) -> Bound:
        if self.alphabet is not None or self.reading is not None:
            return self
        if self.over_bytes or reading.characters is None:
            made = replace(self, end=reading.end, reading=reading)
        else:
            made = replace(self, end=reading.end, alphabet=reading.characters)
        _ = made.automaton  # so that a mistake in the expression is an error now, before any work
        return made

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        return _indicator(self.automaton, x, self.end)


@dataclass(frozen=True, slots=True)
class Motif(Regular):
    """A string that occurs: 1 where it does, 0 elsewhere; `absent` exchanges them.

    Parshakova et al. 2019 use features that are 0 where the motif is present: those are the absent ones.
    """

    motif: str

    names = ("motif {0.motif}", "no motif {0.motif}")

    def language(self, alphabet: str | None) -> Dfa:
        return motifs.contains(*symbols_of(self.motif, alphabet))


@dataclass(frozen=True, slots=True)
class StartsWith(Regular):
    """A string that the sequence begins with: 1 where it does, 0 elsewhere; `absent` exchanges them."""

    prefix: str

    names = ("starts with {0.prefix}", "does not start with {0.prefix}")

    def language(self, alphabet: str | None) -> Dfa:
        return motifs.starts_with(*symbols_of(self.prefix, alphabet))


@dataclass(frozen=True, slots=True)
class Expression(Regular):
    """A regular expression that matches somewhere: 1 where it does, 0 elsewhere; `absent` exchanges them.

    With `whole` it must match from the first character to the last. The syntax is that of `ebar.automata.syntax`.
    Bytes that are not UTF-8 match nothing: a match does not reach over them, and no `whole` that has any matches.
    """

    expression: str
    _: KW_ONLY
    whole: bool = False

    @property
    def name(self) -> str:
        what = "expression" if self.reading is None else "text"  # as files of earlier runs have it
        return f"{'no ' if self.absent else ''}{'whole ' if self.whole else ''}{what} {self.expression}"

    def language(self, alphabet: str | None) -> Dfa:
        if alphabet is None:
            return over_text(self.expression, "whole" if self.whole else "anywhere")
        return compile_expression(self.expression, alphabet, anywhere=not self.whole)


@dataclass(frozen=True, slots=True)
class Word(Regular):
    """A regular expression that matches whole words: 1 where it does, 0 elsewhere; `absent` exchanges them.

    A word ends where a character comes that is no ASCII letter, digit or underscore. Its automaton is always made
    over the bytes of the text and lifted to the tokens.
    """

    expression: str

    over_bytes = True

    names = ("word {0.expression}", "no word {0.expression}")

    def language(self, alphabet: str | None) -> Dfa:
        return over_text(self.expression, "word")


def whole(expression: str, *, absent: bool = False) -> Expression:
    """A regular expression that matches the whole text: 1 where it does, 0 elsewhere."""
    return Expression(expression, whole=True, absent=absent)


def _indicator(automaton: Dfa, x: Sequences, end: int | None) -> Float[Tensor, " batch"]:
    return automaton.to(x.tokens.device).accepts(x, end).to(torch.float64)


@lru_cache(maxsize=256)
def _over_alphabet(feature: Regular) -> Dfa:
    present = feature.language(feature.alphabet)
    return ~present if feature.absent else present


def symbols_of(text: str, alphabet: str | None) -> tuple[list[int], int]:
    """A text in the symbols of an alphabet, or in bytes; and how many symbols there are."""
    return (list(text.encode()), 256) if alphabet is None else (motifs.spell(text, alphabet), len(alphabet))


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
    table, accepting = dfa.moves, dfa.accepting
    states = torch.arange(dfa.states)
    characters = slice(128) if dfa.letter is None else torch.unique(dfa.letter[:128])
    matched = accepting & (table[:, characters] == states[:, None]).all(1)
    hopeless = ~accepting & (table == states[:, None]).all(1)
    anew = torch.where(hopeless[table[dfa.start]], dfa.start, table[dfa.start])
    table = torch.where(hopeless[table], anew, table)
    table = torch.where(matched[:, None], states[:, None], table)
    return Dfa(table, accepting, start=dfa.start, letter=dfa.letter).minimised()


ARROW = "=>"  # between the expression of the source and that of the sequence, where they differ


@dataclass(frozen=True, slots=True)
class Agreement:
    """A regular expression, or SOURCE=>TARGET: 1 where source and sequence both match or neither; `absent` inverts it.

    It is φ(x, C) of a conditional GAM (equation 2 of Parshakova et al. 2019). "nicht|kein=>not|n't|no" asks that what
    is denied in the source is denied in the translation, and nothing else is. Both match anywhere, as in `Expression`.
    The source is the context's given tokens, so this needs data with sources; it has no automaton, since what an
    automaton would have to accept changes with the source.
    """

    expressions: str
    _: KW_ONLY
    absent: bool = False
    target: Expression | None = None  # bound to the tokens of sequences
    source: Expression | None = None  # bound to those of sources

    low = 0.0
    high = 1.0

    @property
    def name(self) -> str:
        return f"{'disagrees' if self.absent else 'agrees'} on {self.expressions}"

    def bind(self, reading: Reading) -> "Agreement":
        if self.target is not None:
            return self
        return replace(self, target=Expression(self.expressions.rpartition(ARROW)[2]).bind(reading))

    def bind_source(self, reading: Reading) -> "Agreement":
        """The feature for sources whose tokens `reading` describes."""
        if self.source is not None:
            return self
        return replace(self, source=Expression(self.expressions.partition(ARROW)[0]).bind(reading))

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        if self.target is None:
            raise UnboundError(self.name)
        rows = spread(context, len(x.lengths))
        if self.source is None or rows is None:
            raise UserError(f"The feature {self.name!r} compares with a source: use it with data that have sources.")
        same = (self.target(x) == self.source(rows.given)).to(x.tokens.device).double()
        return 1 - same if self.absent else same
