"""Features that a Python function computes: of one text at a time, or of a batch of texts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ebar.automata.lift import Reading, without_end
from ebar.errors import UserError
from ebar.features.regular import UnboundError
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
            object.__setattr__(self, "name", f"{'no ' if self.absent else ''}{_named(self.function)}")

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
                f"{self.low} and {self.high}: {_advice(value)}."
            )
        return value

    def _called(self, *arguments: Any) -> Any:
        found = self.function(*arguments)
        return of_shape(found, (), "its value") if isinstance(found, Tensor) and found.numel() != 1 else found

    def _seen(self, tokens: list[int]) -> Any:
        inside = without_end(tokens, self.end)
        return inside if self.decode is None else self.decode(inside)


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
            object.__setattr__(self, "name", f"score {_named(self.function)}")

    def bind(self, reading: Reading) -> "TextScore":
        if self.decode is not None:
            return self
        return replace(self, decode=reading.text, end=reading.end, before=reading.before)

    def __call__(self, x: Sequences, context: Context | None = None) -> Float[Tensor, " batch"]:
        if self.decode is None:
            raise UnboundError(self.name)
        if isinstance(self.function, nn.Module):
            self.function.to(x.tokens.device)
        texts = [self.before + self.decode(without_end(row, self.end)) for row in x.rows()]
        with torch.no_grad(), evaluation_mode(self.function):
            found = self.function(texts)
        try:
            values = torch.as_tensor(found, dtype=torch.float64).detach().cpu()
        except (TypeError, ValueError, RuntimeError) as error:
            raise UserError(f"Feature {self.name!r} must give a number for each text: {error}.") from error
        of_shape(values, (len(texts),), f"Feature {self.name!r} of {len(texts)} texts")
        outside = (~((values >= self.low) & (values <= self.high))).nonzero()  # NaN is
        if len(outside):
            row = int(outside[0])
            raise UserError(
                f"Feature {self.name!r} is {float(values[row])} on {texts[row]!r}, outside its bounds {self.low:g} and "
                f"{self.high:g}: {_advice(float(values[row]))}."
            )
        return values.to(x.tokens.device)


def _advice(value: float) -> str:
    return "let the function give a number" if math.isnan(value) else "give it the bounds it keeps to"


def _named(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
