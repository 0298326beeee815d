"""A motif occurs."""

from dataclasses import dataclass
from functools import lru_cache

from jaxtyping import Float
from torch import Tensor

from ebar.automata.deterministic import Dfa
from ebar.automata.motif import contains, spell
from ebar.features.accepted import accepted
from ebar.types import Context, Sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class Motif:
    """1 where the motif occurs in the sequence, 0 elsewhere; `absent` turns them round.

    Document 000's features are 0 where the motif is present: those are the absent ones.
    """

    motif: str
    alphabet: str
    end: int | None
    absent: bool = False

    low = 0.0
    high = 1.0

    @property
    def name(self) -> str:
        return f"{'no ' if self.absent else ''}motif {self.motif}"

    @property
    def automaton(self) -> Dfa:
        return _automaton(self.motif, self.alphabet, self.absent)

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        return accepted(self.automaton, x, self.end)


@lru_cache(maxsize=256)
def _automaton(motif: str, alphabet: str, absent: bool) -> Dfa:
    present = contains(spell(motif, alphabet), len(alphabet))
    return ~present if absent else present
