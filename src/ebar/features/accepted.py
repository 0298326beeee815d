"""Any automaton as a feature."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.automata.deterministic import Dfa
from ebar.types import Context, Sequences


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accepted:
    """1 where the automaton accepts the sequence, its end token left out; 0 elsewhere.

    What `motif`, `expression` and `starts_with` are made of. For a language model's own vocabulary, lift an
    automaton over bytes to its tokens (`ebar.automata.lift`).
    """

    name: str
    automaton: Dfa
    end: int | None

    low = 0.0
    high = 1.0

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        return accepted(self.automaton, x, self.end)


def accepted(automaton: Dfa, x: Sequences, end: int | None) -> Float[Tensor, " batch"]:
    """The indicator of the automaton's language."""
    return automaton.to(x.tokens.device).accepts(x, end).to(torch.float64)
