"""Batches as trees of tensors that share their first dimension, the rows."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def take(tree: Any, rows: slice | Int[Tensor, " selected"]) -> Any:
    """Some rows of each tensor in a tree of tuples, NamedTuples, lists and dictionaries; None stays."""
    if isinstance(tree, Tensor):
        return tree[rows if isinstance(rows, slice) else rows.to(tree.device)]
    if tree is None:
        return None
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(take(branch, rows) for branch in tree))
    if isinstance(tree, tuple | list):
        return type(tree)(take(branch, rows) for branch in tree)
    if isinstance(tree, Mapping):
        return {key: take(branch, rows) for key, branch in tree.items()}
    raise TypeError(f"a batch is made of tensors, tuples, lists, dictionaries and None, not {type(tree).__name__}")


def either(first_rows: Bool[Tensor, " rows"], first: Any, second: Any) -> Any:
    """The rows of one tree where they are wanted, else those of another of the same form."""
    if isinstance(first, Tensor):
        return torch.where(first_rows.view(-1, *[1] * (first.ndim - 1)), first, second)
    return type(first)(*(either(first_rows, one, other) for one, other in zip(first, second, strict=True)))


def evenly(rows: int, most: int) -> Int[Tensor, " selected"]:
    """At most so many of the rows, evenly spread from the first to the last."""
    return torch.linspace(0, rows - 1, min(most, rows)).round().long().clamp(max=rows - 1)


def named_tensors(tree: Any, name: str = "batch") -> dict[str, Tensor]:
    """The tensors of a tree by their path, such as `batch.tokens`; what is no tensor is left out."""
    if isinstance(tree, Tensor):
        return {name: tree}
    branches: Any = ()
    if isinstance(tree, Mapping):
        branches = tree.items()
    elif isinstance(tree, tuple | list):
        branches = zip(getattr(tree, "_fields", range(len(tree))), tree, strict=True)
    return {key: leaf for at, branch in branches for key, leaf in named_tensors(branch, f"{name}.{at}").items()}


def count_rows(tree: Any) -> int:
    """How many rows the tensors of a tree share."""
    counts = {len(tensor) for tensor in named_tensors(tree).values()}
    if len(counts) != 1:
        raise ValueError(f"the tensors of a batch must share their number of rows, not have {sorted(counts)}")
    return counts.pop()


def device_of(tree: Any) -> torch.device:
    """Where the tensors of a tree are."""
    return next(iter(named_tensors(tree).values())).device


def put(tree: Any, rows: Int[Tensor, " selected"], values: Any) -> None:
    """Writes some rows of each tensor of a tree, in place; `values` is a tree of the same form."""
    written = named_tensors(values)
    for name, tensor in named_tensors(tree).items():
        tensor[rows.to(tensor.device)] = written[name].to(tensor)


class Place(NamedTuple):
    """Where the rows of a part are in the batch that it is a part of."""

    first: int
    rows: int  # of the part
    everywhere: int  # of the batch
    counted: bool = True  # False: a row that stands in where a process has none


def process_share(batch: Any, *, rank: int, ranks: int, parts: int) -> list[tuple[Any, Place | None]]:
    """The parts of a batch, each with its place; of several processes, what is one's of each part.

    Rows are consecutive, and shared as evenly as can be: first among parts, then each part among processes, so that a
    part has the same rows on any number of processes. Where a part has fewer rows than there are processes some get
    none of it; they compute on a stand-in that counts for nothing, so that all take part in every reduction. A batch
    that is not cut has no place in another.
    """
    if ranks * parts == 1:
        return [(batch, None)]  # any object will do
    rows = count_rows(batch)
    found: list[tuple[Any, Place | None]] = []
    for part in range(min(parts, rows)):
        first, last = rows * part // min(parts, rows), rows * (part + 1) // min(parts, rows)
        own = slice(first + (last - first) * rank // ranks, first + (last - first) * (rank + 1) // ranks)
        counted = own.start < own.stop
        own = own if counted else slice(first, first + 1)
        found.append((take(batch, own), Place(own.start, own.stop - own.start, rows, counted)))
    return found
