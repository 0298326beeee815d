"""Features of a sequence given its source: what one of them says the other must say too."""

from dataclasses import KW_ONLY, dataclass, replace

from jaxtyping import Float
from torch import Tensor

from ebar.automata.lift import Reading
from ebar.errors import UserError
from ebar.features.regular import Expression, UnboundError
from ebar.types import Context, Sequences, spread

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
