"""Where a Hugging Face model stands: its cache of keys and values, as a value."""

import copy
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor


class PretrainedState(NamedTuple):
    """A cache shared by all rows that go on from the same one of its rows: `select` copies nothing.

    The cache itself is never written to: whoever goes on from here makes a `continued` one first.
    """

    cache: Any  # of transformers: one row for each prefix that was read
    rows: Int[Tensor, " rows"]  # the row of the cache that each row goes on from
    place: int  # tokens of the space read so far
    counts: Bool[Tensor, "held seen"] | None = None  # False on what pads a shorter prefix, on its left; None: all count

    def select(self, rows: Int[Tensor, " selected"]) -> "PretrainedState":
        return self._replace(rows=self.rows[rows])

    @property
    def in_order(self) -> bool:
        """Each row goes on from its own row of the cache."""
        held = len(self.counts) if self.counts is not None else held_rows(self.cache)
        return len(self.rows) == held and bool((self.rows == torch.arange(held, device=self.rows.device)).all())


def continued(state: PretrainedState) -> Any:
    """A cache of its own for each row, which the network may grow without changing the state's."""
    cache = copied(state.cache)
    if not state.in_order:
        cache.reorder_cache(state.rows)
    return cache


def copied(cache: Any) -> Any:
    """The same tensors in new layers; those that transformers writes over in place (recurrent layers') are new too."""
    made = copy.copy(cache)
    made.layers = [copy.copy(layer) for layer in cache.layers]
    for layer in made.layers:
        for name, value in vars(layer).items():
            if isinstance(value, dict):
                setattr(layer, name, {key: _own(item) for key, item in value.items()})
    return made


def held_rows(cache: Any) -> int:
    """How many rows a cache holds."""
    for layer in cache.layers:
        for value in vars(layer).values():
            for item in value.values() if isinstance(value, dict) else [value]:
                if isinstance(item, Tensor) and item.dim() > 1:
                    return len(item)
    return 0


def _own(item: Any) -> Any:
    return item.clone() if isinstance(item, Tensor) else item
