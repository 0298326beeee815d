"""Automata of one token string: it occurs, it comes first, it has just been read."""

from collections.abc import Sequence

import numpy as np
import torch

from ebar.automata.deterministic import Dfa
from ebar.errors import UserError


def spell(text: str, alphabet: Sequence[str]) -> list[int]:
    """The tokens of a text, one symbol each: "01" over the alphabet "01" is [0, 1]."""
    number = {symbol: token for token, symbol in enumerate(alphabet)}
    for position, symbol in enumerate(text):
        if symbol not in number:
            known = "".join(alphabet)
            raise UserError(
                f"{symbol!r} at position {position} of {text!r} is not in the alphabet {known!r}: use its symbols."
            )
    return [number[symbol] for symbol in text]


def contains(motif: Sequence[int], vocabulary: int) -> Dfa:
    """The strings in which the motif occurs: one state per matched prefix, the full match absorbing.

    Knuth, Morris & Pratt 1977.
    """
    dfa = ends_with(motif, vocabulary)
    table = dfa.table.clone()
    table[-1] = len(motif)
    return Dfa(table, dfa.accepting)


def ends_with(motif: Sequence[int], vocabulary: int) -> Dfa:
    """The strings whose last tokens are the motif: along a string it accepts once per occurrence, overlaps too."""
    _check(motif, vocabulary)
    table = np.zeros((len(motif) + 1, vocabulary), dtype=np.int64)
    border = 0  # the state of the motif without its first token: where a mismatch falls back to
    for matched, token in enumerate(motif):
        table[matched] = table[border]
        border = int(table[border, token])
        table[matched, token] = matched + 1
    table[-1] = table[border]
    return Dfa(torch.from_numpy(table), torch.arange(len(motif) + 1) == len(motif))


def starts_with(prefix: Sequence[int], vocabulary: int) -> Dfa:
    """The strings that begin with the prefix."""
    _check(prefix, vocabulary)
    matched, failed = len(prefix), len(prefix) + 1
    table = torch.full((matched + 2, vocabulary), failed)
    table[torch.arange(matched), torch.tensor(prefix)] = torch.arange(1, matched + 1)
    table[matched] = matched
    return Dfa(table, torch.arange(matched + 2) == matched)


def _check(motif: Sequence[int], vocabulary: int) -> None:
    if not motif:
        raise UserError("A motif needs at least one token.")
    if not all(0 <= token < vocabulary for token in motif):
        raise UserError(f"The motif {list(motif)} has a token outside the vocabulary of {vocabulary}.")
