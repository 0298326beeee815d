"""Text ↔ tokens."""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from ebar.errors import UserError
from ebar.types import Space


@runtime_checkable
class Tokeniser(Protocol):
    """Tokens 0 … size − 1 spell text; the end token, where there is one, is none of them."""

    @property
    def size(self) -> int: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: list[int]) -> str:
        """A token that spells nothing (an end, say) is an error."""
        ...


@dataclass(frozen=True, slots=True)
class Alphabet:
    """One token per character, numbered as they stand in `symbols`."""

    symbols: str
    _number: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.symbols or len(set(self.symbols)) < len(self.symbols):
            raise UserError(f"An alphabet is one or more different characters, which {self.symbols!r} is not.")
        object.__setattr__(self, "_number", {symbol: token for token, symbol in enumerate(self.symbols)})

    @property
    def size(self) -> int:
        return len(self.symbols)

    def encode(self, text: str) -> list[int]:
        try:
            return [self._number[symbol] for symbol in text]
        except KeyError as error:
            symbol = error.args[0]
            raise UserError(
                f"{symbol!r} at position {text.index(symbol)} is not in the alphabet {self.symbols!r}."
            ) from None

    def decode(self, tokens: list[int]) -> str:
        _check(tokens, self.size)
        return "".join(self.symbols[token] for token in tokens)


@dataclass(frozen=True, slots=True)
class Bytes:
    """One token per byte of UTF-8; bytes that are not UTF-8 decode to U+FFFD, the replacement character."""

    size = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: list[int]) -> str:
        _check(tokens, self.size)
        return bytes(tokens).decode(errors="replace")


def space_of(tokeniser: Tokeniser, length: int, *, end: bool = True) -> Space:
    """Sequences of at most `length` tokens, the end included, which is numbered after the last; or of just as many."""
    if end:
        return Space(tokeniser.size + 1, length, tokeniser.size)
    return Space(tokeniser.size, length)


def _check(tokens: list[int], size: int) -> None:
    for place, token in enumerate(tokens):
        if not 0 <= token < size:
            raise UserError(f"Token {token} at position {place} spells nothing: the vocabulary has {size}.")
