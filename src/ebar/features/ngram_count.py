"""How often an n-gram occurs."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.automata.motif import spell
from ebar.errors import UserError
from ebar.types import Context, Sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramCount:
    """The number of occurrences of an n-gram, overlapping ones included: "00" occurs twice in "000".

    Bounded: occurrences are at least the n-gram's smallest period apart, and `longest` is the space's length.
    """

    ngram: str
    alphabet: str
    end: int | None
    longest: int

    low = 0.0

    @property
    def name(self) -> str:
        return f"count of {self.ngram}"

    @property
    def high(self) -> float:
        size = len(self.ngram)
        room = self.longest - size - (self.end is not None)
        period = next(shift for shift in range(1, size + 1) if self.ngram[shift:] == self.ngram[: size - shift])
        return float(1 + room // period) if room >= 0 else 0.0

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        tokens = spell(self.ngram, self.alphabet)
        if not tokens:
            raise UserError("An n-gram needs at least one token.")
        windows = x.tokens.shape[1] - len(tokens) + 1
        if windows < 1:
            return torch.zeros(len(x.lengths), dtype=torch.float64, device=x.tokens.device)
        found = x.mask()[:, len(tokens) - 1 :].clone()
        for shift, token in enumerate(tokens):
            found &= x.tokens[:, shift : shift + windows] == token
        return found.sum(1).to(torch.float64)
