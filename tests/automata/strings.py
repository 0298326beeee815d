"""Every string of a small alphabet, and the batch that holds them."""

from collections.abc import Iterable, Sequence
from itertools import product

import torch

from ebar.types import Sequences


def all_strings(symbols: int, longest: int, shortest: int = 0) -> list[tuple[int, ...]]:
    return [word for length in range(shortest, longest + 1) for word in product(range(symbols), repeat=length)]


def batch(words: Iterable[Sequence[int]], *, end: int | None = None, padding: int = 0) -> Sequences:
    rows = [[*word] if end is None else [*word, end] for word in words]
    width = max((len(row) for row in rows), default=0)
    tokens = torch.tensor([row + [padding] * (width - len(row)) for row in rows], dtype=torch.int64)
    return Sequences(tokens.reshape(len(rows), width), torch.tensor([len(row) for row in rows]))
