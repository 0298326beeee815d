"""Text ↔ tokens."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from ebar.automata.lift import Reading
from ebar.errors import UserError
from ebar.types import Space

UNKNOWN = "<unk>"  # what stands for a word that has no token, as in WikiText
REPLACEMENT = "\ufffd"  # what stands for a character that has no token, as in Unicode


@runtime_checkable
class Tokeniser(Protocol):
    """Tokens 0 … size − 1 spell text; the end token, where there is one, is none of them."""

    @property
    def size(self) -> int: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: list[int]) -> str:
        """A token that spells nothing (an end, say) is an error."""


@runtime_checkable
class EncodesMany(Protocol):
    """A tokeniser that is quicker on many texts at once."""

    def encode_many(self, texts: list[str]) -> list[list[int]]: ...


@runtime_checkable
class DecodesAfter(Protocol):
    """A tokeniser whose tokens spell something else in the middle of a text."""

    def decode_after(self, before: list[int], tokens: list[int]) -> str: ...


@runtime_checkable
class Spells(Protocol):
    """A tokeniser whose tokens spell bytes whatever stands beside them: features can follow its text."""

    def spellings(self) -> list[bytes | None]:
        """What each token spells; None for one that spells nothing."""


@runtime_checkable
class Storable(Protocol):
    """A tokeniser that can be stored with a run, so that the run can be opened without its data."""

    def to_json(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Alphabet:
    """One token per character, numbered as they stand in `symbols`.

    Any other character is an error; or, with `unknown`, one more token, the last, which decodes to U+FFFD.
    """

    symbols: str
    unknown: bool = False
    _number: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.symbols or len(set(self.symbols)) < len(self.symbols):
            raise UserError(f"An alphabet is one or more different characters, which {self.symbols!r} is not.")
        object.__setattr__(self, "_number", {symbol: token for token, symbol in enumerate(self.symbols)})

    @staticmethod
    def train(texts: Iterable[str], size: int | None = None) -> "Alphabet":
        """The characters of texts, in order; with a size, the most frequent ones, the unknown token counted."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(text)
        if not counts:
            raise UserError("There is no character to make an alphabet of: the text is empty.")
        if size is None:
            return Alphabet("".join(sorted(counts)))
        if size < 2:
            raise ValueError(f"an alphabet with an unknown token has 2 tokens or more, not {size}")
        return Alphabet("".join(sorted(_most_frequent(counts, size - 1))), unknown=True)

    @staticmethod
    def read(fields: dict[str, Any]) -> "Alphabet":
        """From what `to_json` wrote."""
        return Alphabet(fields["symbols"], unknown=fields["unknown"])

    @property
    def size(self) -> int:
        return len(self.symbols) + self.unknown

    def encode(self, text: str) -> list[int]:
        if self.unknown:
            other = len(self.symbols)
            return [self._number.get(symbol, other) for symbol in text]
        try:
            return [self._number[symbol] for symbol in text]
        except KeyError as error:
            symbol = error.args[0]
            raise UserError(
                f"{symbol!r} at position {text.index(symbol)} is not in the alphabet {self.symbols!r}: use its symbols."
            ) from None

    def decode(self, tokens: list[int]) -> str:
        check_tokens(tokens, self.size)
        spelt = self.symbols + REPLACEMENT
        return "".join(spelt[token] for token in tokens)

    def spellings(self) -> list[bytes | None]:
        return [symbol.encode() for symbol in self.symbols + REPLACEMENT * self.unknown]

    def to_json(self) -> str:
        return _written("characters", symbols=self.symbols, unknown=self.unknown)


@dataclass(frozen=True, slots=True)
class Bytes:
    """One token per byte of UTF-8; bytes that are not UTF-8 decode to U+FFFD, the replacement character."""

    size = 256

    @staticmethod
    def train(texts: Iterable[str], size: int | None = None) -> "Bytes":
        """The 256 bytes, whatever the texts."""
        return Bytes()

    @staticmethod
    def read(fields: dict[str, Any]) -> "Bytes":
        """From what `to_json` wrote."""
        return Bytes()

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: list[int]) -> str:
        check_tokens(tokens, self.size)
        return bytes(tokens).decode(errors="replace")

    def spellings(self) -> list[bytes | None]:
        return [bytes([value]) for value in range(self.size)]

    def to_json(self) -> str:
        return _written("bytes")


