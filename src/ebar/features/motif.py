"""A motif occurs."""

from dataclasses import KW_ONLY, dataclass

from jaxtyping import Float
from torch import Tensor

from ebar.automata.deterministic import Dfa
from ebar.automata.motif import contains
from ebar.automata.reading import Reading
from ebar.features.accepted import accepted, automaton_of, bound, symbols
from ebar.types import Context, Sequences


@dataclass(frozen=True, slots=True)
class Motif:
    """A string that occurs: 1 where it does, 0 elsewhere; `absent` exchanges them.

    Parshakova et al. 2019 use features that are 0 where the motif is present: those are the absent ones.
    """

    motif: str
    _: KW_ONLY
    absent: bool = False
    alphabet: str | None = None
    end: int | None = None
    reading: Reading | None = None

    low = 0.0
    high = 1.0

    @property
    def name(self) -> str:
        return f"{'no ' if self.absent else ''}motif {self.motif}"

    @property
    def automaton(self) -> Dfa:
        return automaton_of(self)

    def language(self, alphabet: str | None) -> Dfa:
        return contains(*symbols(self.motif, alphabet))

    def bind(self, reading: Reading) -> "Motif":
        return bound(self, reading)

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        return accepted(self.automaton, x, self.end)
