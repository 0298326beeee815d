"""From an automaton over characters or bytes to one over the tokens of a vocabulary."""

from collections.abc import Sequence

import numpy as np
import torch

from ebar.automata.deterministic import Dfa
from ebar.automata.exploration import letters


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


def byte_level(tokens: Sequence[str]) -> list[bytes]:
    """The bytes of tokens written in the byte-level alphabet of GPT-2 and its kin, one printable character a byte.

    Printable Latin-1 bytes stand for themselves, the others for the characters from 256 on, in order (" " is "Ġ").
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(printable)]
    value = {chr(byte): byte for byte in printable} | {chr(256 + rank): byte for rank, byte in enumerate(hidden)}
    return [bytes(value[character] for character in token) for token in tokens]
