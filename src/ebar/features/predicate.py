"""Any Python function of a sequence."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.errors import UserError
from ebar.modes import evaluation_mode
from ebar.shapes import of_shape
from ebar.types import Context, Sequences


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicate:
    """function(tokens), the end token left out; given a decoder, function(decode(tokens)).

    A truth value, or a number between `low` and `high`. With `conditional` the function takes a second argument,
    the context's tokens, or what they decode to. It is called once per row and must depend on nothing else.
    """

    name: str
    function: Callable[..., Any]
    end: int | None
    decode: Callable[[list[int]], Any] | None = None
    conditional: bool = False
    low: float = 0.0
    high: float = 1.0

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        if self.conditional and context is None:
            raise UserError(f"Feature {self.name!r} looks at the context, and there is none.")
        with torch.no_grad(), evaluation_mode(self.function):
            values = [self._value(x, context, row) for row in range(len(x.lengths))]
        return torch.tensor(values, dtype=torch.float64, device=x.tokens.device)

    def _value(self, x: Sequences, context: Context | None, row: int) -> float:
        tokens = x.prefix(row)
        try:
            arguments = [self._seen(tokens)]
            if self.conditional and context is not None:
                arguments.append(self._seen(context.given.prefix(row)))
            value = float(self._called(*arguments))
        except UserError as error:
            raise UserError(f"Feature {self.name!r} on the sequence {tokens}: {error}") from error
        except Exception as error:
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise UserError(f"Feature {self.name!r} raised {reason} on the sequence {tokens}.") from error
        if not self.low <= value <= self.high:
            raise UserError(
                f"Feature {self.name!r} is {value} on the sequence {tokens}, outside its bounds "
                f"{self.low} and {self.high}: give it the bounds it keeps to."
            )
        return value

    def _called(self, *arguments: Any) -> Any:
        found = self.function(*arguments)
        return of_shape(found, (), "its value") if isinstance(found, Tensor) and found.numel() != 1 else found

    def _seen(self, tokens: list[int]) -> Any:
        if self.end is not None and tokens and tokens[-1] == self.end:
            tokens = tokens[:-1]
        return tokens if self.decode is None else self.decode(tokens)
