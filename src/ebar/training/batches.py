"""Batches that can be asked for again: the same ones for the same epoch, whenever."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Generator

from ebar.training.rows import count_rows, take
from ebar.types import Sequences


@runtime_checkable
class Source(Protocol):
    """What a loop is fed from.

    With several processes each asks for the same global batches, and the loop cuts them up. A data loader
    becomes a source by `islice(loader_of(epoch), start, None)`.
    """

    def at(self, epoch: int, start: int) -> Iterable[Any]:
        """The batches of an epoch from number `start` on. They must depend on nothing else: resuming asks again."""
        ...


def folded(*numbers: int) -> int:
    """One seed from several numbers, without the collisions of a sum (seed 0 epoch 1, seed 1 epoch 0)."""
    digest = hashlib.sha256("/".join(map(str, numbers)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Rows of `data` in an order drawn anew each epoch from (seed, epoch)."""

    data: Any  # Sequences, (Sequences, Context), or any tree of tensors that share their rows
    batch_size: int  # over all processes together
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False  # leave out a last batch that is not full

    def __len__(self) -> int:
        rows = count_rows(self.data)
        return rows // self.batch_size if self.drop_last else -(-rows // self.batch_size)

    def at(self, epoch: int, start: int) -> Iterator[Any]:
        rows = count_rows(self.data)
        order = torch.arange(rows)
        if self.shuffle:
            order = torch.randperm(rows, generator=Generator().manual_seed(folded(self.seed, epoch)))
        for number in range(start, len(self)):
            yield _trimmed(take(self.data, order[number * self.batch_size : (number + 1) * self.batch_size]))


def _trimmed(tree: Any) -> Any:
    """Without the padding that no row of the batch needs."""
    if isinstance(tree, Sequences):
        return Sequences(tree.tokens[:, : int(tree.lengths.max())], tree.lengths)
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        return tuple(_trimmed(branch) for branch in tree)
    return tree