@dataclass(frozen=True, slots=True)
class Words:
    """One token per word: what stands between blanks, each line break being a word of its own.

    Token 0 is the unknown word. Text comes back with single blanks.
    """

    words: tuple[str, ...]  # the unknown word not among them
    _number: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.words or len({*self.words, UNKNOWN}) <= len(self.words):
            raise UserError(f"A vocabulary is one or more different words, {UNKNOWN} not among them.")
        object.__setattr__(self, "_number", {word: token for token, word in enumerate(self.words, 1)})

    @staticmethod
    def train(texts: Iterable[str], size: int | None = None) -> "Words":
        """The most frequent words of texts, `size` tokens in all; every word there is without a size."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(_words(text))
        del counts[UNKNOWN]
        if not counts:
            raise UserError("There is no word to make a vocabulary of: the text is empty.")
        if size is not None and size < 2:
            raise ValueError(f"words with an unknown one are 2 tokens or more, not {size}")
        return Words(tuple(_most_frequent(counts, len(counts) if size is None else size - 1)))

    @staticmethod
    def read(fields: dict[str, Any]) -> "Words":
        """From what `to_json` wrote."""
        return Words(tuple(fields["words"]))

    @property
    def size(self) -> int:
        return len(self.words) + 1

    def encode(self, text: str) -> list[int]:
        number = self._number
        return [number.get(word, 0) for word in _words(text)]

    def decode(self, tokens: list[int]) -> str:
        check_tokens(tokens, self.size)
        text = " ".join(UNKNOWN if token == 0 else self.words[token - 1] for token in tokens)
        return text.replace(" \n", "\n").replace("\n ", "\n")

    def to_json(self) -> str:
        return _written("words", words=list(self.words))


def encode_many(tokeniser: Tokeniser, texts: Sequence[str]) -> list[list[int]]:
    """Each text's tokens, the quickest way the tokeniser has."""
    if isinstance(tokeniser, EncodesMany):
        return tokeniser.encode_many(list(texts))
    return [tokeniser.encode(text) for text in texts]


def encode_lines(
    tokeniser: Tokeniser, texts: Sequence[str], first: int, where: Callable[[int], str]
) -> list[list[int]]:
    """Each text's tokens. An error says `where` the text is that cannot be encoded; numbers begin with `first`."""
    try:
        return encode_many(tokeniser, texts)
    except UserError:
        for number, text in enumerate(texts, first):
            try:
                tokeniser.encode(text)
            except UserError as error:
                raise UserError(f"{where(number)}: {error}") from None
        raise


def decode_after(tokeniser: Tokeniser, before: list[int], tokens: list[int]) -> str:
    """What tokens add to the text of those before them."""
    if isinstance(tokeniser, DecodesAfter):
        return tokeniser.decode_after(before, tokens)
    return tokeniser.decode(tokens)


def reading_of_space(tokeniser: Tokeniser | None, space: Space, *, before: str = "") -> Reading:
    """How sequences of a space are read as text, for features; `before` is text that they continue."""
    reading = Reading(end=space.end, longest=space.length, before=before)
    if tokeniser is None:
        return reading
    if not isinstance(tokeniser, Spells):
        return replace(reading, encode=tokeniser.encode, decode=tokeniser.decode)
    alphabet = tokeniser.symbols if isinstance(tokeniser, Alphabet) and not tokeniser.unknown else None
    spellings = [*tokeniser.spellings(), *[None] * space.vocabulary][: space.vocabulary]
    if space.end is not None:
        spellings[space.end] = None
    return replace(
        reading, encode=tokeniser.encode, alphabet=alphabet, spellings=spellings,
        drops_blank=_drops_blank(tokeniser, spellings),
    )  # fmt: skip


def _drops_blank(tokeniser: Tokeniser, spellings: Sequence[bytes | None]) -> bool:
    """Whether `decode` leaves out a blank that the first token spells, as sentencepiece's does, whose `encode` adds it.

    Seen from the first token of several characters that begins with one.
    """
    spelt = ((token, one) for token, one in enumerate(spellings) if one is not None and len(one) > 1 and one.isascii())
    found = next(((token, one) for token, one in spelt if one[:1] == b" "), None)
    return found is not None and tokeniser.decode([found[0]]) == found[1][1:].decode()


def _words(text: str) -> list[str]:
    # "\n" alone is a line break: what else Python breaks lines at (\x0b, \u2028 …) is a blank like any other.
    lines = text.split("\n")
    words = lines[0].split()
    for line in lines[1:]:
        words.append("\n")
        words += line.split()
    return words


def _most_frequent(counts: Counter[str], size: int) -> list[str]:
    """Ties in the order of the characters: the same vocabulary whatever the order of the texts."""
    return sorted(counts, key=lambda item: (-counts[item], item))[:size]


def _written(kind: str, **fields: Any) -> str:
    return json.dumps({"kind": kind, **fields}, ensure_ascii=False) + "\n"


def check_tokens(tokens: list[int], size: int) -> None:
    """The first token that spells nothing is an error that names it."""
    for place, token in enumerate(tokens):
        if not 0 <= token < size:
            raise UserError(f"Token {token} at position {place} spells nothing: the vocabulary has {size}.")
