"""A context and what continues it, as one sequence."""

from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from ebar.types import Context, Sequences, spread


class Joined(NamedTuple):
    """[C; x], row by row without a gap, and which of its places are x's."""

    whole: Sequences
    continuation: Bool[Tensor, "rows length"]


def joined(x: Sequences, context: Context | None) -> Joined:
    """Each of the context-major rows after its own context; padding comes last."""
    each = spread(context, len(x.lengths))
    if each is None:
        whole = trimmed(x)
        return Joined(whole, whole.mask())
    given = each.given
    before, lengths = given.lengths[:, None], given.lengths + x.lengths
    both = torch.cat([given.tokens, x.tokens], 1)
    places = torch.arange(int(lengths.max()) if len(lengths) else 0, device=both.device)
    which = torch.where(places < before, places, places - before + given.tokens.shape[1]).clamp(max=both.shape[1] - 1)
    whole = Sequences(both.gather(1, which), lengths)
    return Joined(whole, whole.mask() & (places >= before))


def trimmed(x: Sequences) -> Sequences:
    """Without the padding that no row needs."""
    return Sequences(x.tokens[:, : int(x.lengths.max()) if len(x.lengths) else 0], x.lengths)
