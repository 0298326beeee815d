"""Batches that can be asked for again: the same ones for the same epoch, whenever.

Batches of about as many tokens each, of rows of about one length.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from ebar.data.corpus import Stored
from ebar.data.labelled import Inputs, Labelled
from ebar.errors import UserError
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


@runtime_checkable
class Uneven(Protocol):
    """A source whose epochs have unequal numbers of batches."""

    def batches_in(self, epoch: int) -> int: ...


def steps_in(batches: Any, epochs: int) -> int:
    """How many batches the first epochs have together."""
    if isinstance(batches, Uneven):
        return sum(batches.batches_in(epoch) for epoch in range(epochs))
    return epochs * len(batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Rows of `data` in an order drawn anew each epoch from (seed, epoch)."""

    data: Any  # Sequences, (Sequences, Context), any tree of tensors that share their rows, or stored rows
    batch_size: int  # over all processes together
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False  # leave out a last batch that is not full
    block: int | None = None  # rows that stay near one another, as on a disk (`block_order`)

    def __len__(self) -> int:
        rows = number_of_rows(self.data)
        return rows // self.batch_size if self.drop_last else -(-rows // self.batch_size)

    def at(self, epoch: int, start: int) -> Iterator[Any]:
        rows = number_of_rows(self.data)
        order = torch.arange(rows)
        if self.shuffle:
            generator = Generator().manual_seed(folded(self.seed, epoch))
            order = (
                torch.randperm(rows, generator=generator)
                if self.block is None
                else block_order(rows, self.block, generator=generator)
            )
        for number in range(start, len(self)):
            yield taken(self.data, order[number * self.batch_size : (number + 1) * self.batch_size])


TOGETHER = 16  # blocks among which rows are shuffled


def block_order(rows: int, block: int, *, generator: Generator) -> Int[Tensor, " rows"]:
    """Rows in an order that reads a disk in long stretches: blocks of neighbours are shuffled, then the rows of each
    TOGETHER blocks among themselves. It depends on rows, block and generator alone, not on who reads which part.
    """
    blocks = [torch.arange(first, min(first + block, rows)) for first in range(0, rows, block)]
    chosen = torch.randperm(len(blocks), generator=generator).tolist()
    found = []
    for first in range(0, len(chosen), TOGETHER):
        near = torch.cat([blocks[number] for number in chosen[first : first + TOGETHER]])
        found.append(near[torch.randperm(len(near), generator=generator)])
    return torch.cat(found) if found else torch.arange(0)


@dataclass(frozen=True, slots=True)
class OnDevice:
    """Batches of another source, each put where the model is when its turn comes."""

    batches: Any  # a source that knows its number of batches
    device: str

    def __len__(self) -> int:
        return len(self.batches)

    def at(self, epoch: int, start: int) -> Iterator[Any]:
        for batch in self.batches.at(epoch, start):
            yield to_device(batch, self.device)


def to_device(tree: Any, device: str) -> Any:
    """A batch on a device."""
    if isinstance(tree, Tensor):
        return tree.to(device)
    if isinstance(tree, tuple):
        branches = [to_device(branch, device) for branch in tree]
        return type(tree)(*branches) if hasattr(tree, "_fields") else tuple(branches)
    return tree


def number_of_rows(data: Any) -> int:
    """How many rows there are, in memory or stored."""
    return len(data) if isinstance(data, Stored) else count_rows(data)


def taken(data: Any, rows: Int[Tensor, " selected"]) -> Any:
    """Some rows, without the padding that none of them needs."""
    return data.fetch(rows) if isinstance(data, Stored) else _trimmed(take(data, rows))


