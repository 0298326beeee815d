"""From an automaton over characters or bytes to one over the tokens of a vocabulary.

How the tokens of a model are read as text: what features are bound to.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch

from ebar.automata.deterministic import Dfa, letters
from ebar.errors import UserError


def lift(dfa: Dfa, spellings: Sequence[Sequence[int] | None]) -> Dfa:
    """Accepts a token string exactly when `dfa` accepts what the tokens spell, one after the other.

    A spelling is a sequence of the symbols of `dfa`: bytes for an automaton over bytes, `spell(text, alphabet)`
    for one over an alphabet. A special token spells nothing (None) and leaves the state where it is: lifting is
    then the inverse of a homomorphism, and commutes with complement, union and intersection.
    Symbols that act alike are one letter and tokens of equal letters are run once, from all states together.
    """
    full = dfa.table.cpu().numpy()
    letter, symbol = letters(full)
    table = np.ascontiguousarray(full[:, symbol].T)
    words: dict[tuple[int, ...], int] = {}
    column = np.empty(len(spellings), dtype=np.int64)
    alike = letter.tolist()
    for token, spelling in enumerate(spellings):
        word = tuple([alike[index] for index in spelling or ()])
        column[token] = words.setdefault(word, len(words))
    after = np.tile(np.arange(dfa.states), (len(words), 1))
    lengths = np.array([len(word) for word in words])
    longest = int(lengths.max(initial=0))
    padded = np.zeros((len(words), longest), dtype=np.int64)
    for row, word in enumerate(words):
        padded[row, : len(word)] = word
    for place in range(longest):
        running = np.flatnonzero(lengths > place)
        after[running] = table[padded[running, place, None], after[running]]
    return Dfa(torch.from_numpy(np.ascontiguousarray(after[column].T)), dfa.accepting, start=dfa.start)


def after_a_blank(dfa: Dfa) -> Dfa:
    """Over bytes: accepts a string exactly when `dfa` accepts it without its first byte, where that is a blank.

    A new start reads the first byte: at a blank it goes where `dfa` starts, elsewhere on as `dfa` does.
    """
    first = dfa.table[dfa.start].clone()
    first[ord(" ")] = dfa.start
    accepting = torch.cat([dfa.accepting, dfa.accepting[dfa.start : dfa.start + 1]])
    return Dfa(torch.cat([dfa.table, first[None]]), accepting, start=dfa.states)


def byte_level(tokens: Sequence[str]) -> list[bytes]:
    """The bytes of tokens written in the byte-level alphabet of GPT-2 and its kin, one printable character a byte.

    Printable Latin-1 bytes stand for themselves, the others for the characters from 256 on, in order (" " is "Ġ").
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(printable)]
    value = {chr(byte): byte for byte in printable} | {chr(256 + rank): byte for rank, byte in enumerate(hidden)}
    return [bytes(value[character] for character in token) for token in tokens]


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """The text that tokens spell, the end token and the longest sequence.

    Where token i is the i-th character of an alphabet, features use automata over that alphabet. Elsewhere (bytes,
    byte-pair encoding, pretrained vocabularies) automata over the bytes of UTF-8 are lifted to the vocabulary.
    """

    end: int | None = None
    longest: int | None = None
    """Tokens of the longest sequence, the end included."""
    alphabet: str | None = None
    """One character for each token but the end."""
    spellings: Sequence[bytes | None] | None = None
    """Of each token; None for one that spells nothing, such as the end. Without spellings, text has no automaton."""
    decode: Callable[[list[int]], str] | None = None
    """Tokens → text; by default what the tokens spell, one after the other."""
    encode: Callable[[str], list[int]] | None = None
    """Text → tokens; None where prompts cannot be read."""
    before: str = ""
    """Text that each sequence continues, and which features read together with it: a prompt."""
    drops_blank: bool = False
    """Whether a blank that a text begins with is no part of it, as for tokenizers that put one before every text."""
    _lifted: dict[Hashable, Dfa] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def bytes_of(self) -> Sequence[bytes | None]:
        """The spellings, made from the alphabet where there is one."""
        if self.spellings is not None:
            return self.spellings
        if self.alphabet is None:
            raise UserError(
                "The tokens of this model have no exact spelling, so no regular expression can follow them: "
                "use characters, bytes or byte-pair encoding, or a predicate or score of the text."
            )
        return [*(symbol.encode() for symbol in self.alphabet), *([] if self.end is None else [None])]

    @property
    def characters(self) -> str | None:
        """The alphabet, where automata over it can be used: a text before the sequence may have other characters."""
        return None if self.before else self.alphabet

    def text(self, tokens: Sequence[int]) -> str:
        """What tokens spell together; an end token in the last place is left out."""
        inside = without_end(list(tokens), self.end)
        if self.decode is not None:
            return self.decode(inside)
        text = b"".join(self.bytes_of[token] or b"" for token in inside).decode(errors="replace")
        return text.removeprefix(" ") if self._begins_bare else text

    def going_on_from(self, prompt: str, longest: int, *, reads_prompt: bool) -> "Reading":
        """Of sequences that continue a prompt, read together with it or by themselves: a blank after it counts."""
        drops = self.drops_blank and not prompt
        return replace(self, longest=longest, before=prompt if reads_prompt else "", drops_blank=drops)

    @property
    def _begins_bare(self) -> bool:
        """In the middle of a text, after what is `before`, a blank counts."""
        return self.drops_blank and not self.before

    def lifted(self, key: Hashable, over_bytes: Callable[[], Dfa]) -> Dfa:
        """An automaton over bytes, lifted to the tokens and started after the text before them; made once per key."""
        if key not in self._lifted:
            dfa = after_a_blank(over_bytes()) if self._begins_bare else over_bytes()
            start = dfa.start
            for byte in self.before.encode():
                start = int(dfa.table[start, byte])
            self._lifted[key] = lift(Dfa(dfa.table, dfa.accepting, start=start), self.bytes_of)
        return self._lifted[key]


def without_end(tokens: list[int], end: int | None) -> list[int]:
    """A sequence without the end token in its last place, where it has one."""
    return tokens[:-1] if end is not None and tokens and tokens[-1] == end else tokens
