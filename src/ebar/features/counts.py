"""Numbers of tokens: how long a sequence is, and how often an n-gram occurs in it."""

import math
from dataclasses import KW_ONLY, dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.automata.lift import Reading, without_end
from ebar.automata.motif import spell
from ebar.errors import UserError
from ebar.features.regular import UnboundError
from ebar.types import Context, Sequences


@dataclass(frozen=True, slots=True)
class Length:
    """The number of tokens, the end token included; it takes no argument.

    `longest`, the length of the space, is its upper bound.
    """

    _: KW_ONLY
    longest: int | None = None
    end: int | None = None

    name = "length"

    @property
    def low(self) -> float:
        return 0.0 if self.end is None else 1.0

    @property
    def high(self) -> float:
        return math.inf if self.longest is None else float(self.longest)

    def bind(self, reading: Reading) -> "Length":
        return self if self.longest is not None else Length(longest=reading.longest, end=reading.end)

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        if self.longest is None:
            raise UnboundError(self.name)
        return x.lengths.to(torch.float64)


@dataclass(frozen=True, slots=True)
class NgramCount:
    """A string, counted: how often it occurs, overlapping occurrences included ("00" occurs twice in "000").

    Bounded: occurrences are at least the n-gram's smallest period apart, and `longest` is the space's length.
    """

    ngram: str
    _: KW_ONLY
    alphabet: str | None = None
    end: int | None = None
    longest: int | None = None
    reading: Reading | None = None

    low = 0.0

    @property
    def name(self) -> str:
        return f"count of {self.ngram}"

    @property
    def high(self) -> float:
        ngram: str | bytes = self.ngram
        if self.longest is None:
            return math.inf
        room = self.longest - (self.end is not None)
        if self.reading is not None:
            ngram = self.ngram.encode()
            room = room * max(len(one or b"") for one in self.reading.bytes_of) + len(self.reading.before.encode())
        period = next(shift for shift in range(1, len(ngram) + 1) if ngram[shift:] == ngram[: len(ngram) - shift])
        return float(1 + (room - len(ngram)) // period) if room >= len(ngram) else 0.0

    def bind(self, reading: Reading) -> "NgramCount":
        if self.alphabet is not None or self.reading is not None:
            return self
        where = replace(self, end=reading.end, longest=reading.longest)
        if reading.characters is None:
            return replace(where, reading=reading)
        spell(self.ngram, reading.characters)
        return replace(where, alphabet=reading.characters)

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        if not self.ngram:
            raise UserError("An n-gram needs at least one token.")
        if self.reading is not None:
            counts = [self._in_text(self.reading, row) for row in x.rows()]
            return torch.tensor(counts, dtype=torch.float64, device=x.tokens.device)
        if self.alphabet is None:
            raise UnboundError(self.name)
        tokens = spell(self.ngram, self.alphabet)
        windows = x.tokens.shape[1] - len(tokens) + 1
        if windows < 1:
            return torch.zeros(len(x.lengths), dtype=torch.float64, device=x.tokens.device)
        found = x.mask()[:, len(tokens) - 1 :].clone()
        for shift, token in enumerate(tokens):
            found &= x.tokens[:, shift : shift + windows] == token
        return found.sum(1).to(torch.float64)

    def _in_text(self, reading: Reading, tokens: list[int]) -> int:
        """Over bytes, as automata read them: UTF-8 makes an occurrence in bytes one in characters."""
        inside = without_end(tokens, self.end)
        text = reading.before.encode() + b"".join(reading.bytes_of[token] or b"" for token in inside)
        ngram = self.ngram.encode()
        return sum(text.startswith(ngram, place) for place in range(len(text)))