def _trimmed(tree: Any) -> Any:
    """Without the padding that no row of the batch needs."""
    if isinstance(tree, Sequences):
        return tree.trimmed()
    if isinstance(tree, Context):
        order = tree.order
        return Context(_trimmed(tree.given), None if order is None else order[:, : int((order >= 0).sum(1).max())])
    if isinstance(tree, Labelled):
        width = int(tree.inputs.lengths.max())
        tokens, segments = tree.inputs.tokens[..., :width], tree.inputs.segments[..., :width]
        return tree._replace(inputs=Inputs(tokens, segments, tree.inputs.lengths))
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        return tuple(_trimmed(branch) for branch in tree)
    return tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgeted:
    """Every row once an epoch, in batches of at most `tokens` tokens, padding counted; targets and sources each.

    Rows are sorted into classes of like lengths. Which rows of a class meet, and the order of the batches, are
    drawn anew each epoch from (seed, epoch); how many rows of which class a batch holds is not, so that all
    epochs have as many batches.
    """

    data: Any  # Sequences, (Sequences, Context), or stored rows with their lengths
    tokens: int
    seed: int = 0
    shuffle: bool = True
    most_rows: int | None = None  # in a batch
    _ranks: Int[Tensor, " rows"] = field(init=False, repr=False, compare=False)
    _bounds: Int[Tensor, " bounds"] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.most_rows is not None and self.most_rows < 1:
            raise ValueError(f"a batch has at least one row, not {self.most_rows}")
        lengths = lengths_of(self.data)
        if len(lengths) == 0:
            raise UserError("There is no training data: it has no rows.")
        longest = int(lengths.max())
        if longest > self.tokens:
            raise UserError(
                f"A sequence of {longest:,} tokens does not fit in batches of {self.tokens:,}: "
                "allow more tokens in a batch, or shorter sequences only."
            )
        rounded = _rounded(lengths, self.tokens)
        ranks, sizes = _classes(rounded)
        object.__setattr__(self, "_ranks", ranks)
        object.__setattr__(self, "_bounds", _cut(ranks, sizes, self.tokens, self.most_rows))

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def at(self, epoch: int, start: int) -> Iterator[Any]:
        rows = number_of_rows(self.data)
        numbers, order = torch.arange(len(self)), torch.arange(rows)
        if self.shuffle:
            generator = Generator().manual_seed(folded(self.seed, epoch))
            order, numbers = (torch.randperm(n, generator=generator) for n in (rows, len(self)))
        order = order[self._ranks[order].argsort(stable=True)]
        for number in numbers[start:].tolist():
            yield taken(self.data, order[self._bounds[number] : self._bounds[number + 1]])


def lengths_of(data: Any) -> Int[Tensor, "rows sides"]:
    """How long each row is, in each of the sequences it is made of."""
    if isinstance(data, Sequences):
        return data.lengths.cpu()[:, None]
    if isinstance(data, Context):
        return lengths_of(data.given)
    if isinstance(data, tuple):
        return torch.cat([lengths_of(branch) for branch in data if branch is not None], 1)
    lengths: Tensor = data.lengths
    return lengths if lengths.dim() == 2 else lengths[:, None]


def _rounded(lengths: Int[Tensor, "rows sides"], most: int) -> Int[Tensor, "rows sides"]:
    """Up, by at most a sixteenth: rows of long sequences find others of their class. What is counted is this."""
    steps = [1]
    while steps[-1] < most:
        steps.append(min(most, max(steps[-1] + 1, steps[-1] * 17 // 16)))
    grid = torch.tensor(steps)
    return grid[torch.searchsorted(grid, lengths.clamp(min=1).contiguous())]


def _classes(rounded: Int[Tensor, "rows sides"]) -> tuple[Int[Tensor, " rows"], Int[Tensor, "classes sides"]]:
    """Each row's class, and the lengths of each class.

    In the order of the first length and then, to and fro, of the second: neighbours are alike, and need little
    padding where a batch spans several.
    """
    sizes, of_row = torch.unique(rounded, dim=0, return_inverse=True)
    if sizes.shape[1] == 1:
        return of_row, sizes
    first = sizes[:, 0].unique(return_inverse=True)[1]
    second = torch.where(first % 2 == 0, sizes[:, 1], -sizes[:, 1])
    order = second.argsort(stable=True)
    order = order[first[order].argsort(stable=True)]
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    return place[of_row], sizes[order]


def _cut(
    ranks: Int[Tensor, " rows"], sizes: Int[Tensor, "classes sides"], budget: int, most: int | None
) -> Int[Tensor, " bounds"]:
    """Where batches end among the sorted rows: as late as the budget allows."""
    bounds, begin, widest, at = [0], 0, [0] * sizes.shape[1], 0
    for number, size in zip(ranks.bincount(minlength=len(sizes)).tolist(), sizes.tolist(), strict=True):
        left = number
        while left:
            wide = [max(pair) for pair in zip(widest, size, strict=True)]
            room = budget // max(wide)
            room = room if most is None else min(room, most)
            added = min(left, max(0, room - (at - begin)))
            at, left = at + added, left - added
            if added:
                widest = wide
            if left:
                bounds.append(at)
                begin, widest = at, [0] * len(size)
    return torch.tensor([*bounds, at])
