"""A score of the text, from a classifier say, asked for a whole batch at a time."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ebar.automata.reading import Reading
from ebar.errors import UserError
from ebar.features.accepted import UnboundError
from ebar.modes import evaluation_mode
from ebar.shapes import of_shape
from ebar.types import Context, Sequences


@dataclass(frozen=True, slots=True, eq=False)
class TextScore:
    """FILE.py:FUNCTION, a function of a list of texts: a number from 0 to 1 for each.

    In Python it is given as it is. An end token is no part of a text; `low` and `high` bound the numbers. No
    automaton follows it, so looking ahead leaves it to the weights.
    """

    function: Callable[[list[str]], Sequence[float]]
    _: KW_ONLY
    name: str = ""
    decode: Callable[[list[int]], str] | None = None
    end: int | None = None
    before: str = ""
    """Text that the tokens continue, and which is scored with them."""
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.name:
            own = getattr(self.function, "__name__", type(self.function).__name__)
            object.__setattr__(self, "name", f"score {own}")

    def bind(self, reading: Reading) -> "TextScore":
        if self.decode is not None:
            return self
        return replace(self, decode=reading.text, end=reading.end, before=reading.before)

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        if self.decode is None:
            raise UnboundError(self.name)
        if isinstance(self.function, nn.Module):
            self.function.to(x.tokens.device)
        texts = [self.before + self.decode(self._inside(x.prefix(row))) for row in range(len(x.lengths))]
        with torch.no_grad(), evaluation_mode(self.function):
            found = self.function(texts)
        try:
            values = torch.as_tensor(found, dtype=torch.float64).detach().cpu()
        except (TypeError, ValueError, RuntimeError) as error:
            raise UserError(f"Feature {self.name!r} must give a number for each text: {error}.") from error
        of_shape(values, (len(texts),), f"Feature {self.name!r} of {len(texts)} texts")
        outside = ((values < self.low) | (values > self.high)).nonzero()
        if len(outside):
            row = int(outside[0])
            raise UserError(
                f"Feature {self.name!r} is {float(values[row])} on {texts[row]!r}, outside its bounds {self.low:g} and "
                f"{self.high:g}: give it the bounds it keeps to."
            )
        return values.to(x.tokens.device)

    def _inside(self, tokens: list[int]) -> list[int]:
        return tokens[:-1] if self.end is not None and tokens and tokens[-1] == self.end else tokens
