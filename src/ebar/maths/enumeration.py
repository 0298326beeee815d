"""Every sequence of a small space: the truth that estimates are held against."""

import itertools

import torch
from torch import Tensor

from ebar.types import Sequences, Space


def number_of_sequences(space: Space) -> int:
    """How many sequences the space has."""
    if space.end is None:
        return int(space.vocabulary**space.length)
    return sum(int((space.vocabulary - 1) ** inner) for inner in range(space.length))


def all_sequences(space: Space, limit: int = 5_000_000) -> Sequences:
    """Every sequence of the space, shortest first."""
    if number_of_sequences(space) > limit:
        raise ValueError(f"{number_of_sequences(space):,} sequences are too many to enumerate (limit {limit:,})")
    if space.end is None:
        tokens = _words(list(range(space.vocabulary)), space.length)
        return Sequences(tokens, torch.full((len(tokens),), space.length))
    letters = [token for token in range(space.vocabulary) if token != space.end]
    parts = []
    for inner in range(space.length):
        words = _words(letters, inner)
        ended = torch.cat([words, torch.full((len(words), 1), space.end)], 1)
        parts.append(Sequences(ended, torch.full((len(words),), inner + 1)))
    return Sequences.join(parts)


def _words(letters: list[int], length: int) -> Tensor:
    """All words of one length, in lexicographic order."""
    if length == 0:
        return torch.zeros(1, 0, dtype=torch.long)
    if not letters:
        return torch.zeros(0, length, dtype=torch.long)
    if len(letters) == 1:
        return torch.full((1, length), letters[0])
    return torch.cartesian_prod(*itertools.repeat(torch.tensor(letters), length)).reshape(-1, length)


def has_at_most(space: Space, limit: int) -> bool:
    """Whether the space has no more sequences than this; answered at once for spaces of unbounded length too."""
    letters = space.vocabulary - (space.end is not None)
    if letters > 1 and space.length > 1 + limit.bit_length():
        return False
    return space.length <= limit + 1 and number_of_sequences(space) <= limit
