"""The sequence begins with a prefix."""

from dataclasses import KW_ONLY, dataclass

from jaxtyping import Float
from torch import Tensor

from ebar.automata.deterministic import Dfa
from ebar.automata.motif import starts_with
from ebar.automata.reading import Reading
from ebar.features.accepted import accepted, automaton_of, bound, symbols
from ebar.types import Context, Sequences


@dataclass(frozen=True, slots=True)
class StartsWith:
    """A string that the sequence begins with: 1 where it does, 0 elsewhere; `absent` exchanges them."""

    prefix: str
    _: KW_ONLY
    absent: bool = False
    alphabet: str | None = None
    end: int | None = None
    reading: Reading | None = None

    low = 0.0
    high = 1.0

    @property
    def name(self) -> str:
        return f"{'does not start' if self.absent else 'starts'} with {self.prefix}"

    @property
    def automaton(self) -> Dfa:
        return automaton_of(self)

    def language(self, alphabet: str | None) -> Dfa:
        return starts_with(*symbols(self.prefix, alphabet))

    def bind(self, reading: Reading) -> "StartsWith":
        return bound(self, reading)

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        return accepted(self.automaton, x, self.end)
