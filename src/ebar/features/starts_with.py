"""The sequence begins with a prefix."""

from dataclasses import dataclass
from functools import lru_cache

from jaxtyping import Float
from torch import Tensor

from ebar.automata.deterministic import Dfa
from ebar.automata.motif import spell, starts_with
from ebar.features.accepted import accepted
from ebar.types import Context, Sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsWith:
    """1 where the sequence begins with the prefix, 0 elsewhere; `absent` turns them round."""

    prefix: str
    alphabet: str
    end: int | None
    absent: bool = False

    low = 0.0
    high = 1.0

    @property
    def name(self) -> str:
        return f"{'does not start' if self.absent else 'starts'} with {self.prefix}"

    @property
    def automaton(self) -> Dfa:
        return _automaton(self.prefix, self.alphabet, self.absent)

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        return accepted(self.automaton, x, self.end)


@lru_cache(maxsize=256)
def _automaton(prefix: str, alphabet: str, absent: bool) -> Dfa:
    present = starts_with(spell(prefix, alphabet), len(alphabet))
    return ~present if absent else present
