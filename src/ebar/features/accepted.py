"""Features that are the indicator of a regular language: an automaton follows them along the prefix."""

from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.automata.deterministic import Dfa
from ebar.automata.motif import spell
from ebar.automata.reading import Reading
from ebar.errors import UserError
from ebar.types import Context, Sequences


@runtime_checkable
class Regular(Protocol):
    """A frozen dataclass that describes a regular language, bound to an alphabet or a reading or not yet."""

    @property
    def name(self) -> str: ...

    @property
    def absent(self) -> bool: ...

    @property
    def alphabet(self) -> str | None: ...

    @property
    def reading(self) -> Reading | None: ...

    def language(self, alphabet: str | None) -> Dfa:
        """The automaton over the characters of an alphabet, or over the bytes of UTF-8."""
        ...


Bound = TypeVar("Bound", bound=Regular)


def bound(feature: Bound, reading: Reading) -> Bound:
    """The feature for a model's tokens; one that is bound already is returned unchanged."""
    if feature.alphabet is not None or feature.reading is not None:
        return feature
    own: Any = feature
    where = {"reading": reading} if reading.characters is None else {"alphabet": reading.characters}
    made: Bound = replace(own, end=reading.end, **where)
    automaton_of(made)  # so that a mistake in the expression is an error now, before any work
    return made


def automaton_of(feature: Regular) -> Dfa:
    """The automaton over tokens, of the language or of its complement; the same object for equal features."""
    own: Any = feature
    key = replace(own, end=None)
    if feature.alphabet is not None:
        return _over_alphabet(key)
    if feature.reading is None:
        raise UnboundError(feature.name)
    present = feature.reading.lifted(replace(key, absent=False), lambda: feature.language(None))
    return ~present if feature.absent else present


@lru_cache(maxsize=256)
def _over_alphabet(feature: Regular) -> Dfa:
    present = feature.language(feature.alphabet)
    return ~present if feature.absent else present


def symbols(text: str, alphabet: str | None) -> tuple[list[int], int]:
    """A text in the symbols of an alphabet, or in bytes; and how many symbols there are."""
    return (list(text.encode()), 256) if alphabet is None else (spell(text, alphabet), len(alphabet))


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
        return accepted(self.automaton, x, self.end)


def accepted(automaton: Dfa, x: Sequences, end: int | None) -> Float[Tensor, " batch"]:
    """The indicator of the automaton's language."""
    return automaton.to(x.tokens.device).accepts(x, end).to(torch.float64)
