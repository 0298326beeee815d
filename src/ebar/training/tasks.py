"""Batches of labelled examples: of pairs of documents for ranking, and of several tasks in turn."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ebar.data.labelled import Inputs, Labelled
from ebar.errors import UserError
from ebar.maths.randomness import folded
from ebar.objectives.tasks import TaskBatch
from ebar.training.batches import taken

Mixing = Literal["size", "square_root"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Pairs of documents of one query, the more relevant first: each document once an epoch, with one that is less so.

    Which one is drawn anew each epoch from (seed, epoch), with equal chances. A document that has none below it comes
    second only. Rows are pairs, as two choices of which the first (label 0) is right.
    """

    data: Labelled
    batch_size: int
    seed: int = 0
    shuffle: bool = True
    _ordered: Int[Tensor, " documents"] = field(init=False, repr=False)  # rows by query, then by grade
    _better: Int[Tensor, " pairs"] = field(init=False, repr=False)  # rows that have a less relevant one
    _first: Int[Tensor, " pairs"] = field(init=False, repr=False)  # where the documents of its query begin in the order
    _below: Int[Tensor, " pairs"] = field(init=False, repr=False)  # how many of them are less relevant

    def __post_init__(self) -> None:
        grades, groups = self.data.labels.double(), self.data.group
        order = grades.argsort(stable=True)
        order = order[groups[order].argsort(stable=True)]
        sorted_groups, sorted_grades = groups[order], grades[order]
        places = torch.arange(len(order))
        starts = torch.cat([torch.ones(1, dtype=torch.bool), sorted_groups[1:] != sorted_groups[:-1]])
        first = torch.where(starts, places, 0).cummax(0).values
        rises = starts | torch.cat([torch.ones(1, dtype=torch.bool), sorted_grades[1:] != sorted_grades[:-1]])
        below = torch.where(rises, places, 0).cummax(0).values - first
        some = below > 0
        if not bool(some.any()):
            raise UserError("No query has documents of different grades: there is nothing to rank.")
        for name, value in (
            ("ordered", order),
            ("better", order[some]),
            ("first", first[some]),
            ("below", below[some]),
        ):
            object.__setattr__(self, f"_{name}", value)

    def __len__(self) -> int:
        return -(-len(self._better) // self.batch_size)

    def at(self, epoch: int, start: int) -> Iterator[Labelled]:
        generator = Generator().manual_seed(folded(self.seed, epoch if self.shuffle else 0))
        order = torch.arange(len(self._better))
        if self.shuffle:
            order = torch.randperm(len(order), generator=generator)
        drawn = torch.rand(len(order), generator=generator, dtype=torch.float64)
        worse = self._ordered[self._first + (drawn * self._below).long()]
        for number in range(start, len(self)):
            some = order[number * self.batch_size : (number + 1) * self.batch_size]
            yield self._paired(self._better[some], worse[some])

    def _paired(self, better: Int[Tensor, " rows"], worse: Int[Tensor, " rows"]) -> Labelled:
        both = taken(self.data, torch.cat([better, worse]))
        rows = len(better)
        inputs = Inputs(*(torch.cat([part[:rows], part[rows:]], 1) for part in both.inputs))
        return Labelled(inputs, torch.zeros(rows, dtype=torch.long), both.group[:rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class InTurn:
    """Batches of several tasks, each of one task, in an order drawn anew each epoch from (seed, epoch).

    An epoch has as many batches as one pass over all tasks. By `size` each example is in it once; by `square_root` the
    number of a task's batches is in proportion to the square root of its own, at least one, so that small tasks are
    seen more often. Passes over a task follow one another without regard to the ends of epochs.
    """

    sources: Sequence[Any]  # each a source of labelled examples that knows its number of batches
    seed: int = 0
    mixing: Mixing = "size"
    shuffle: bool = True

    def __len__(self) -> int:
        return sum(self.shares())

    def shares(self) -> list[int]:
        """How many batches each task has in an epoch."""
        sizes = [len(source) for source in self.sources]
        return sizes if self.mixing == "size" else shared_out(sum(sizes), [math.sqrt(size) for size in sizes])

    def at(self, epoch: int, start: int) -> Iterator[TaskBatch]:
        shares = self.shares()
        turns = torch.arange(len(shares)).repeat_interleave(torch.tensor(shares))
        if self.shuffle:
            turns = turns[
                torch.randperm(len(turns), generator=Generator().manual_seed(folded(self.seed, epoch, "turns")))
            ]
        done = [int((turns[:start] == task).sum()) for task in range(len(shares))]
        streams = [
            _onwards(source, epoch * share + before)
            for source, share, before in zip(self.sources, shares, done, strict=True)
        ]
        for task in turns[start:].tolist():
            labelled = next(streams[task])
            yield TaskBatch(labelled, torch.full((len(labelled.group),), task))


def _onwards(source: Any, number: int) -> Iterator[Labelled]:
    """The batches of one pass after another, from a number on."""
    epoch, start = divmod(number, len(source))
    while True:
        yield from source.at(epoch, start)
        epoch, start = epoch + 1, 0


def shared_out(total: int, weights: Sequence[float]) -> list[int]:
    """Whole numbers in proportion to the weights, at least 1 each; they add up to the total, if that is enough."""
    exact: Float[Tensor, " tasks"] = torch.tensor(weights, dtype=torch.float64)
    exact = exact / exact.sum() * total
    found = exact.floor().clamp(min=1).long()
    left = total - int(found.sum())
    for place in (found - exact).argsort(stable=True)[: max(0, left)].tolist():
        found[place] += 1
    while int(found.sum()) > max(total, len(found)):
        found[int(found.argmax())] -= 1
    return [int(number) for number in found]
