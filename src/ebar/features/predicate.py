"""Any Python function of a sequence."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ebar.automata.reading import Reading
from ebar.errors import UserError
from ebar.features.accepted import UnboundError
from ebar.modes import evaluation_mode
from ebar.shapes import of_shape
from ebar.types import Context, Sequences

UNBOUND = -1  # in place of an end: no token has this number


@dataclass(frozen=True, slots=True)
class Predicate:
    """FILE.py:FUNCTION, a function of the text: true or false, or a number from 0 to 1.

    In Python it is given as it is. Once bound it reads text, before which stands what the reading has `before`. Made
    with an `end` and no decoder it reads the list of tokens, the end left out. It is called once per row and must
    depend on nothing else; `low` and `high` bound it. With `conditional` it takes a second argument, the context's
    tokens, or what they decode to. With `truth`, or where it is to be `absent`, only whether it holds counts.
    """

    function: Callable[..., Any]
    _: KW_ONLY
    name: str = ""
    absent: bool = False
    truth: bool = False
    end: int | None = UNBOUND
    decode: Callable[[list[int]], Any] | None = None
    before: str = ""
    conditional: bool = False
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.name:
            own = getattr(self.function, "__name__", type(self.function).__name__)
            object.__setattr__(self, "name", f"no {own}" if self.absent else own)

    def bind(self, reading: Reading) -> "Predicate":
        if self.end != UNBOUND:
            return self
        return replace(self, end=reading.end, decode=reading.text, before=reading.before)

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        if self.end == UNBOUND:
            raise UnboundError(self.name)
        if self.conditional and context is None:
            raise UserError(f"Feature {self.name!r} looks at the context, and there is none.")
        with torch.no_grad(), evaluation_mode(self.function):
            values = [self._value(x, context, row) for row in range(len(x.lengths))]
        return torch.tensor(values, dtype=torch.float64, device=x.tokens.device)

    def _value(self, x: Sequences, context: Context | None, row: int) -> float:
        tokens = x.prefix(row)
        try:
            seen = self._seen(tokens)
            arguments = [self.before + seen if self.before else seen]
            if self.conditional and context is not None:
                arguments.append(self._seen(context.given.prefix(row)))
            found = self._called(*arguments)
            value = float(bool(found) is not self.absent if self.truth or self.absent else found)
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
