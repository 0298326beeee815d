"""A regular expression matches."""

from dataclasses import dataclass
from functools import lru_cache

from jaxtyping import Float
from torch import Tensor

from ebar.automata.deterministic import Dfa
from ebar.automata.expressions import compile_expression
from ebar.features.accepted import accepted
from ebar.types import Context, Sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """1 where some part of the sequence matches, or the `whole` of it; `absent` turns 1 into 0 and 0 into 1.

    Token i is the i-th character of the alphabet. The syntax is that of `ebar.automata.syntax`.
    """

    expression: str
    alphabet: str
    end: int | None
    whole: bool = False
    absent: bool = False

    low = 0.0
    high = 1.0

    @property
    def name(self) -> str:
        return f"{'no ' if self.absent else ''}{'whole ' if self.whole else ''}expression {self.expression}"

    @property
    def automaton(self) -> Dfa:
        return _automaton(self.expression, self.alphabet, self.whole, self.absent)

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        return accepted(self.automaton, x, self.end)


@lru_cache(maxsize=256)
def _automaton(expression: str, alphabet: str, whole: bool, absent: bool) -> Dfa:
    present = compile_expression(expression, alphabet, anywhere=not whole)
    return ~present if absent else present
