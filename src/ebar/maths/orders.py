"""Texts whose tokens come in any order: given tokens and those to come, put into their places.

Means over the places of texts.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ebar.errors import UserError
from ebar.types import Context, Sequences, spread


def arranged(x: Sequences, context: Context | None = None) -> Sequences:
    """The text: the given tokens and those of x in the places that the order gives them; without an order, x itself.

    Where fewer tokens of x are there than are to come, it is the text up to the first place that is still open.
    """
    each = spread(context, len(x.lengths))
    if each is None or each.order is None:
        return x
    order, coming = each.order, (each.order >= 0).sum(1) - each.given.lengths
    _check_places(order)
    for row in (x.lengths > coming).nonzero()[:1, 0].tolist():
        raise UserError(
            f"Sequence {row} has {int(x.lengths[row])} tokens, and the order has {int(coming[row])} to come in its row."
        )
    rows, width = order.shape
    both = torch.cat([each.given.tokens, x.tokens, torch.zeros_like(order[:, :1])], 1)
    number = torch.arange(width, device=order.device)
    before = each.given.lengths[:, None]
    which = torch.where(number < before, number, number - before + each.given.tokens.shape[1])
    tokens = both.gather(1, which.clamp(max=both.shape[1] - 1))
    # The places of a row are 0 … n−1, so that those of its padding are free.
    text = torch.zeros_like(tokens).scatter(1, torch.where(order >= 0, order, number), tokens)
    known = before + x.lengths[:, None]
    is_open = (order >= 0) & (number >= known)
    lengths = torch.where(is_open, order, (order >= 0).sum(1, keepdim=True)).amin(1) if width else x.lengths
    return Sequences(text[:, : int(lengths.max()) if rows else 0], lengths)


def places_to_come(context: Context, width: int) -> Bool[Tensor, "rows width"]:
    """Which of the first `width` places of each text a token to come has."""
    assert context.order is not None
    order = context.order
    number = torch.arange(order.shape[1], device=order.device)
    comes = (order >= 0) & (number >= context.given.lengths[:, None])
    marked = torch.zeros(len(order), max(order.shape[1], width), dtype=torch.bool, device=order.device)
    return marked.scatter(1, torch.where(order >= 0, order, number), comes)[:, :width]


def left_to_right(context: Context) -> Bool[Tensor, " rows"]:
    """In which rows the tokens to come fill their places from left to right."""
    if context.order is None:
        return torch.ones_like(context.given.lengths, dtype=torch.bool)
    order = context.order
    number = torch.arange(1, order.shape[1], device=order.device)
    falls = (order[:, 1:] < order[:, :-1]) & (order[:, 1:] >= 0) & (number > context.given.lengths[:, None])
    return ~falls.any(1)


def _check_places(order: Int[Tensor, "rows length"]) -> None:
    """There is a text only where no place below the last is left without a token."""
    holes = order.amax(1) + 1 > (order >= 0).sum(1) if order.shape[1] else torch.zeros(0, dtype=torch.bool)
    for row in holes.nonzero()[:1, 0].tolist():
        missing = min(set(range(int(order[row].max()))) - set(order[row].tolist()))
        raise UserError(f"Row {row} of the order has no token for place {missing}, so there is no text to arrange.")


def mean_pooled(
    hidden: Float[Tensor, "rows places width"], counts: Bool[Tensor, "rows places"]
) -> Float[Tensor, "rows width"]:
    """The mean over the places that count; 0 where none does."""
    weights = counts.to(hidden.dtype) / counts.sum(1, keepdim=True).clamp(min=1)
    return (weights[:, None] @ torch.where(counts[:, :, None], hidden, 0.0)).squeeze(1)
