"""Batches that can be asked for again: the same ones for the same epoch, whenever."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from ebar.data.corpus import Stored
from ebar.maths.randomness import folded
from ebar.maths.rows import count_rows, take
from ebar.types import Context, Sequences


@runtime_checkable
class Source(Protocol):
    """What a loop is fed from.

    With several processes each asks for the same global batches, and the loop cuts them up. A data loader
    becomes a source by `islice(loader_of(epoch), start, None)`.
    """

    def at(self, epoch: int, start: int) -> Iterable[Any]:
        """The batches of an epoch from number `start` on. They must depend on nothing else: resuming asks again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Rows of `data` in an order drawn anew each epoch from (seed, epoch)."""

    data: Any  # Sequences, (Sequences, Context), any tree of tensors that share their rows, or stored rows
    batch_size: int  # over all processes together
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False  # leave out a last batch that is not full

    def __len__(self) -> int:
        rows = count(self.data)
        return rows // self.batch_size if self.drop_last else -(-rows // self.batch_size)

    def at(self, epoch: int, start: int) -> Iterator[Any]:
        rows = count(self.data)
        order = torch.arange(rows)
        if self.shuffle:
            order = torch.randperm(rows, generator=Generator().manual_seed(folded(self.seed, epoch)))
        for number in range(start, len(self)):
            yield taken(self.data, order[number * self.batch_size : (number + 1) * self.batch_size])


@dataclass(frozen=True, slots=True)
class OnDevice:
    """Batches of another source, each put where the model is when its turn comes."""

    batches: Any  # a source that knows its number of batches
    device: str

    def __len__(self) -> int:
        return len(self.batches)

    def at(self, epoch: int, start: int) -> Iterator[Any]:
        for batch in self.batches.at(epoch, start):
            yield moved(batch, self.device)


def moved(tree: Any, device: str) -> Any:
    """A batch on a device."""
    if isinstance(tree, Tensor):
        return tree.to(device)
    if isinstance(tree, tuple):
        branches = [moved(branch, device) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else tuple(branches)
    return tree


def count(data: Any) -> int:
    """How many rows there are, in memory or stored."""
    return len(data) if isinstance(data, Stored) else count_rows(data)


def taken(data: Any, rows: Int[Tensor, " selected"]) -> Any:
    """Some rows, without the padding that none of them needs."""
    return data.fetch(rows) if isinstance(data, Stored) else _trimmed(take(data, rows))


def _trimmed(tree: Any) -> Any:
    """Without the padding that no row of the batch needs."""
    if isinstance(tree, Sequences):
        return Sequences(tree.tokens[:, : int(tree.lengths.max())], tree.lengths)
    if isinstance(tree, Context) and tree.order is None:
        return Context(_trimmed(tree.given))
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        return tuple(_trimmed(branch) for branch in tree)
    return tree
